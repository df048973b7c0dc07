#!/bin/sh
# The char-level Llama's step: Stator against PyTorch eager on the same machine, in alternating
# runs, two threads each. Prints one JSON line a run and a summary with medians and the ratio.
#
#   char_llama.sh PYTHON [ROUNDS]      PYTHON: an interpreter with a current torch; environment:
#                                      STATOR
set -eu
here=$(dirname "$0")
python=$1
rounds=${2:-5}
stator=${STATOR:-build/release/stator}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# a text of 63 symbols is all that the step's time needs
awk 'BEGIN { srand(1); for (i = 0; i < 4000; i++) { s = ""; for (j = 0; j < 99; j++) s = s sprintf("%c", 33 + int(rand() * 62)); print s } }' > "$work/text"
"$stator" import "$work/text" --chars -o "$work/tokens" > /dev/null
"$stator" model llama --config "$here/../examples/llama/char.json" --batch 16 --seq 128 -o "$work/g.stator"

one_stator() { # ranks threads
    "$stator" train "$work/g.stator" --ranks "$1" --threads "$2" --tokens-file "$work/tokens" \
        --optimizer adamw --lr 2e-3 --steps 40 --log "$work/log" > /dev/null
    sed -n '6,$s/.*"step_ms":\([0-9.]*\).*/\1/p' "$work/log" | sort -n |
        awk -v r="$1" -v t="$2" '{ v[NR] = $1 } END { printf "{\"stack\": \"stator\", \"ranks\": %d, \"threads\": %d, \"step_ms_median\": %.2f, \"step_ms_min\": %.2f}\n", r, t, v[int((NR + 1) / 2)], v[1] }'
}

"$stator" --version
for round in $(seq "$rounds"); do
    "$python" "$here/char_llama_torch.py" --threads 2 --steps 40
    one_stator 1 2
    one_stator 2 1
done | tee "$work/runs"

median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
value() { grep "$1" "$work/runs" | sed 's/.*"step_ms_median": \([0-9.]*\).*/\1/' | median; }
torch=$(value pytorch)
for layout in '"ranks": 1' '"ranks": 2'; do
    ours=$(value "$layout")
    echo "$torch $ours" | awk -v l="$layout" '{ printf "{\"summary\": true, %s, \"pytorch_ms\": %s, \"stator_ms\": %s, \"speedup\": %.3f}\n", l, $1, $2, $1 / $2 }'
done
