# Texts into token shards: by characters, by a sentencepiece model; what is held out.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"

printf 'the cat\nthe dog\nthe end\n' > text.txt
answer 0 "$stator" import text.txt --chars --vocab vocab.json --hold-out 0.2 -o text.tokens
# 24 bytes; the last fifth begins in the last line's middle, the cut moves to the next line start
says out "text.tokens: 24 tokens" "vocabulary: 11"
answer 0 "$stator" import text.txt --chars --hold-out 0.4 -o text.tokens
says out "text.tokens: 16 tokens" "text.tokens.held: 8 tokens"
says vocab.json stator-vocabulary

# another text with the same vocabulary; a byte outside it is an error that says where
printf 'a god\n' > other.txt
answer 0 "$stator" import other.txt --tokenizer vocab.json -o other.tokens
says out "other.tokens: 6 tokens" "vocabulary: 11"
printf 'a fox\n' > other.txt
answer 2 "$stator" import other.txt --tokenizer vocab.json -o other.tokens
[ "$(wc -l < err)" = 1 ] || fail "not one line: $(cat err)"

# a text may come through a pipe; a device or a folder is refused, an empty text too
printf 'the end\n' | "$stator" import /dev/stdin --tokenizer vocab.json -o piped.tokens > out
says out "piped.tokens: 8 tokens"
for wrong in /dev/zero .; do
    answer 1 "$stator" import $wrong --chars -o wrong.tokens
    says err "$wrong: neither a file nor a pipe"
done
: > empty.txt
answer 2 "$stator" import empty.txt --chars -o wrong.tokens
says err "empty.txt: the file is empty"

# several shards are one data set
cat > config.json << 'END'
{"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 8,
 "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "hidden_act": "silu"}
END
"$stator" model llama --config config.json --batch 1 --seq 3 -o g.stator
"$stator" train g.stator --tokens-file text.tokens,text.tokens.held --log run.jsonl > /dev/null
# (16 - 1) / 3 = 5 windows and (8 - 1) / 3 = 2
[ "$(wc -l < run.jsonl)" = 7 ] || fail "an epoch of both shards has $(wc -l < run.jsonl) steps, not 7"

# sentencepiece, where its trainer is installed
if command -v spm_train > /dev/null; then
    awk 'BEGIN { for (i = 0; i < 300; i++) print "the cat sat on mat number", i, "and the dog", i * 7 % 31 }' > long.txt
    spm_train --input=long.txt --model_prefix=spm --vocab_size=60 --model_type=bpe > spm.log 2>&1 ||
        fail "spm_train: $(tail -3 spm.log)"
    answer 0 "$stator" import long.txt --tokenizer spm.model -o long.tokens
    # the whole text is one piece of text for us, a line a sentence for spm_encode: newlines are
    # tokens here
    says out "vocabulary: 60"
    head -1 long.txt | tr -d '\n' > line.txt
    answer 0 "$stator" import line.txt --tokenizer spm.model -o line.tokens
    wanted=$(spm_encode --model=spm.model --output_format=id < line.txt | wc -w)
    says out "line.tokens: $wanted tokens"
    # the ids themselves: 16-bit, after 64 bytes of head
    spm_encode --model=spm.model --output_format=id < line.txt | tr ' ' '\n' > ids.wanted
    tail -c +65 line.tokens | od -An -v -tu2 -w2 | tr -d ' ' > ids.given
    cmp ids.wanted ids.given
else
    echo "sentencepiece is not tested: there is no command 'spm_train'"
fi
