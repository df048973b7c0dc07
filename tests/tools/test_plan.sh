#!/bin/sh
# A plan on disk is the whole step: training from it gives the bytes that training from the graph
# gives.
. "$(dirname "$0")/common.sh"

"$stator" model resnet --depth 8 --classes 10 --channels 1 --image 28 --batch 6 -o g.stator
set -- --optimizer adamw --lr 1e-3 --clip 1.0 --ranks 2 --threads 1
answer 0 "$stator" compile g.stator "$@" -o step.plan
cat > batch.awk <<'EOF'
BEGIN { for (i = 0; i < n; i++) printf "%c", 1 + (i * 7919) % 127 }
EOF
# IDX files of twelve images and labels, made here
{ printf '\000\000\010\003\000\000\000\014\000\000\000\034\000\000\000\034'; awk -v n=9408 -f batch.awk; } > images
{ printf '\000\000\010\001\000\000\000\014'; printf '\000\001\002\003\004\005\006\007\010\011\000\001'; } > labels
data="--images images --labels labels --steps 4 --seed 3"
answer 0 "$stator" train g.stator "$@" $data --save from-graph --log graph.jsonl
answer 0 "$stator" train step.plan $data --save from-plan --log plan.jsonl
cmp from-graph/model.safetensors from-plan/model.safetensors || fail "the trained weights differ"
[ "$(wc -l < plan.jsonl)" = 4 ] || fail "the log has not four lines"
answer 0 "$stator" info step.plan
says out "2, 1 thread each"
# what is decided when compiling is refused, by whichever way it is given
refused() { # OPTION COMMAND...
    option=$1
    shift
    answer 2 "$@"
    says err "option '$option' was decided when the plan step.plan was compiled" "give the graph"
}
for given in "lr 0.5" "dtype bf16" "optimizer sgd" "accumulate 2" "ranks 2" "threads 1" "mesh data=2" "shard zero1" \
    "memory-limit 1GiB" "fusion off" "clip 1" "device null" "timeout 5" "fetch loss" "dump all" "schedule cosine"; do
    # shellcheck disable=SC2086
    refused "${given%% *}" "$stator" train step.plan $data --${given}
done
says err "give it to 'stator compile', or give the graph"
refused lr env STATOR_LR=0.5 "$stator" train step.plan $data
for command in run bench plan trace; do refused fusion "$stator" $command step.plan --fusion off -o unwritten; done
refused grad "$stator" run step.plan --grad
if grep -q "stator compile" err; then fail "compile takes no --grad: $(cat err)"; fi
refused explain "$stator" plan step.plan --explain
refused device "$stator" trace step.plan --device cpu -o unwritten
[ ! -e unwritten ] || fail "a refused command wrote its output"
answer 0 "$stator" trace step.plan --device null -o predicted.json
# ranks that are processes: their number is the plan's, and they may wait longer to meet
answer 0 "$stator" launch -n 2 -- "$stator" train step.plan $data --timeout 50 --ranks 2 --save from-processes
cmp from-graph/model.safetensors from-processes/model.safetensors || fail "processes train other weights"
answer 0 "$stator" bench step.plan --steps 2 --loss loss --seed 4
answer 2 "$stator" train step.plan $data --eval-images images --eval-labels labels
says err "has no evaluation"
