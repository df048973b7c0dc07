#!/bin/sh
# What runs again for the backward pass has the same bits, in 16 bits too, whatever nests it becomes
# part of: loss, gradients and statistics of batch norm, which are updated once, against a plan that
# keeps all.
. "$(dirname "$0")/common.sh"
need_shared

# run NAME CASE DTYPE RANKS OPTION...
run() {
    name=$1 case=$2 dtype=$3 ranks=$4
    shift 4
    answer 0 "$stator" run $case.stator $(cat $case.options) --grad --dtype $dtype --ranks $ranks --threads 1 \
        --output $name.safetensors "$@"
}
# check CASE DTYPE RANKS POLICY...
check() {
    case=$1 dtype=$2 ranks=$3
    shift 3
    run kept $case $dtype $ranks --recompute off
    for policy in "$@"; do
        run again $case $dtype $ranks --recompute $policy
        cmp -s kept.safetensors again.safetensors || fail "$case in $dtype on $ranks ranks: --recompute $policy changes bits"
    done
}

for name in llama_tiny llama_tiny_tied resnet_tiny; do
    answer 0 "$stator" import "$shared/cases/$name/model.pt2" -o $name.stator
    echo "--weights $shared/cases/$name/weights.safetensors --input $shared/cases/$name/batches.safetensors --map x=x.0,y=y.0" > $name.options
done

# Dropout, norms and chains of elementwise operations, which are in several nests when they run
# again.
cat > drop.stator << 'END'
graph "drop" {
  %x x = input {dtype=f32, shape=[8,3,48,48]}
  %y y = input {dtype=i64, shape=[8]}
  %s seed = buffer {dtype=i64, shape=[]}
  %w1 w1 = parameter {dtype=f32, shape=[48,40]}
  %b1 b1 = parameter {dtype=f32, shape=[40]}
  %g1 n1.weight = parameter {dtype=f32, shape=[40]}
  %g2 n2.weight = parameter {dtype=f32, shape=[40]}
  %g3 n2.bias = parameter {dtype=f32, shape=[40]}
  %w2 w2 = parameter {dtype=f32, shape=[40,10]}
  %m = matmul(%x, %w1)
  %a = add(%m, %b1)
  %t = gelu(%a)
  %d = dropout(%t, %s, %s) {p=0.25, id=1}
  %n, %r = rms_norm(%d, %g1)
  %e = silu(%n)
  %f = mul(%e, %d)
  %h = tanh(%f)
  %k = add(%h, %a)
  %d2 = dropout(%k, %s, %s) {p=0.1, id=2}
  %l, %lm, %lr = layer_norm(%d2, %g2, %g3)
  %p = reduce_mean(%l) {axes=[1,2]}
  %z = matmul(%p, %w2)
  %loss, %total = cross_entropy(%z, %y)
  output "loss" = %loss
}
END
echo "--input $shared/cases/resnet_tiny/batches.safetensors --map x=x.0,y=y.0 --init b1=normal:0.1;n?.weight=ones;n2.bias=zeros;seed=zeros" > drop.options

for ranks in 1 2; do
    check llama_tiny bf16 $ranks auto full
    check drop bf16 $ranks auto fused full
    check drop auto $ranks fused full
done
check llama_tiny_tied bf16 1 full
check resnet_tiny bf16 2 auto full
check resnet_tiny f16 1 full
check drop f16 1 auto fused full

# a limit between what is needed with all kept and with all again
total() { sed -n 's/.*"total_bytes":\([0-9]*\).*/\1/p' out; }
plan="plan llama_tiny.stator --dtype bf16 --threads 1 --json"
answer 0 "$stator" $plan --recompute off
most=$(total)
answer 0 "$stator" $plan --recompute full
limit=$((($(total) + most) / 2))
[ "$limit" -lt "$most" ] || fail "--recompute full needs no less than $most bytes"
train="train llama_tiny.stator $(cat llama_tiny.options) --steps 2 --dtype bf16 --threads 1"
answer 0 "$stator" $train --recompute off --save kept
answer 0 "$stator" $train --memory-limit "$limit" --save again
cmp -s kept/model.safetensors again/model.safetensors || fail "--memory-limit $limit changes bits"
