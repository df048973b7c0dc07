#!/bin/sh
# Weights kept in the type of the step: the same bits as casting them each step, from the first step
# on, after a resume and from given weights; checkpoints do not have them. Without fusion, whose
# nests keep a cast weight in float32.
. "$(dirname "$0")/common.sh"
make_small

train() { # folder, on or off, steps, options...
    folder=$1 shadows=$2 steps=$3
    shift 3
    answer 0 "$stator" train g.stator --tokens-file text.tokens --steps "$steps" --seed 3 --optimizer adamw --lr 1e-2 --clip 1 \
        --ranks "$ranks" --threads 1 --log "$folder.jsonl" --save "$folder" --fusion off --weight-shadows "$shadows" "$@"
}
ranks=1
same() { # folder, folder, what
    cmp "$1/model.safetensors" "$2/model.safetensors" || fail "$3: other bits"
}
for dtype in bf16 f16; do
    train $dtype.off off 6 --dtype $dtype
    train $dtype.on on 6 --dtype $dtype
    same $dtype.off $dtype.on "$dtype"
    # the first half, then the second from its checkpoint, each with and without
    for first in on off; do
        train $dtype.$first.half $first 3 --dtype $dtype
        for second in on off; do
            cp -r $dtype.$first.half part
            train part $second 6 --dtype $dtype --resume part
            same part $dtype.on "$dtype, $first then $second"
            rm -r part
        done
    done
    train $dtype.off.given off 2 --dtype $dtype --weights $dtype.on/model.safetensors
    train $dtype.on.given on 2 --dtype $dtype --weights $dtype.on/model.safetensors
    same $dtype.off.given $dtype.on.given "$dtype, from given weights"
done
# a weight's shadow lives where the weight does, in its parts
ranks=2
for form in dp zero1 zero3 tp; do
    train $form.off off 6 --dtype bf16 --shard $form
    train $form.on on 6 --dtype bf16 --shard $form
    same $form.off $form.on "$form on two ranks"
done
# in a pipeline, on the stages that have the weight: those of a weight that two of them read, too
sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' config.json > tied.json
"$stator" model llama --config tied.json --batch 4 --seq 8 -o tied.stator
for dtype in bf16 f16; do
    for graph in g tied; do
        for shadows in off on; do
            answer 0 "$stator" train $graph.stator --tokens-file text.tokens --steps 2 --seed 3 --optimizer adamw --lr 1e-2 \
                --clip 1 --dtype $dtype --mesh pipe=2,data=2 --microbatches 2 --shard zero3 --threads 1 \
                --save $graph.$dtype.$shadows.stages --fusion off --weight-shadows $shadows
        done
        same $graph.$dtype.off.stages $graph.$dtype.on.stages "$graph, $dtype on two stages of two ranks"
    done
done
# so it does where placements are searched for, or pinned
sed -e 's/^link_us.*/link_us 0/' -e 's/^link_gbps.*/link_gbps 1000000/' -e 's/^launch_us.*/launch_us 0/' \
    "$STATOR_SOURCE_DIR/targets/cpu.target" > free.target
train searched on 6 --dtype bf16 --shard auto --mesh data=2 --target ./free.target
train pinned on 6 --dtype bf16 --shard dp --mesh data=2 --pin 'model*mlp*=split(0,data)'
train pinned.off off 6 --dtype bf16 --shard dp --mesh data=2 --pin 'model*mlp*=split(0,data)'
same pinned.off pinned 'weights that are pinned'
for form in zero3 tp; do
    for shadows in on off; do
        answer 0 "$stator" plan g.stator --dtype bf16 --optimizer adamw --ranks 2 --shard $form --weight-shadows $shadows --json
        cp out plan.$shadows
    done
    state() {
        sed 's/.*"kind":"moments","bytes":\([0-9]*\).*/\1/' "$1"
    }
    # 2 bytes an element of half the weights, moments are 8: what is small is whole
    awk -v on="$(state plan.on)" -v off="$(state plan.off)" 'BEGIN { exit !(on > off && on < 1.35 * off) }' ||
        fail "$form: moments and shadows have $(state plan.on) bytes, moments $(state plan.off)"
done
answer 0 "$stator" plan g.stator --target h200 --dtype bf16 --optimizer adamw --weight-shadows on --json
cp out with
answer 0 "$stator" plan g.stator --target h200 --dtype bf16 --optimizer adamw --json
[ "$(field with 1 kernels)" = "$(field out 1 kernels)" ] || fail "a GPU with much memory keeps no shadows"
answer 0 "$stator" plan g.stator --target h200 --dtype bf16 --optimizer adamw --weight-shadows off --json
awk -v on="$(field with 1 kernels)" -v off="$(field out 1 kernels)" 'BEGIN { exit !(on < off) }' ||
    fail "shadows save no kernels on a GPU: $(field with 1 kernels) and $(field out 1 kernels) kernels"
