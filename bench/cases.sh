#!/bin/sh
# Where a search for placements is worth having: what people meet, each as a model, a mesh and
# links; `--shard auto` beside every uniform plan.
#
#   cases.sh planned             four cases on H200s that are not there, simulated (bench_sharding)
#   cases.sh compiled            8 H200s, Llama 8b x 8192: whole plans, zero3 as FSDP with a unit a
#                                layer
#   cases.sh measured [ROUNDS]   two of them small, on two processes of this machine, links slowed;
#                                predicted beside measured
#
# environment: STATOR, BENCH_SHARDING, TARGET (costs of this machine's kernels), STEPS. `measured`
# wants a quiet machine of two cores.
set -eu
here=$(dirname "$0")
stator=${STATOR:-build/release/stator}
sharding=${BENCH_SHARDING:-$(dirname "$stator")/bench/bench_sharding}
target=${TARGET:-$here/../targets/cpu.target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

llama() { # vocabulary width inner layers heads: a configuration
    printf '{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":%d,"hidden_size":%d,"intermediate_size":%d,"num_hidden_layers":%d,"num_attention_heads":%d,"num_key_value_heads":%d,"max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":500000.0,"initializer_range":0.02,"hidden_act":"silu","tie_word_embeddings":false}' \
        "$1" "$2" "$3" "$4" "$5" "$6"
}
# the plan's own, not those of what else there was
value() { sed -n -e 's/"alternatives":\[[^]]*\]//' -e "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" | head -n 1; }

planned() {
    for name in 'slow links between hosts' 'large vocabulary' 'experts' 'tight memory'; do
        "$sharding" "$name"
    done | awk -F'"' '{
        name = $4; plan = $10 != "" ? $10 : $8
        match($0, /"plan": "[a-z0-9]*"/); plan = substr($0, RSTART + 9, RLENGTH - 10)
        match($0, /"step_ms": [0-9.]*/); ms = substr($0, RSTART + 11, RLENGTH - 11)
        fits = $0 ~ /"fits": true/
        if (!(name in seen)) { seen[name] = 1; order[++n] = name }
        if (plan == "auto") chosen[name] = ms
        else if (fits && (!(name in best) || ms + 0 < best[name] + 0)) { best[name] = ms; by[name] = plan }
    }
    END {
        for (i = 1; i <= n; i++) { c = order[i]
            printf "{\"case\": \"%s\", \"best_uniform\": \"%s\", \"uniform_ms\": %s, \"auto_ms\": %s, \"less\": %.3f}\n",
                c, by[c], best[c], chosen[c], 1 - chosen[c] / best[c] }
    }'
}

compiled() {
    llama 128256 4096 14336 32 32 8 > "$work/8b.json"
    "$stator" model llama --config "$work/8b.json" --batch 8 --seq 8192 -o "$work/8b.stator"
    for form in dp zero1 zero3 tp auto; do
        "$stator" plan "$work/8b.stator" --target h200 --dtype bf16 --clip 1 --ranks 8 --shard $form --json > "$work/plan" 2> /dev/null ||
            { echo "{\"case\": \"llama 8b, 8 x 8192, 8 h200\", \"shard\": \"$form\", \"fits\": false}"; continue; }
        awk -v form=$form -v us="$(value predicted_step_us < "$work/plan")" -v e="$(value exposed_us < "$work/plan")" \
            -v b="$(value total_bytes < "$work/plan")" 'BEGIN {
            printf "{\"case\": \"llama 8b, 8 x 8192, 8 h200\", \"shard\": \"%s\", \"step_ms\": %.1f, \"exposed_ms\": %.1f, \"gib\": %.1f}\n", form, us / 1000, e / 1000, b / 1073741824 }'
    done
}

# name, configuration, batch, seq, MB/s
measure() {
    "$stator" model llama --config "$2" --batch "$3" --seq "$4" -o "$work/g.stator"
    sed -e '/^link_/d' -e '/^host_/d' -e 's/^target .*/target slow/' "$target" |
        awk -v mb="$5" '{ print } /^memory_gbps/ { printf "link_us 125\nlink_gbps %g\nlink_overlap 1\n", mb / 1000 }' > "$work/slow.target"
    : > "$work/rows"
    for round in $(seq "$rounds"); do
        for form in none dp zero1 zero3 tp auto; do
            shard="--shard $form"
            [ $form != none ] || shard="--ranks 1"
            options="--optimizer adamw --clip 1 --target $work/slow.target --threads 1 --steps ${STEPS:-12} $shard"
            if [ $form = none ]; then # each of two processes computes all of it, as ranks that share nothing do
                "$stator" bench "$work/g.stator" $options --json > "$work/other" & other=$!
                "$stator" bench "$work/g.stator" $options --json > "$work/run"
                wait $other
            else
                "$stator" launch -n 2 -- "$stator" bench "$work/g.stator" $options \
                    --comm-latency 250us --comm-bandwidth "${5}MB/s" --json | sed -n 's/^\[0\] //p' > "$work/run"
            fi
            echo "$form $(value step_ms < "$work/run") $(value predicted_step_us < "$work/run")" >> "$work/rows"
        done
    done
    sort -k1,1 -k2,2n "$work/rows" | awk -v name="$1" '
        { v[$1, ++n[$1]] = $2; p[$1] = $3 / 1000 }
        END {
            for (f in n) { m = v[f, int((n[f] + 1) / 2)]
                printf "{\"case\": \"%s\", \"shard\": \"%s\", \"measured_ms\": %.1f, \"predicted_ms\": %.1f}\n", name, f, m, p[f] }
        }'
}
measured() {
    llama 16000 192 512 4 4 4 > "$work/vocabulary.json"
    llama 2000 384 1536 3 6 6 > "$work/wide.json"
    measure "large vocabulary, 100 MB/s" "$work/vocabulary.json" 16 128 100
    measure "slow links, 120 MB/s" "$work/wide.json" 4 64 120
}

what=${1:-planned}
rounds=${2:-3}
case $what in
planned | compiled | measured) $what ;;
*) echo "usage: cases.sh planned|compiled|measured [ROUNDS]" >&2; exit 2 ;;
esac
