#!/bin/sh
# Memory limit against predicted extra time: Llama 8b, one sequence of 8192 a rank, one rank of two
# with split state (zero3), on H200s that are not there. One JSON line a limit; fails where a limit
# is not kept or a tighter one is faster.
#
#   limits.sh [GIB ...]      environment: STATOR
set -eu
stator=${STATOR:-build/release/stator}
limits=${*:-78 76 74 72 70 68}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
value() { sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" "$work/plan" | head -n 1; }

printf '%s' '{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":128256,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":500000.0,"initializer_range":0.02,"hidden_act":"silu","tie_word_embeddings":false}' > "$work/8b.json"
"$stator" model llama --config "$work/8b.json" --batch 2 --seq 8192 -o "$work/8b.stator"
for limit in 0 $limits; do
    "$stator" plan "$work/8b.stator" --target h200 --dtype bf16 --clip 1 --ranks 2 --shard zero3 \
        --memory-limit "${limit}GiB" --json > "$work/plan"
    echo "$limit $(value total_bytes) $(value recomputed_products) $(value predicted_step_us)"
done | awk '
    { gib = $2 / 1073741824; ms = $4 / 1000
      if (!$1) plain = ms
      printf "{\"limit_gib\": %s, \"gib\": %.2f, \"products_again\": %d, \"step_ms\": %.1f, \"extra\": %.4f}\n", $1 ? $1 : "null", gib, $3, ms, ms / plain - 1
      if ($1 && gib > $1) { print "limit of " $1 " GiB is not kept"; failed = 1 }
      if (ms < last) { print "a tighter limit is faster"; failed = 1 }
      last = ms }
    END { exit failed }'
