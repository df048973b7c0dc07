#!/bin/sh
# Training steps of a ResNet-50 of 256 images on one NVIDIA GPU, Stator beside PyTorch, in one run.
#
#   gpu_resnet.sh [PEERS]
#
# PEERS is a folder with torch_resnet.py, which takes --batch --steps and prints one JSON line. STATOR names the
# command. bf16, SGD with momentum, random images, which Stator copies to the card every step.
set -eu
peers=${1:-} steps=${STEPS:-20}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"${STATOR:-stator}" model resnet --depth 50 --batch 256 -o "$work/g.stator"
"${STATOR:-stator}" bench "$work/g.stator" --target h200 --device cuda --dtype bf16 --optimizer sgd --momentum 0.9 \
    --steps "$steps" --json
[ -z "$peers" ] || python3 "$peers/torch_resnet.py" --batch 256 --steps "$steps" 2>/dev/null | tail -1
