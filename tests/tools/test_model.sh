# Standard models: written, described, compiled, trained from initialization by rules.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small

"$stator" info g.stator > info
says info model.embed_tokens.weight lm_head.weight "i64[4,8]" "f32[9,16]" "loss "
"$stator" info g.stator --json > info
says info '"kind":"graph"' '"inputs":2'
"$stator" info g.stator --text > g.txt
"$stator" info g.txt --text > again.txt
cmp g.txt again.txt

# the example's configuration is the model of 742,272 parameters
"$stator" model llama --config "$STATOR_SOURCE_DIR/examples/llama/char.json" --batch 16 --seq 128 -o char.stator
"$stator" info char.stator --json > info
says info '"parameter_elements":742272'

# the plan: a file, a text, the same figures in both
"$stator" compile g.stator --ranks 2 --threads 1 -o g.plan --json > compiled
"$stator" info g.plan --json > info
for key in ranks kernels collectives state work comm live_bound_bytes packing_gap_percent; do
    [ "$(field compiled 1 $key)" = "$(field info 1 $key)" ] || fail "'$key' differs: $(cat compiled info)"
done
[ "$(field info 1 ranks)" = 2 ] || fail "the plan is not for two ranks: $(cat info)"
"$stator" info g.plan > info
says info "memory of the largest rank: state "
"$stator" info g.plan --text > plan.txt
"$stator" compile g.stator --ranks 2 --threads 1 --text > again.txt
cmp plan.txt again.txt
"$stator" compile g.stator --mode eval > compiled
says compiled "compiled in" "1 ranks"

# without --weights: initialization by rules and seed, the same on any number of ranks
for ranks in 1 2 3; do
    "$stator" train g.stator --tokens-file text.tokens --steps 3 --ranks $ranks --seed 5 --dtype f64 \
        --log "$ranks.jsonl" --save "$ranks" > /dev/null
    close "$(field "$ranks.jsonl" 1 loss)" "$(field 1.jsonl 1 loss)" 1e-12
    close "$(field "$ranks.jsonl" 3 loss)" "$(field 1.jsonl 3 loss)" 1e-9
done
"$stator" train g.stator --tokens-file text.tokens --steps 3 --seed 6 --log other.jsonl > /dev/null
[ "$(field other.jsonl 1 loss)" != "$(field 1.jsonl 1 loss)" ] || fail "another seed, the same loss"
"$stator" info 1/model.safetensors > info
says info "f64[9,16]"

# learning: the text repeats itself, so the loss falls far below ln 9 = 2.197
"$stator" train g.stator --tokens-file text.tokens --eval-tokens-file text.tokens.held --lr 1e-2 \
    --weight-decay 0.1 --no-decay norms --groups 'lm_head*=lr:0.5' --epochs 3 --eval-every 20 \
    --log run.jsonl --save DIR > out
held=$(sed -n 's/^.*"held_out_loss":\([0-9.e-]*\).*$/\1/p' run.jsonl)
awk -v loss="$held" 'BEGIN { exit !(loss != "" && loss < 0.7) }' || fail "held-out loss is '$held'"
[ -e DIR/best/model.safetensors ] || fail "no best checkpoint is marked"
tail -1 run.jsonl > last
says last held_out_loss seconds
"$stator" eval g.stator --weights DIR/model.safetensors --eval-tokens-file text.tokens.held --json > out
close "$(field out 1 loss)" "$held" 1e-6
"$stator" generate --config config.json --weights DIR/model.safetensors --tokenizer vocab.json \
    --prompt 'abc d' --tokens 3 --greedy > out
[ "$(cat out)" = "abc defg" ] || fail "generated '$(cat out)' instead of 'abc defg'"

# two batches a step: half as many steps an epoch
"$stator" train g.stator --tokens-file text.tokens --accumulate 2 --log two.jsonl > /dev/null
"$stator" train g.stator --tokens-file text.tokens --log one.jsonl > /dev/null
[ "$(wc -l < two.jsonl)" = $(($(wc -l < one.jsonl) / 2)) ] ||
    fail "an epoch has $(wc -l < two.jsonl) steps of two batches, $(wc -l < one.jsonl) of one"
# items LOG LINE: of a step, its rate times its time
items() { awk -v r="$(field "$1" "$2" rate)" -v ms="$(field "$1" "$2" step_ms)" 'BEGIN { printf "%.9g", r * ms / 1000 }'; }
close "$(items one.jsonl 1)" 32 0.01 # 4 windows of 8
close "$(items two.jsonl 1)" 64 0.01

# ResNet on a few images of our own: IDX, big-endian head
head_of() { # sizes...
    for size in "$@"; do printf '\000\000\000%b' "\\0$(printf %o "$size")"; done
}
{ printf '\000\000\010\003'; head_of 12 10 10; head -c 1200 text.txt; } > images
{ printf '\000\000\010\001'; head_of 12; printf '\000\001\002\003\000\001\002\003\000\001\002\003'; } > labels
"$stator" model resnet --depth 8 --classes 4 --image 10 --channels 1 --batch 4 -o r.stator
"$stator" info r.stator > info
says info conv1.weight bn1.running_var fc.weight "f32[4,1,10,10]"
"$stator" train r.stator --images images --labels labels --eval-images images --eval-labels labels \
    --optimizer sgd --momentum 0.9 --nesterov --lr 0.05 --epochs 2 --ranks 2 --log r.jsonl > out
says out accuracy
[ "$(grep -c '"step":.*"loss"' r.jsonl)" -ge 6 ] || fail "fewer than six steps: $(cat r.jsonl)"
"$stator" train r.stator --images images --labels labels --accumulate 3 --batch-norm micro --steps 2 --log three.jsonl > out
says out "samples/s"
close "$(items three.jsonl 1)" 12 0.01
for depth in 18 50; do
    "$stator" model resnet --depth $depth --classes 10 --image 32 --batch 2 -o r.stator
    "$stator" compile r.stator > out
done
says out "compiled in"
