#!/bin/sh
# stator trace: a timeline as a file, planned beside measured, and a table of where they part.
. "$(dirname "$0")/common.sh"
make_small

answer 0 "$stator" trace g.stator --optimizer adamw --threads 1 --ranks 2 --steps 2 -o t.json
says out "rank 0: a step took" "mean of 2" "predicted" "GFLOP/s" "kernel" "predicted worst" \
    "t.json: 2 ranks" "perfetto"
says t.json '"traceEvents":' '"planned: compute"' '"planned: link"' '"measured: compute"' \
    '"name":"step 1"' '"predicted_us"' '"roofline_us"' '"phase":"backward"' '"measured_by":"host"'
if grep -q '"name":"step 2"' t.json; then fail "more steps than asked for"; fi

answer 0 "$stator" trace g.stator --threads 1 --rank 0 --steps 2 --json -o t.json
[ "$(wc -l < out)" = 1 ] || fail "the JSON is not one line"
for key in measured_step_us measured_kernels_us predicted_step_us peak_gbps peak_gflops; do
    value=$(field out 1 $key)
    awk -v v="$value" 'BEGIN { exit !(v ~ /^[0-9]/ && v > 0) }' || fail "$key is '$value'"
done
says out '"measured_by":"host"' '"measured_steps":2' '"kernels":[{"name":' '"nodes":[{"name":'

# without a device: the plan alone, of one rank or of one for each program
answer 0 "$stator" trace g.stator --target h200 --device null --ranks 8 -o null.json
says out "predicted" "waiting for collectives" "us (plan)"
says null.json '"measured_by":"none"' '"planned: link"'
if grep -q "measured: compute" null.json; then fail "a device that computes nothing has measured"; fi
predicted=$("$stator" plan g.stator --target h200 --device null --ranks 8 --json > p && field p 1 predicted_step_us)
answer 0 "$stator" trace g.stator --target h200 --device null --ranks 8 --json -o null.json
close "$(field out 1 predicted_step_us)" "$predicted" 1e-9

# ranks that are processes: a file each, of the own rank
answer 0 "$stator" launch -n 2 -- "$stator" trace g.stator --threads 1 --steps 2 -o own.json
says out "rank 0: a step took" "own.json: 1 rank"
says own.json '"name":"rank 0"' '"name":"step 1"' '"ranks":2'
says own.rank1.json '"name":"rank 1"' '"name":"step 1"' '"measured_by":"host"' '"cat":"collective"'
if grep -q '"name":"rank 0"' own.rank1.json; then fail "rank 1 tells of rank 0"; fi

# what is wrong is said, and no file is left
answer 2 "$stator" trace g.stator
says err "needs --output"
answer 2 "$stator" trace g.stator --ranks 2 --rank 2 -o none.json
says err "there is no rank 2"
answer 2 "$stator" trace g.stator -o nowhere/none.json
says err "nowhere/none.json"
answer 2 "$stator" trace g.stator --calibrate -o none.json
says err "'--calibrate' is not an option of 'trace'"
[ ! -e none.json ] || fail "a trace that failed left a file"
