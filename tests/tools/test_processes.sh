# Ranks as processes: in float64 the bits of threads, on 2 and 4 ranks; files written once.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small
"$stator" model resnet --depth 8 --classes 4 --image 10 --channels 1 --batch 4 -o r.stator

launch() { # ranks, arguments of stator
    n=$1
    shift
    "$stator" launch -n "$n" --timeout 30s -- "$stator" "$@"
}
without_times() {
    sed 's/,"step_ms.*//;s/,"seconds.*//' "$1"
}

# A Llama: training with evaluation, checkpoints and a log.
llama="--tokens-file text.tokens --eval-tokens-file text.tokens.held --eval-every 3 --dtype f64 --clip 1
    --seed 3 --steps 6 --threads 1 --save-every 2"
for n in 2 4; do
    # shellcheck disable=SC2086 # words are meant
    {
        "$stator" train g.stator $llama --ranks $n --save threads.$n --log threads.$n.jsonl > threads.out
        launch $n train g.stator $llama --save processes.$n --log processes.$n.jsonl > processes.out
    }
    for file in model.safetensors optimizer.safetensors trainer.json; do
        cmp "$(echo threads.$n/set-*-step-6)/$file" "$(echo processes.$n/set-*-step-6)/$file"
    done
    diff -r -x .lock threads.$n processes.$n
    without_times threads.$n.jsonl > wanted
    without_times processes.$n.jsonl > given
    diff given wanted
    # rank 0 alone prints
    grep -q '^\[0\] step 6/6' processes.out || fail "no steps: $(cat processes.out)"
    if grep -q '^\[[1-9]\]' processes.out; then fail "other ranks print: $(cat processes.out)"; fi
done

# It goes on from the checkpoint of the other form.
# shellcheck disable=SC2086
{
    "$stator" train g.stator $llama --steps 8 --ranks 2 --resume processes.2 --save on.threads > /dev/null 2>&1
    launch 2 train g.stator $llama --steps 8 --resume threads.2 --save on.processes > /dev/null 2> err
}
says err "[0] resumed at step 6"
cmp on.threads/model.safetensors on.processes/model.safetensors

# Split parameters, moments and products: each process writes what it has, and the parts are what
# threads write whole. A form of parts goes on from the other.
for form in "--shard zero1" "--mesh data=2,tensor=2 --shard zero3"; do
    rm -rf split.threads split.processes split.on
    # shellcheck disable=SC2086
    {
        "$stator" train g.stator $llama $form --ranks 4 --save split.threads > /dev/null
        launch 4 train g.stator $llama $form --save split.processes > /dev/null
    }
    ls split.processes/set-*-step-6/optimizer-00003-of-00004.safetensors > /dev/null
    answer 0 "$stator" checkpoint gather split.processes -o gathered.safetensors
    says out "split.processes: step 6, written"
    cmp gathered.safetensors split.threads/model.safetensors
    # shellcheck disable=SC2086
    {
        "$stator" train g.stator $llama --steps 8 --ranks 2 --resume split.processes --save split.on > /dev/null 2>&1
        launch 3 train g.stator $llama --steps 8 --shard zero2 --resume split.threads > /dev/null 2> err
    }
    says err "[0] resumed at step 6"
done
answer 2 "$stator" checkpoint gather split.processes
says err output
answer 2 "$stator" checkpoint melt split.processes
says err melt gather
answer 0 "$stator" checkpoint check split.processes --json
says out '{"folder":"split.processes","step":6}'
answer 0 "$stator" checkpoint --help
says out "gather DIR" "--output"
rm split.processes/set-*/model-00002-of-00004.safetensors
answer 2 "$stator" checkpoint gather split.processes -o gathered.safetensors
says err "the part of rank 2" model-00002-of-00004.safetensors

# A newest set that is damaged is not passed over in silence.
"$stator" train g.stator --tokens-file text.tokens --steps 4 --save-every 2 --save two > /dev/null
answer 0 "$stator" checkpoint check two
says out "two: step 4, whole"
printf 'x' | dd of=two/set-000002-step-4/optimizer.safetensors bs=1 seek=600 conv=notrunc 2> /dev/null
answer 2 "$stator" checkpoint check two
says err "two: the newest set is not whole: " optimizer.safetensors "the newest that is is of step 2"
[ ! -s out ] || fail "a damaged set passes for whole: $(cat out)"
answer 0 "$stator" checkpoint gather two -o older.safetensors
says err "two: the newest set is not whole: " optimizer.safetensors "an older one, of step 2"
says out "two: step 2, written"
cmp older.safetensors two/set-000001-step-2/model.safetensors
rm -r two/set-000002-step-4
answer 0 "$stator" checkpoint check two
says out "two: step 2, whole"

# Slower links change when, not what.
# shellcheck disable=SC2086
launch 2 train g.stator $llama --save slow --comm-latency 1ms --comm-bandwidth 20MB/s > /dev/null
diff -r -x .lock threads.2 slow

# A ResNet, batch norm over the whole batch.
head_of() { # sizes...
    for size in "$@"; do printf '\000\000\000%b' "\\0$(printf %o "$size")"; done
}
{ printf '\000\000\010\003'; head_of 12 10 10; head -c 1200 text.txt; } > images
{ printf '\000\000\010\001'; head_of 12; printf '\000\001\002\003\000\001\002\003\000\001\002\003'; } > labels
resnet="--images images --labels labels --dtype f64 --optimizer sgd --momentum 0.9 --lr 0.05 --steps 4 --threads 1"
for n in 2 4; do
    # shellcheck disable=SC2086
    {
        "$stator" train r.stator $resnet --ranks $n --save rt.$n > /dev/null
        launch $n train r.stator $resnet --save rp.$n > /dev/null
    }
    diff -r -x .lock rt.$n rp.$n
done

# One step on three, with all gradients and outputs.
[ -r "$shared/cases/README.md" ] || exit 0
case=$shared/cases/resnet_tiny
"$stator" import "$case/model.pt2" -o c.stator > /dev/null 2>&1
run="run c.stator --weights $case/weights.safetensors --input $case/batches.safetensors --map x=x.0,y=y.0 --grad
    --dtype f64 --threads 1"
# shellcheck disable=SC2086
{
    "$stator" $run --ranks 3 -o t.safetensors > t.out 2> /dev/null
    launch 3 $run -o p.safetensors > p.out 2> /dev/null
}
cmp t.safetensors p.safetensors
sed 's/^\[0\] //' p.out | diff - t.out
