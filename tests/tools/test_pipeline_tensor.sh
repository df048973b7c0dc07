# Pipelines of ranks that share out products, with micro-batches of one item: what a rank gathers
# for another stage's pass back is sent within its own pass. The losses are those of one rank.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small
cat > config.json << 'END'
{"model_type": "llama", "vocab_size": 9, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu", "tie_word_embeddings": false}
END
"$stator" model llama --config config.json --batch 1 --seq 16 -o g.stator

while read -r micro mesh; do
    llama="--tokens-file text.tokens --dtype f64 --clip 1 --seed 3 --steps 3 --threads 1 --microbatches $micro"
    # shellcheck disable=SC2086 # words are meant
    {
        "$stator" train g.stator $llama --log one.jsonl > /dev/null
        answer 0 "$stator" train g.stator $llama --mesh $mesh --log many.jsonl
    }
    # Sums of float64 in another order: some hundred roundings of 1.1e-16.
    same_steps many.jsonl one.jsonl 1e-13 1 2 3
done << 'END'
3 pipe=2,tensor=2
4 tensor=2,pipe=2 --pipeline zb
2 pipe=2,tensor=2 --stages-per-rank 2
3 pipe=2,tensor=2 --bucket-size 1 --fusion off
3 pipe=2,data=2,tensor=2
END
