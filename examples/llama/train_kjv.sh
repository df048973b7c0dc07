#!/bin/sh
# Trains a char-level Llama on the King James Bible (Debian packages bible-kjv and bible-kjv-text;
# the text is in the public domain, except for the Crown's letters patent in the United Kingdom),
# prints progress, the held-out loss and a sample.
#
#   train_kjv.sh [--OPTION VALUE …] [RANKS [CONFIG.json]]   environment: STATOR (the command), OUT
#                                                           (folder), STEPS
#
# Options go to 'stator train': --device cuda --target h200 --dtype bf16, say.
set -eu
options=
while [ $# -ge 2 ] && [ "${1#--}" != "$1" ]; do
    options="$options $1 $2"
    shift 2
done
here=$(dirname "$0")
ranks=${1:-2}
config=${2:-$here/char.json}
stator=${STATOR:-stator}
out=${OUT:-build/train}
steps=${STEPS:-320}
mkdir -p "$out"

if ! command -v bible > /dev/null; then
    echo "train_kjv.sh: the command 'bible' is missing: apt-get install bible-kjv bible-kjv-text" >&2
    exit 2
fi
# every verse on one line; its reference, the first word, is cut off
bible -f 'gen1:1-rev22:21' | sed 's/^[^ ]* //' > "$out/kjv.txt"

"$stator" import "$out/kjv.txt" --chars --vocab "$out/vocab.json" --hold-out 0.05 -o "$out/kjv.tokens"
"$stator" model llama --config "$config" --batch 16 --seq 128 -o "$out/llama.stator"
rm -rf "$out/llama" # of an earlier call
# shellcheck disable=SC2086 # words are meant
"$stator" train "$out/llama.stator" --ranks "$ranks" $options \
    --tokens-file "$out/kjv.tokens" --eval-tokens-file "$out/kjv.tokens.held" \
    --optimizer adamw --lr 2e-3 --warmup 20 --schedule cosine --steps "$steps" \
    --init '*norm.weight=ones;*=normal:0.02' --seed 1 \
    --log "$out/llama.jsonl" --save "$out/llama"
echo "--- a sample:"
"$stator" generate --config "$config" --weights "$out/llama/model.safetensors" \
    --tokenizer "$out/vocab.json" --prompt 'And ' --tokens 300 --temperature 0.7 --seed 1
