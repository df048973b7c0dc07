#!/bin/sh
# Steps of the char-level Llama and of ResNet-8 with fusion, without it, and in single operations,
# in alternating runs: median and least time of a step, kernels a step, and the ratios of the
# medians.
#
#   fusion.sh [ROUNDS [THREADS]]      environment: STATOR, STEPS
set -eu
here=$(cd "$(dirname "$0")" && pwd)
stator=$(realpath "${STATOR:-build/release/stator}")
rounds=${1:-3} threads=${2:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$stator" model llama --config "$here/../examples/llama/char.json" --batch 16 --seq 128 -o char_llama.stator
"$stator" model resnet --depth 8 --batch 64 --image 28 --channels 1 --classes 10 -o resnet8.stator
"$stator" --version
for graph in char_llama resnet8; do
    for fusion in on off primitives; do
        "$stator" plan $graph.stator --fusion $fusion --optimizer adamw --clip 1 --json |
            sed "s/.*\"kernels\":\([0-9]*\).*/$graph $fusion kernels \1/"
    done
    for round in $(seq "$rounds"); do
        for fusion in on off primitives; do
            "$stator" bench $graph.stator --fusion $fusion --optimizer adamw --clip 1 --threads "$threads" \
                --steps "${STEPS:-20}" --json |
                sed "s/.*\"step_ms\":\([0-9.]*\).*\"step_ms_min\":\([0-9.]*\).*/$graph $fusion \1 \2/"
        done
    done
done | tee rows
grep -v kernels rows | sort -k1,2 -k3n | awk '
    { key = $1 " " $2; v[key, ++n[key]] = $3 }
    END {
        for (key in n) { split(key, part, " "); m[part[1], part[2]] = v[key, int((n[key] + 1) / 2)]; graphs[part[1]] = 1 }
        for (g in graphs)
            printf "%s: fused %.2f ms, %.2f x faster than single operations, %.2f x than composite kernels\n", g, m[g, "on"], m[g, "primitives"] / m[g, "on"], m[g, "off"] / m[g, "on"]
    }'
