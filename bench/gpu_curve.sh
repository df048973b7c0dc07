#!/bin/sh
# The loss curve of a Llama in bf16 on one NVIDIA GPU beside PyTorch's, from the same weights over
# the same text: mean absolute difference; and whether a second run of Stator ends in the same bits.
#
#   gpu_curve.sh CONFIG.json TOKENS [STEPS]
#
# TOKENS is a token shard of `stator import`; STATOR names the command.
set -eu
here=$(dirname "$0")
config=$1 tokens=$2 steps=${3:-300}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$here/llama_curve_torch.py" prepare "$config" "$tokens" "$work"
"${STATOR:-stator}" model llama --config "$config" --batch 32 --seq 1024 -o "$work/g.stator"
once() {
    "${STATOR:-stator}" train "$work/g.stator" --target h200 --device cuda --dtype bf16 --weights "$work/weights.safetensors" \
        --input "$work/batches.safetensors" --map 'x=x.*,y=y.*' --optimizer adamw --lr 6e-4 --betas 0.9,0.95 \
        --weight-decay 0.1 --clip 1 --warmup 20 --steps "$2" --log "$work/$1.log" --save "$work/$1" > "$work/$1.out" 2>&1 ||
        { tail -5 "$work/$1.out"; exit 1; }
}
once ours "$steps"
python3 "$here/llama_curve_torch.py" train "$config" "$work" "$steps" > "$work/losses"
python3 "$here/llama_curve_torch.py" compare "$work/losses" "$work/ours.log"
once one 100
once two 100
if cmp "$work/one/model.safetensors" "$work/two/model.safetensors"; then
    echo '{"same_bits_after_100_steps": true}'
else
    echo '{"same_bits_after_100_steps": false}'
fi
