#!/bin/sh
# The char-level Llama on the King James text, as 'make train' runs it: at most 8 minutes, held-out
# loss at most 1.67 nats a character on two ranks, and a sample.
. "$(dirname "$0")/common.sh"
command -v bible > /dev/null || skip "the Debian packages bible-kjv and bible-kjv-text are not installed"

STATOR=$stator OUT=$PWD/train "$STATOR_SOURCE_DIR/examples/llama/train_kjv.sh" 2 > train.out
cat train.out
grep -q -A 1 -e '--- a sample:' train.out || fail "there is no sample"
tail -n 1 train/llama.jsonl | sed 's/.*"held_out_loss":\([0-9.]*\).*"seconds":\([0-9.]*\).*/\1 \2/' |
    awk '{ printf "held-out loss %s after %s s\n", $1, $2; exit !($1 > 0 && $1 <= 1.67 && $2 <= 480) }' ||
    fail "loss or time is out of bounds"
