#!/bin/sh
# How long compiling a training step takes, on one thread: Llama 1b and 8b, ResNet-50, and Llamas so deep
# that the step has 50,000 and 100,000 kernels or so. Prints one JSON line a model, and the growth of time with size.
#
#   compile.sh [ROUNDS]      environment: STATOR
set -eu
rounds=${1:-3}
stator=${STATOR:-build/release/stator}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

llama() { # name hidden ffn layers tied batch seq
    cat > "$work/config.json" <<EOF
{"model_type":"llama","hidden_act":"silu","vocab_size":128256,"hidden_size":$2,"intermediate_size":$3,
 "num_hidden_layers":$4,"num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":131072,
 "rms_norm_eps":1e-5,"rope_theta":500000,"tie_word_embeddings":$5}
EOF
    "$stator" model llama --config "$work/config.json" --batch "$6" --seq "$7" -o "$work/$1.stator"
}

llama llama-1b 2048 8192 16 true 4 4096
llama llama-8b 4096 14336 32 false 1 8192
llama llama-deep 2048 8192 800 true 1 128
llama llama-twice-as-deep 2048 8192 1600 true 1 128
"$stator" model resnet --batch 256 -o "$work/resnet-50.stator"

"$stator" --version
for model in llama-1b llama-8b resnet-50 llama-deep llama-twice-as-deep; do
    for round in $(seq "$rounds"); do
        "$stator" compile "$work/$model.stator" --threads 1 --json
    done | sed -n 's/.*"kernels":\([0-9]*\).*"packing_gap_percent":\([0-9.]*\).*"compile_us":\([0-9]*\).*/\3 \1 \2/p' |
        sort -n | awk -v m="$model" '{ t[NR] = $1; k = $2; g = $3 }
            END { printf "{\"model\": \"%s\", \"kernels\": %d, \"packing_gap_percent\": %s, \"compile_s_median\": %.3f, \"compile_s_min\": %.3f}\n", m, k, g, t[int((NR + 1) / 2)] / 1e6, t[1] / 1e6 }'
done | tee "$work/runs"

value() { sed -n "s/.*\"$1\".*\"compile_s_min\": \([0-9.]*\).*/\1/p" "$work/runs"; }
echo "$(value llama-deep) $(value llama-twice-as-deep)" |
    awk '{ printf "{\"summary\": true, \"twice_the_layers_take\": %.2f}\n", $2 / $1 }'
