# Sequences in parts as processes: the losses of one rank, and the states that threads come to.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small

llama="--tokens-file text.tokens --dtype f64 --clip 1 --seed 3 --steps 4 --threads 1"
# shellcheck disable=SC2086 # words are meant
"$stator" train g.stator $llama --log one.jsonl > /dev/null
while read -r n form; do
    rm -rf threads processes processes.jsonl
    # shellcheck disable=SC2086
    {
        "$stator" train g.stator $llama $form --save threads > /dev/null
        "$stator" launch -n "$n" --timeout 30s -- \
            "$stator" train g.stator $llama $form --save processes --log processes.jsonl > out
    }
    says out "[0] step 4/4"
    # Sums of float64 in another order: some hundred roundings of 1.1e-16.
    same_steps processes.jsonl one.jsonl 1e-13 1 2 3 4
    cmp "$(echo processes/set-*-step-4)/model.safetensors" \
        "$(echo threads/set-*-step-4)/model.safetensors"
done << 'END'
2 --mesh context=2
2 --mesh context=2 --context-attention ring
3 --mesh context=3 --context-attention ring
4 --mesh data=2,context=2 --context-attention ring
END
