#!/bin/sh
# How much communication a step hides: a char-level Llama's step on two processes of one thread
# each, links as they are and slowed, in alternating rounds.
#
#   overlap.sh [ROUNDS [FORM ...]]     environment: STATOR, STEPS, TARGET (costs of kernels),
#                                      LATENCY_US, MB_S, OUT
#
# For each form of sharding one JSON line:
#   comm_ms           what the links take at that latency and bandwidth, one after the other, by the
#                     plan
#   compute_ms        the step with links as they are
#   step_ms           the step with slowed links
#   exposed_ms        the difference of these two
#   waits_ms          what rank 0's waits took in steps that were traced, less the same with links
#                     as they are
#   hidden            1 - exposed_ms / comm_ms;   hidden_by_waits   the same of waits_ms
#   planned_ms, planned_exposed_ms     by simulation
# and OUT/overlap-FORM.trace.json: the planned timeline beside the measured one (Perfetto opens it).
# Means are of medians. It wants a quiet machine: ranks that wait for each other look like
# communication.
set -eu
here=$(dirname "$0")
rounds=${1:-5}
[ $# -eq 0 ] || shift
forms=${*:-dp zero1 zero3}
stator=${STATOR:-build/release/stator}
target=${TARGET:-$here/../targets/cpu.target}
steps=${STEPS:-40}
latency_us=${LATENCY_US:-250}
mb_s=${MB_S:-100}
out=${OUT:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The target's links are the slowed ones, and work beside kernels. An all-reduce is two steps of a
# ring of two.
sed -e '/^link_/d' -e '/^host_/d' -e 's/^target .*/target slow/' "$target" > "$work/slow.target"
awk -v us="$latency_us" -v mb="$mb_s" 'BEGIN { printf "link_us %g\nlink_gbps %g\nlink_overlap 1\n", us / 2, mb / 1000 }' > "$work/links"
awk -v links="$work/links" '/^memory_gbps/ { print; while ((getline line < links) > 0) print line; next } { print }' \
    "$work/slow.target" > "$work/s" && mv "$work/s" "$work/slow.target"
"$stator" model llama --config "$here/../examples/llama/char.json" --batch 16 --seq 128 -o "$work/g.stator"

options="--optimizer adamw --clip 1 --target $work/slow.target --threads 1"
slow="--comm-latency ${latency_us}us --comm-bandwidth ${mb_s}MB/s"
value() { sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" | head -n 1; }
mean() { awk '{ s += $1 } END { printf "%.3f", s / NR }'; }
# milliseconds that the waits of a trace's figures took
waits() { tr '{' '\n' < "$1" | sed -n 's/.*"name":"[a-z_]*_wait".*"measured_us":\([0-9.e+]*\).*/\1/p' | awk '{ s += $1 } END { print s / 1000 }'; }

for form in $forms; do
    "$stator" plan "$work/g.stator" $options --ranks 2 --shard "$form" --json > "$work/plan"
    : > "$work/fast"; : > "$work/slowed"; : > "$work/wait_fast"; : > "$work/wait_slowed"
    for round in $(seq "$rounds"); do
        "$stator" launch -n 2 -- "$stator" bench "$work/g.stator" $options --shard "$form" --steps "$steps" --json |
            sed -n 's/^\[0\] //p' | value step_ms >> "$work/fast"
        "$stator" launch -n 2 -- "$stator" bench "$work/g.stator" $options --shard "$form" --steps "$steps" $slow --json |
            sed -n 's/^\[0\] //p' | value step_ms >> "$work/slowed"
        "$stator" launch -n 2 -- "$stator" trace "$work/g.stator" $options --shard "$form" --steps "$steps" \
            -o "$work/t.json" --json | sed -n 's/^\[0\] //p' > "$work/t"
        waits "$work/t" >> "$work/wait_fast"
        "$stator" launch -n 2 -- "$stator" trace "$work/g.stator" $options --shard "$form" --steps "$steps" $slow \
            -o "$out/overlap-$form.trace.json" --json | sed -n 's/^\[0\] //p' > "$work/t"
        waits "$work/t" >> "$work/wait_slowed"
    done
    awk -v form="$form" -v link="$(value link_us < "$work/plan")" -v planned="$(value predicted_step_us < "$work/plan")" \
        -v exposed="$(value exposed_us < "$work/plan")" -v n="$(value collectives < "$work/plan")" \
        -v fast="$(mean < "$work/fast")" -v slowed="$(mean < "$work/slowed")" \
        -v wf="$(mean < "$work/wait_fast")" -v ws="$(mean < "$work/wait_slowed")" 'BEGIN {
        comm = link / 1000; e = slowed - fast; w = ws - wf
        printf "{\"shard\": \"%s\", \"collectives\": %d, \"comm_ms\": %.2f, \"compute_ms\": %.2f, \"step_ms\": %.2f, \"exposed_ms\": %.2f, \"waits_ms\": %.2f, \"hidden\": %.3f, \"hidden_by_waits\": %.3f, \"planned_ms\": %.2f, \"planned_exposed_ms\": %.2f}\n",
            form, n, comm, fast, slowed, e, w, 1 - e / comm, 1 - w / comm, planned / 1000, exposed / 1000 }'
done
