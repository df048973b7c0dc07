# Mixed precision through the command: bf16 and f16 train like f32, resume bit for bit, evaluate,
# generate; bad loss scales are refused.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small

train="--tokens-file text.tokens --eval-tokens-file text.tokens.held --optimizer adamw --lr 3e-3 --clip 1 --seed 3"
# shellcheck disable=SC2086 # words are meant
for dtype in auto bf16 f16; do
    "$stator" train g.stator $train --steps 40 --ranks 2 --dtype $dtype --log $dtype.jsonl --save $dtype > /dev/null
    tail -n 1 $dtype.jsonl | sed 's/.*"held_out_loss":\([0-9.]*\).*/\1/' > $dtype.loss
done
for dtype in bf16 f16; do
    awk -v a="$(cat $dtype.loss)" -v b="$(cat auto.loss)" 'BEGIN { d = a - b; exit !(d < 0.02 && d > -0.02) }' ||
        fail "held-out loss $(cat $dtype.loss) in $dtype, $(cat auto.loss) in f32"
done
cmp -s auto/model.safetensors bf16/model.safetensors && fail "bf16 computes what f32 computes"
# Weights are stored in float32 whatever computes.
"$stator" info bf16/model.safetensors > bf16.info
grep -q "bf16" bf16.info && fail "a weight is stored in bf16"
grep -q '"loss_scale":[0-9.e+]*,"skipped":false' f16.jsonl || fail "the log of f16 has no scale: $(tail -n 2 f16.jsonl)"
grep -q 'skipped' bf16.jsonl && fail "bf16 skips without being asked"

# Resumed runs: the scale and its counters are state.
# shellcheck disable=SC2086
for options in "--dtype f16 --ema 0.9 --accumulate 2" "--dtype bf16 --skip-nonfinite" "--dtype bf16 --loss-scale 64"; do
    rm -rf whole rest
    "$stator" train g.stator $train $options --steps 4 --ranks 3 --save whole --save-every 2 > /dev/null
    "$stator" train g.stator $train $options --steps 4 --ranks 3 --resume whole/set-000001-step-2 --save rest \
        > /dev/null 2>&1
    for file in model.safetensors optimizer.safetensors; do
        cmp "$(echo whole/set-*-step-4)/$file" "$(echo rest/set-*-step-4)/$file"
    done
done

# What was trained evaluates and generates in any precision.
for dtype in f32 bf16 f16; do
    [ $dtype = f32 ] && precision=auto || precision=$dtype
    "$stator" eval g.stator --weights bf16/model.safetensors --eval-tokens-file text.tokens.held --dtype $precision \
        --json > eval.json
    close "$(field eval.json 1 loss)" "$(cat bf16.loss)" 0.02
done
"$stator" generate --config config.json --weights bf16/model.safetensors --tokenizer vocab.json --prompt 'abc ' \
    --tokens 12 --greedy --dtype bf16 > text.out
grep -q . text.out || fail "nothing was generated"
"$stator" compile g.stator --dtype bf16 > /dev/null

answer 2 "$stator" train g.stator $train --steps 2 --loss-scale twice
says err "loss-scale" "twice"
answer 2 "$stator" train g.stator $train --steps 2 --loss-scale -1
says err "loss-scale"
answer 2 "$stator" train g.stator $train --steps 2 --dtype bf17
says err "bf17"

# A cast to float32 asks for it, also in a graph that is float32 as it stands: what follows is
# float32, up to the next product. Without --dtype it is nothing.
cat > asks.stator << 'END'
graph "asks" {
  %0 x = input {dtype=f32, shape=[8,16], batch_axis=0}
  %1 w = parameter {dtype=f32, shape=[16,16]}
  %2 = matmul(%0, %1)
  %3 = cast(%2) {dtype=f32}
  %4 = tanh(%3)
  %5 = sigmoid(%2)
  %6 = matmul(%4, %5) {transpose_a=true}
  %7 = reduce_mean(%6) {axes=[0,1], keep=false}
  output "loss" = %7
}
END
answer 0 "$stator" compile asks.stator --dtype bf16 --optimizer sgd --dump precision
says err "tanh(" "sigmoid("
grep -q ' = tanh(.* : f32\[' err || fail "what was asked for is not float32: $(grep 'tanh(' err)"
grep -q ' = sigmoid(.* : bf16\[' err || fail "more than was asked for is float32: $(grep 'sigmoid(' err)"
answer 0 "$stator" compile asks.stator --optimizer sgd --dump simplify
sed '1,/^# after simplify/d' err > last
if grep -q 'cast(.*dtype=f32' last; then fail "a cast that does nothing is left: $(grep 'cast(' last)"; fi
