#!/bin/sh
# How long compiling a training step takes, on one thread: Llama 1b and 8b, ResNet-50, Llamas so
# deep that the step has 50,000 and 100,000 kernels or so, and chains of 24,000, 48,000 and 96,000
# nodes. Prints one JSON line a model and the growth of time with size. Wall time is the compiler's
# own; processor time is of the whole command, reading the graph included: on a busy machine it is
# the one to compare.
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

chain() { # name nodes: every third a product, the others functions of one tensor
    awk -v n="$2" 'BEGIN {
        print "graph \"chain\" {\n  %x x = input {dtype=f32, shape=[64,64]}\n  %w w = parameter {dtype=f32, shape=[64,64]}"
        at = "x"
        for (i = 0; i < n; i++) {
            print "  %n" i " = " (i % 3 == 0 ? "matmul(%" at ", %w)" : (i % 3 == 1 ? "tanh" : "sigmoid") "(%" at ")")
            at = "n" i
        }
        print "  %loss = reduce_mean(%" at ") {axes=[0,1]}\n  output \"loss\" = %loss\n}" }' > "$work/$1.stator"
}

llama llama-1b 2048 8192 16 true 4 4096
llama llama-8b 4096 14336 32 false 1 8192
llama llama-deep 2048 8192 800 true 1 128
llama llama-twice-as-deep 2048 8192 1600 true 1 128
"$stator" model resnet --batch 256 -o "$work/resnet-50.stator"
for k in 24 48 96; do chain "chain-${k}k" "${k}000"; done

"$stator" --version
for model in llama-1b llama-8b resnet-50 llama-deep llama-twice-as-deep chain-24k chain-48k chain-96k; do
    for round in $(seq "$rounds"); do
        ("$stator" compile "$work/$model.stator" --threads 1 --json; times) | tr '\n' ' ' |
            sed -n 's/.*"kernels":\([0-9]*\).*"packing_gap_percent":\([0-9.]*\).*"compile_us":\([0-9]*\).* \([0-9]*\)m\([0-9.]*\)s \([0-9]*\)m\([0-9.]*\)s *$/\3 \1 \2 \4 \5 \6 \7/p'
        echo
    done | awk 'NF { print $1, $2, $3, 60 * ($4 + $6) + $5 + $7 }' |
        sort -n | awk -v m="$model" '{ t[NR] = $1; k = $2; g = $3; if (!least || $4 < least) least = $4 }
            END { printf "{\"model\": \"%s\", \"kernels\": %d, \"packing_gap_percent\": %s, \"compile_s_median\": %.3f, \"compile_s_min\": %.3f, \"processor_s_min\": %.2f}\n", m, k, g, t[int((NR + 1) / 2)] / 1e6, t[1] / 1e6, least }'
done | tee "$work/runs"

value() { sed -n "s/.*\"$1\".*\"processor_s_min\": \([0-9.]*\).*/\1/p" "$work/runs"; }
echo "$(value llama-deep) $(value llama-twice-as-deep) $(value chain-24k) $(value chain-48k) $(value chain-96k)" |
    awk '{ printf "{\"summary\": true, \"twice_the_layers_take\": %.2f, \"twice_the_chain_takes\": [%.2f, %.2f]}\n", $2 / $1, $4 / $3, $5 / $4 }'
