#!/bin/sh
# Training steps of a Llama on one NVIDIA GPU, Stator beside its peers, in one run.
#
#   gpu_llama.sh GRAPH MODEL BATCH SEQ [PEERS]
#
# GRAPH is a `stator model llama` graph of that batch and length; PEERS a folder with torch_llama.py
# and jax_peers.py, which take --model --batch --seq --steps and print one JSON line. STATOR names
# the command. bf16, AdamW, clipping at 1.0, random data.
set -eu
graph=$1 model=$2 batch=$3 seq=$4 peers=${5:-}
steps=${STEPS:-15}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"${STATOR:-stator}" bench "$graph" --target h200 --device cuda --dtype bf16 --optimizer adamw --clip 1 \
    --fusion on --steps "$steps" --json
[ -n "$peers" ] || exit 0
for peer in jax_peers torch_llama; do
    python3 "$peers/$peer.py" --model "$model" --batch "$batch" --seq "$seq" --steps "$steps" 2>/dev/null |
        tail -1
done
