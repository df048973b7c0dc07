#!/bin/sh
# --memory-limit: plans stay below it, and exit code 3 says what would fit; --recompute changes no
# bit.
. "$(dirname "$0")/common.sh"
make_small

total() { sed -n 's/.*"total_bytes":\([0-9]*\).*/\1/p' out; }
again() { sed -n 's/.*"recomputed":\([0-9]*\).*/\1/p' out; }

answer 0 "$stator" plan g.stator --threads 1 --recompute off --json
most=$(total)
[ "$(again)" = 0 ] || fail "--recompute off recomputes"
answer 0 "$stator" plan g.stator --threads 1 --recompute full --json
[ "$(again)" -gt 0 ] || fail "--recompute full recomputes nothing"
least=$(total)
[ "$least" -lt "$most" ] || fail "--recompute full needs $least bytes, off $most"

answer 0 "$stator" plan g.stator --threads 1 --memory-limit "$least" --json
[ "$(total)" -le "$least" ] || fail "$(total) bytes, the limit is $least"
answer 0 "$stator" plan g.stator --threads 1 --memory-limit "$least"
says out "run again for the backward pass"
answer 3 "$stator" compile g.stator --threads 1 --memory-limit 1KiB --output x.plan
says err "a rank needs" "the memory limit is"
[ ! -e x.plan ] || fail "a plan that does not fit was written"
# a limit that nothing keeps to is refused without a look at every place on the way to the least
answer 3 "$stator" compile g.stator --threads 1 --microbatches 4 --memory-limit 1KiB --output x.plan --dump order
says err "a rank needs" "no batch fits: the state alone needs" "16 ranks (now 1) with --shard zero3 do not fit either"
tried=$(grep -c '^graph' err)
[ "$tried" -le 2 ] || fail "$tried plans were tried"
answer 2 "$stator" compile g.stator --recompute some --output x.plan
says err "auto|off|fused|full"

for policy in off full; do
    "$stator" train g.stator --tokens-file text.tokens --steps 3 --seed 5 --recompute $policy \
        --log $policy.jsonl > /dev/null
done
losses() { sed 's/.*"loss":\([^,}]*\).*/\1/' "$1"; }
[ "$(losses off.jsonl)" = "$(losses full.jsonl)" ] || fail "--recompute changes the loss"
[ -n "$(losses off.jsonl)" ] || fail "no losses"
