# Collectives within the stages of a pipeline run behind its turns: most of their time is not waited
# for. That the messages between stages still meet is proved by whoever compiles.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
cat > config.json << 'END'
{"model_type": "llama", "vocab_size": 2048, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4,
 "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_act": "silu"}
END
"$stator" model llama --config config.json --batch 8 --seq 256 -o g.stator
for form in dp zero2 zero3; do
    answer 0 "$stator" plan g.stator --target h200 --mesh pipe=2,data=4 --microbatches 6 --shard $form --threads 1 \
        --dtype bf16 --json
    awk -v link="$(field out 1 link_us)" -v all="$(field out 1 exposed_us)" -v peers="$(field out 1 peers_us)" '
        BEGIN { exit !(link > 100 && all - peers < 0.5 * link) }' ||
        fail "$form: of $(field out 1 link_us) us of collectives $(field out 1 exposed_us) are waited for," \
            "$(field out 1 peers_us) of them for other ranks"
done
