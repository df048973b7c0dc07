# stories260K tells its story word for word, as its reference programs do.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
need_shared
cat > wanted << 'END'
Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball. She wanted to play with it, but it was too high.
Lily's mom said, "Lily, let's go to the park." Lily was sad and didn't know w
END
"$stator" generate --config "$shared/data/stories260K.config.json" \
    --weights "$shared/data/stories260K.safetensors" --tokenizer "$shared/data/tok512.model" \
    --greedy --tokens 100 > given
diff given wanted

# The same seed gives the same sample; the prompt stands at its beginning.
for turn in 1 2; do
    "$stator" generate --config "$shared/data/stories260K.config.json" \
        --weights "$shared/data/stories260K.safetensors" --tokenizer "$shared/data/tok512.model" \
        --prompt 'A cat' --tokens 20 --temperature 1.2 --top-k 40 --seed 7 > "sample$turn"
done
cmp sample1 sample2
grep -q '^A cat' sample1 || fail "the sample does not begin with its prompt: $(cat sample1)"
