#!/bin/sh
# Training on a GPU: float32 as on the CPU; bf16, and f16 with its loss scale, near it; the same
# bits in a second run, which takes its algorithms from the tuning record of the first; tuned and
# not.
. "$(dirname "$0")/common.sh"
make_small
export STATOR_CACHE="$PWD/cache"

train() { # folder options...
    folder=$1
    shift
    "$stator" train g.stator --tokens-file text.tokens --steps 12 --seed 3 --optimizer adamw --lr 1e-2 --clip 1 --ranks 1 \
        --log "$folder.jsonl" --save "$folder" "$@" > "$folder.txt" 2> err
}
train cpu || fail "the CPU: $(cat err)"
gpu="--target h200 --device cuda"
if ! train f32 $gpu; then
    grep -qE "no NVIDIA driver|finds no GPU|libstator_cuda.so|serves CUDA" err && skip "$(head -1 err)"
    fail "$(cat err)"
fi
for step in 1 6 12; do
    close "$(field f32.jsonl $step loss)" "$(field cpu.jsonl $step loss)" 1e-4
done
for dtype in bf16 f16; do
    train $dtype $gpu --dtype $dtype || fail "$dtype: $(cat err)"
    train $dtype.again $gpu --dtype $dtype || fail "$dtype, again: $(cat err)"
    train $dtype.plain $gpu --dtype $dtype --tune off || fail "$dtype, untuned: $(cat err)"
    for step in 1 12; do
        close "$(field $dtype.jsonl $step loss)" "$(field cpu.jsonl $step loss)" 0.05
        close "$(field $dtype.plain.jsonl $step loss)" "$(field cpu.jsonl $step loss)" 0.05
    done
    cmp $dtype/model.safetensors $dtype.again/model.safetensors || fail "$dtype: a second run has other bits"
done
ls cache/*.tuning > /dev/null || fail "no tuning record was kept"

bench() {
    "$stator" bench g.stator $gpu --dtype bf16 --optimizer adamw --steps 3 --json "$@"
}
rm -r cache
bench > cold.json
bench > warm.json
[ "$(field cold.json 1 tuned)" -gt 0 ] || fail "nothing was measured: $(cat cold.json)"
[ "$(field warm.json 1 tuned)" = 0 ] || fail "what is on record was measured again: $(cat warm.json)"
choices() {
    sed 's/.*"choices":"\([0-9a-f]*\)".*/\1/' "$1"
}
[ "$(choices cold.json)" = "$(choices warm.json)" ] || fail "the second run chose otherwise"
# memory is what the plan says, nothing grows, and the host sleeps while the card works
within() { # what value low high
    awk -v v="$2" -v low="$3" -v high="$4" 'BEGIN { exit !(v != "" && v >= low && v <= high) }' || fail "$1 is '$2': $(cat warm.json)"
}
within grown_bytes "$(field warm.json 1 grown_bytes)" 0 0
within taken_bytes "$(field warm.json 1 taken_bytes)" "$(field warm.json 1 planned_bytes)" 1e12
# inputs fed ahead, at once, or resident: the same training
train once $gpu --dtype bf16 --feed-ahead off || fail "without feeding ahead: $(cat err)"
cmp bf16/model.safetensors once/model.safetensors || fail "feeding ahead changes bits"
bench --deterministic off > varies.json
[ "$(choices varies.json)" != "$(choices warm.json)" ] || fail "--deterministic off takes the other's record"
close "$(field varies.json 1 loss)" "$(field warm.json 1 loss)" 0.01
if bench --deterministic maybe > out 2> err; then fail "--deterministic maybe was taken"; fi
says err "option 'deterministic' is 'maybe'"
if bench --tune often > out 2> err; then fail "--tune often was taken"; fi
says err "option 'tune' is 'often'"
