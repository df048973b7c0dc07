# The char-level Llama on the King James text as 'make train' runs it, in bf16 and f16: the held-out
# loss is within 0.02 nats of float32's.
. "$(dirname "$0")/common.sh"
command -v bible > /dev/null || skip "the Debian packages bible-kjv and bible-kjv-text are not installed"

for dtype in auto bf16 f16; do
    STATOR_DTYPE=$dtype STATOR=$stator OUT=$PWD/$dtype "$STATOR_SOURCE_DIR/examples/llama/train_kjv.sh" \
        > $dtype.out 2>&1 || fail "$dtype: $(tail -3 $dtype.out)"
    tail -n 1 $dtype/llama.jsonl | sed 's/.*"held_out_loss":\([0-9.]*\).*/\1/' > $dtype.loss
    echo "$dtype: held-out loss $(cat $dtype.loss)"
done
for dtype in bf16 f16; do
    awk -v a="$(cat $dtype.loss)" -v b="$(cat auto.loss)" 'BEGIN { d = a - b; exit !(a > 0 && d < 0.02 && d > -0.02) }' ||
        fail "held-out loss $(cat $dtype.loss) in $dtype, $(cat auto.loss) in f32"
done
