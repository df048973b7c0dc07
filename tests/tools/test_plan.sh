#!/bin/sh
# A plan on disk is the whole step: training from it gives the bytes that training from the graph gives.
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
answer 2 "$stator" train step.plan $data --eval-images images --eval-labels labels
says err "has no evaluation"
