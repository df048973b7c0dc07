#!/bin/sh
# stator plan: the same figures from a graph and from its plan, as tables and as one JSON object,
# and those that a session then has.
. "$(dirname "$0")/common.sh"
make_small

answer 0 "$stator" plan g.stator --target h200 --optimizer adamw --json
[ "$(wc -l < out)" = 1 ] || fail "the JSON is not one line"
says out '"target":"h200"' '"regions":{"state":' '"work":' '"comm":' '"total_bytes":' \
    '"live_bound_bytes":' '"packed_bytes":' '"kernels":' '"flop":' '"bytes_moved":' \
    '"predicted_step_us":' '"compile_us":' '"bytes_layout_copied":' '"bytes_recomputed":' \
    '"passes":[{"name":' '"name":"memory","us":' '"kernel_rows":[{"name":' '"model_utilization":'
if command -v python3 > /dev/null; then
    python3 - out << 'END' || fail "the JSON does not add up"
import json, sys
o = json.load(open(sys.argv[1]))
assert o["total_bytes"] == sum(o["regions"].values())
assert o["packed_bytes"] == o["regions"]["work"] >= o["live_bound_bytes"] > 0
for region, total in o["regions"].items():
    assert sum(r["bytes"] for r in o["memory"] if r["region"] == region) == total, region
assert abs(sum(k["us"] for k in o["kernel_rows"]) - o["predicted_step_us"]) < 1e-6 * o["predicted_step_us"]
assert sum(p["us"] for p in o["passes"]) == o["compile_us"] or abs(sum(p["us"] for p in o["passes"]) - o["compile_us"]) < 1
assert 0 < o["model_utilization"] <= o["hardware_utilization"] < 1
END
fi
figures() { sed 's/"compile_us":[^,]*,//; s/"passes":.*//' "$1"; }
answer 0 "$stator" plan g.stator --threads 1 --json -o step.plan
figures out > from-graph
answer 0 "$stator" plan step.plan --json
figures out > from-plan
cmp from-graph from-plan || fail "the plan's figures are not the graph's"
answer 0 "$stator" plan step.plan
says out "target cpu, 1 rank" "a step is predicted to take" "parameters" "moments" "activations" \
    "packed into" "largest at that step" "GFLOP/s" "utilization"
# of a batch of 4 one of three ranks has 2, the others 1
answer 0 "$stator" plan g.stator --ranks 3 --threads 1 --json
says out '"ranks":3,"rank":0,'
work() { sed 's/.*"work":\([0-9]*\),.*/\1/' out; }
one=$(work)
answer 0 "$stator" plan g.stator --ranks 3 --threads 1 --rank 1 --json
says out '"ranks":3,"rank":1,'
two=$(work)
answer 0 "$stator" plan g.stator --ranks 3 --threads 1 --rank 2 --json
[ "$one $two" != "$(work) $(work)" ] || fail "three ranks need the same memory: $one"
answer 0 "$stator" plan g.stator --ranks 3 --rank 1
says out "target cpu, 3 ranks; rank 1; a step is predicted"
answer 2 "$stator" plan g.stator --ranks 3 --rank 3
says err "--rank 3: the plan has ranks 0 to 2"
answer 0 "$stator" plan g.stator --mode eval --target a100
says out "target a100"
if grep -q moments out; then fail "an evaluation has moments"; fi
answer 2 "$stator" plan text.txt
answer 2 "$stator" plan nowhere.stator
says err nowhere.stator
answer 0 "$stator" plan g.stator --fusion on --explain
says out "fused into one kernel" "not fused"
awk '/^fused into one kernel/ { on = 1; next } /^not fused/ { on = 0 } on && $1 + 0 > 0 { n++; if ($1 >= $2) bad++ }
    END { exit n == 0 || bad > 0 }' out || fail "what is fused saves no time: $(cat out)"
answer 0 "$stator" plan g.stator --fusion on --explain --json
says out '"fused":[{"name":' '"boundaries":[{"from":' '"why":'

# kernels of last resort say why better ones do not run: attention in float32
answer 0 "$stator" plan g.stator --target h200
says out "last resort: cudnn.attention: not for f32"
# one that takes much of the step is told apart, wherever it stands in the table
cat > wide.json << 'END'
{"model_type": "llama", "vocab_size": 9, "hidden_size": 64, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 1024, "hidden_act": "silu"}
END
"$stator" model llama --config wide.json --batch 8 --seq 1024 -o wide.stator
answer 0 "$stator" plan wide.stator --target h200
says err "a kernel of last resort, takes" "% of the predicted step" "better ones do not run it: cudnn.attention: not for f32"
answer 0 "$stator" plan wide.stator --target h200 --dtype bf16
[ ! -s err ] || fail "no kernel of last resort, and yet: $(cat err)"
answer 0 "$stator" plan g.stator --target h200 --dtype bf16
if grep "last resort" out > err; then fail "a kernel of last resort in bf16: $(cat err)"; fi
answer 0 "$stator" plan g.stator
if grep -q "last resort" out; then fail "a kernel of last resort on a CPU"; fi
