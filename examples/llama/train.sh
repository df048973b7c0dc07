#!/bin/sh
# Trains a Llama of any size on a text of one's own.
#
#   train.sh [--OPTION VALUE …] RANKS CONFIG.json TEXT TOKENIZER.model|chars [BATCH [SEQ [EPOCHS]]]
#
# CONFIG is a Hugging Face config.json whose vocab_size is the tokenizer's. The last 5 % of the text
# are held out. Options go to 'stator train': --device cuda --target h200 --dtype bf16, say.
# Environment: STATOR (the command), OUT (folder, of one run).
set -eu
options=
while [ $# -ge 2 ] && [ "${1#--}" != "$1" ]; do
    options="$options $1 $2"
    shift 2
done
if [ $# -lt 4 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
ranks=$1 config=$2 text=$3 tokenizer=$4 batch=${5:-16} seq=${6:-128} epochs=${7:-1}
stator=${STATOR:-stator}
out=${OUT:-llama}
mkdir -p "$out"

if [ "$tokenizer" = chars ]; then
    "$stator" import "$text" --chars --vocab "$out/vocab.json" --hold-out 0.05 -o "$out/text.tokens"
    tokenizer=$out/vocab.json
else
    "$stator" import "$text" --tokenizer "$tokenizer" --hold-out 0.05 -o "$out/text.tokens"
fi
"$stator" model llama --config "$config" --batch "$batch" --seq "$seq" -o "$out/llama.stator"
# shellcheck disable=SC2086 # words are meant
"$stator" train "$out/llama.stator" --ranks "$ranks" $options \
    --tokens-file "$out/text.tokens" --eval-tokens-file "$out/text.tokens.held" \
    --optimizer adamw --lr 1e-3 --betas 0.9,0.95 --weight-decay 0.1 --no-decay norms --clip 1.0 \
    --warmup 20 --schedule cosine --min-lr 1e-4 --epochs "$epochs" \
    --log "$out/llama.jsonl" --save "$out/checkpoints"
# a text as long as the model's positions allow, the prompt's few tokens aside
tokens=$(sed -n 's/^.*"max_position_embeddings": *\([0-9]*\).*$/\1/p' "$config")
tokens=$((${tokens:-208} - 8))
[ $tokens -le 200 ] || tokens=200
"$stator" generate --config "$config" --weights "$out/checkpoints/model.safetensors" \
    --tokenizer "$tokenizer" --prompt 'The ' --tokens $tokens
