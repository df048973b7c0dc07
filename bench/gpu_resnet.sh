#!/bin/sh
# Training steps of a ResNet-50 of 256 images on one NVIDIA GPU, Stator beside PyTorch, in one run.
#
#   gpu_resnet.sh [PEERS]
#
# PEERS is a folder with torch_resnet.py, which takes --batch --steps and prints one JSON line.
# STATOR names the command. bf16, SGD with momentum, random images: once as they stay on the card,
# which is what the peer measures, and once copied to it for every step, as a training's are
# ("input_copies":1).
set -eu
peers=${1:-} steps=${STEPS:-20}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"${STATOR:-stator}" model resnet --depth 50 --batch 256 -o "$work/g.stator"
for copies in "" --copy-inputs; do
    # shellcheck disable=SC2086 # no word where there is nothing
    "${STATOR:-stator}" bench "$work/g.stator" --target h200 --device cuda --dtype bf16 --optimizer sgd --momentum 0.9 \
        --steps "$steps" --json $copies
done
[ -z "$peers" ] || python3 "$peers/torch_resnet.py" --batch 256 --steps "$steps" 2>/dev/null | tail -1
