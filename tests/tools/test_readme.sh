# What the README shows: its ```sh blocks run as they stand (but for one warm-up that is longer than
# the small data lasts), on small files under the names that they use; its C program is the example,
# which is compiled and run; the targets of make that it names exist.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
readme=$STATOR_SOURCE_DIR/README.md

mkdir bin
ln -s "$stator" bin/stator
PATH=$PWD/bin:$PATH
export PATH

# blocks LANGUAGE: the blocks of a language into files LANGUAGE.1, LANGUAGE.2, …
blocks() {
    awk -v language="$1" '
        $0 == "```" language { n++; inside = 1; file = language "." n; printf "" > file; next }
        /^```/ { inside = 0 }
        inside { print > file }' "$readme"
}
blocks sh
blocks c
blocks console
[ -e sh.6 ] && [ -e c.1 ] && [ -e console.2 ] || fail "the README's blocks are not found"

# ---- the C program ----
diff c.1 "$STATOR_SOURCE_DIR/examples/c/train.c" || fail "the README's program is not examples/c/train.c"

# ---- make ----
for target in $(sed -n 's/^make \(.*\)$/\1/p' console.*) install; do
    make -n -C "$STATOR_SOURCE_DIR" "$target" > /dev/null 2>&1 || fail "make has no target '$target'"
done

# ---- small files ----
awk 'BEGIN { for (i = 0; i < 1500; i++) printf "And the %d%s", i * 7 % 10, i % 5 ? " " : "\n" }' > book.txt
symbols=$("$stator" import book.txt --chars -o book.tokens | sed -n 's/^vocabulary: //p')
cat > config.json << END
{"model_type": "llama", "vocab_size": $symbols, "hidden_size": 8, "intermediate_size": 12,
 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 512, "hidden_act": "silu"}
END
# n images of 28 x 28 and as many labels
idx() { # name, count as two octal bytes, images
    { printf "\\000\\000\\010\\003\\000\\000$2\\000\\000\\000\\034\\000\\000\\000\\034"
      head -c $(($3 * 784)) book.images; } | gzip -c > "$1-images.gz"
    { printf "\\000\\000\\010\\001\\000\\000$2"
      awk -v n="$3" 'BEGIN { for (i = 0; i < n; i++) printf "%d", i % 10 }' | tr 0-9 '\000-\011'; } |
        gzip -c > "$1-labels.gz"
}
i=0
while [ $i -lt 20 ]; do cat book.txt; i=$((i + 1)); done > book.images
idx train '\001\000' 256
idx test '\000\120' 80

if [ -r "$shared/cases/README.md" ]; then
    cp "$shared/cases/resnet_tiny/model.pt2" "$shared/cases/resnet_tiny/batches.safetensors" .
    cp "$shared/cases/llama_tiny/model.dynamo.onnx" model.onnx
    cp "$shared/data/tok512.model" tokenizer.model
else
    echo "blocks that need a PyTorch or ONNX model are skipped: $shared is absent"
fi

# ---- the commands ----
n=0
for block in $(ls sh.* | sort -t. -k2n); do
    grep -q '^stator ' "$block" || fail "$block has no command"
    for file in model.pt2 model.onnx g.stator tokenizer.model; do
        if grep -q " $file" "$block" && [ ! -e "$file" ] && ! grep -q -e "-o $file" "$block"; then continue 2; fi
    done
    sed 's/--warmup 140/--warmup 1/' "$block" > short
    sh -eu short > "$block.out" 2> "$block.err" ||
        fail "$block ended with $?: $(cat "$block") $(tail -3 "$block.err")"
    n=$((n + 1))
done
# without the models the blocks on texts, images and resuming are left
least=3
[ -e model.pt2 ] && least=$(ls | grep -c '^sh\.[0-9]*$')
[ "$n" -ge "$least" ] || fail "only $n blocks ran"
[ -s llama.jsonl ] && [ -s llama/model.safetensors ] && [ -s resnet.jsonl ] || fail "a result is missing"
grep -q '"step":340' llama.jsonl || fail "the resumed run did not reach its last step"
echo "$n blocks ran"

# ---- the C program runs ----
build=${stator%/*}
if [ -e "$build/libstator.so" ] && command -v cc > /dev/null && [ -e g.stator ] &&
    ! nm -D "$build/libstator.so" | grep -qE '__(asan|ubsan|tsan)_'; then
    cc -std=c11 -Wall -Wextra -Werror -I "$STATOR_SOURCE_DIR/include" -x c c.1 -o train -x none \
        -L "$build" -lstator -Wl,-rpath,"$build"
    ./train g.stator g.safetensors batches.safetensors 3 trained.safetensors > trained
    says trained "step 3 loss"
    names trained.safetensors > given
    names g.safetensors > wanted
    same_names given wanted "the C program's weights"
else
    echo "the C program is not run: it needs a compiler, an unsanitized libstator.so and a model"
fi
