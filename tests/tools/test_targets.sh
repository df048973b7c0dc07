#!/bin/sh
# Plans for other devices: made anywhere, complete, refused where their device is not; descriptions
# from files go with their plans.
. "$(dirname "$0")/common.sh"
make_small

for target in a100 h100 h200; do
    answer 0 "$stator" compile g.stator --target $target --text
    says out "device cuda" "option target = $target" "cublaslt.matmul" "nest"
    if grep -q 'cpu\.' out; then fail "a plan for $target has kernels of the processor"; fi
done
answer 0 "$stator" compile g.stator --target h200 -o gpu.plan
answer 2 "$stator" run gpu.plan
says err "'h200'" "device 'cuda'"
answer 2 "$stator" compile g.stator --target h201
says err "'h201'" "h200"
answer 2 "$stator" compile g.stator --target h200 --device cpu
says err "'cpu'" "'h200'" "'cuda'"

# a file: what it says is used, a fault in it is named with its line
sed 's/^target .*/target mine/' "$STATOR_SOURCE_DIR/targets/h200.target" > mine.target
answer 0 "$stator" compile g.stator --target mine.target --text
says out "option target = mine" "cublaslt.matmul"
sed 's/cublaslt.matmul/my.matmul/' mine.target > unknown.target
answer 2 "$stator" compile g.stator --target ./unknown.target
says err "unknown.target:" "my.matmul"
cp mine.target other.target
answer 0 "$stator" compile g.stator --target ./other.target -o other.plan
rm other.target
answer 0 "$stator" info other.plan
line=$(grep -n '^cores' mine.target | cut -d: -f1)
sed 's/^cores.*/cores many/' mine.target > bad.target
answer 2 "$stator" compile g.stator --target bad.target
says err "bad.target:$line: cores is 'many'"
answer 2 "$stator" compile g.stator --target nowhere.target
says err nowhere.target

# the device that computes nothing: any plan, any number of ranks, the time that is predicted
answer 0 "$stator" train g.stator --device null --target h200 --ranks 64 --tokens-file text.tokens --steps 3 --log null.jsonl
for step in 1 2 3; do
    [ "$(field null.jsonl $step loss)" = 0 ] || fail "the null device gives $(sed -n "$step"p null.jsonl)"
    [ "$(field null.jsonl $step step_ms)" = "$(field null.jsonl 1 step_ms)" ] || fail "its time changes"
done
awk -v us="$(field null.jsonl 1 step_ms)" 'BEGIN { exit !(us > 0) }' || fail "a step takes no time"
