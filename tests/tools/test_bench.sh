#!/bin/sh
# stator bench: one object of figures; memory is used as planned; the null device takes what is
# predicted.
. "$(dirname "$0")/common.sh"
make_small

answer 0 "$stator" bench g.stator --device cpu --optimizer adamw --threads 1 --steps 5 --json
[ "$(wc -l < out)" = 1 ] || fail "the JSON is not one line"
for key in step_ms rate first_step_s planned_bytes used_bytes host_ms predicted_step_us cpu_ms; do
    value=$(field out 1 $key)
    awk -v v="$value" 'BEGIN { exit !(v ~ /^[0-9]/ && v > 0) }' || fail "$key is '$value'"
done
for key in compile_s open_s memory_s prepare_s init_s; do
    value=$(field out 1 $key)
    awk -v v="$value" 'BEGIN { exit !(v ~ /^[0-9]/ && v > 0 && v < 60) }' || fail "$key is '$value'"
done
for key in libraries_s nests_s plans_s tuned capture_s; do # of GPUs
    [ "$(field out 1 $key)" = 0 ] || fail "$key is '$(field out 1 $key)' on a CPU"
done
[ "$(field out 1 planned_bytes)" = "$(field out 1 used_bytes)" ] || fail "memory is not as planned: $(cat out)"
says out '"rate_unit":"tokens/s"' '"steps":5'
# inputs: to the places of the step each time, or once where there is room for them
says out '"input_copies":1,"copies_ahead":false'
answer 0 "$stator" bench g.stator --threads 1 --feed-ahead on --steps 3 --json
says out '"input_copies":0,"copies_ahead":true'
answer 0 "$stator" bench g.stator --mesh pipe=2 --microbatches 2 --feed-ahead on --steps 3 --json
answer 0 "$stator" bench g.stator --threads 1 --feed-ahead on --copy-inputs --steps 3 --json
says out '"input_copies":1,"copies_ahead":true'
answer 0 "$stator" plan g.stator --target h200 --json
says out '"feeds":512}'
answer 0 "$stator" bench g.stator --device cpu --optimizer adamw --threads 1 --steps 5 --json
# tokens of a step: 4 windows of 8, from each micro-batch, whatever the ranks; by a plan on disk too
items_are() { close "$(awk -v r="$(field out 1 rate)" -v ms="$(field out 1 step_ms)" 'BEGIN { printf "%.9g", r * ms / 1000 }')" "$1" 1e-6; }
items_are 32
answer 0 "$stator" bench g.stator --accumulate 3 --ranks 2 --threads 1 --steps 3 --json
says out '"rate_unit":"tokens/s"'
items_are 96
answer 0 "$stator" compile g.stator --accumulate 2 --threads 1 -o two.plan
answer 0 "$stator" bench two.plan --steps 3 --json
says out '"rate_unit":"tokens/s"'
items_are 64
answer 0 "$stator" bench g.stator --mode eval --threads 1 --steps 3
says out "step " "predicted" "tokens/s" "memory planned"
answer 0 "$stator" bench g.stator --device null --target h200 --ranks 8 --steps 3 --json
close "$(field out 1 step_ms)" "$(awk -v us="$(field out 1 predicted_step_us)" 'BEGIN { printf "%.12g", us / 1000 }')" 1e-6
answer 1 "$stator" bench g.stator --lr 1e30 --threads 1 --steps 3 --json # numbers that are no training's
says err "the loss is not finite after 7 steps"
[ ! -s out ] || fail "figures of a loss that is not finite: $(cat out)"
answer 2 "$stator" bench
says err "--calibrate"
answer 2 "$stator" bench g.stator --calibrate
says err "--calibrate"
answer 2 "$stator" bench --calibrate --device null --target h200
says err "one of device 'null' is needed"
# measuring takes half a minute: what it cannot write, or would not heed, is refused before
answer 1 timeout 10 "$stator" bench --calibrate -o nowhere/mine.target
says err "cannot write 'nowhere/mine.target': No such file or directory"
mkdir folder
answer 1 timeout 10 "$stator" bench --calibrate -o folder
says err "cannot write 'folder': Is a directory"
for row in "ranks 0" "threads 99999999999999" "target h200" "steps 3"; do
    answer 2 timeout 10 "$stator" bench --calibrate --${row% *} ${row#* }
    says err "option '${row% *}' is '${row#* }': --calibrate of a CPU takes none"
done
answer 2 "$stator" bench --calibrate --device null --target h200 --ranks 2
says err "option 'ranks' is '2': --calibrate takes none"
# a file that is there stays until there is another, and nothing lies beside it
echo before > mine.target
answer 2 "$stator" bench --calibrate --device null --target h200 -o mine.target
says err "one of device 'null' is needed"
[ "$(cat mine.target)" = before ] || fail "a calibration that fails leaves $(cat mine.target)"
[ "$(echo mine.target*)" = mine.target ] || fail "a calibration that fails leaves $(echo mine.target*)"
answer 2 "$stator" bench g.stator --target h200
says err "device 'cuda'"
