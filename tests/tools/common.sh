# Read by the tests of the command: what they share. The working folder is the test's own; it is
# emptied.
set -eu
stator=$STATOR_COMMAND
shared=${STATOR_SHARED:-$STATOR_SHARED_DIR}
source_dir=$STATOR_SOURCE_DIR
# The tests' own variables are no options, of which the command would warn: this shell's alone.
unset STATOR_COMMAND STATOR_SHARED STATOR_SHARED_DIR STATOR_SOURCE_DIR
STATOR_SOURCE_DIR=$source_dir
rm -rf ./*

fail() {
    echo "FAILED: $*"
    exit 1
}
skip() {
    echo "skipped: $*"
    exit 77
}
need_shared() {
    [ -r "$shared/cases/README.md" ] || skip "$shared/cases is absent"
}
# answer STATUS COMMAND...: runs it and checks its status; standard output and error go to `out` and
# `err`.
answer() {
    wanted=$1
    shift
    given=0
    "$@" > out 2> err || given=$?
    [ "$given" = "$wanted" ] || fail "'$*' ended with $given instead of $wanted: $(cat err)"
}
# says FILE WORD...: the file has a line with each.
says() {
    file=$1
    shift
    for word in "$@"; do
        grep -qF -e "$word" "$file" || fail "'$word' is not in $file: $(head -20 "$file")"
    done
}
# Names of the tensors in a safetensors file.
names() {
    "$stator" info "$1" | awk 'NF == 2 && $2 ~ /\[.*\]$/ { print $1 }' | sort
}
same_names() { # list, list, what
    diff "$1" "$2" > difference || fail "$3: names differ: $(head -20 difference)"
}
# close A B LIMIT: relative difference of two numbers.
close() {
    awk -v a="$1" -v b="$2" -v limit="$3" 'BEGIN {
        if (a !~ /^-?[0-9]/ || b !~ /^-?[0-9]/) exit 1
        d = a - b; if (d < 0) d = -d; s = b < 0 ? -b : b
        exit !(d <= limit * s) }' || fail "$1 and $2 differ by more than $3"
}
# field FILE LINE KEY: a number in a file of JSON objects, one a line.
field() {
    sed -n "$2p" "$1" | sed -n "s/^.*\"$3\":\([-+0-9.eE]*\).*\$/\1/p"
}
# same_steps FILE FILE LIMIT STEP...: losses and gradient norms of two logs are as close as that.
same_steps() {
    one_log=$1 other_log=$2 most=$3
    shift 3
    for step in "$@"; do
        for key in loss grad_norm; do
            close "$(field "$one_log" "$step" $key)" "$(field "$other_log" "$step" $key)" "$most"
        done
    done
}
# A Llama of nine symbols and a text of nine characters: g.stator, text.tokens, text.tokens.held,
# vocab.json.
make_small() {
    cat > config.json << 'END'
{"model_type": "llama", "vocab_size": 9, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
 "hidden_act": "silu", "tie_word_embeddings": false}
END
    awk 'BEGIN { for (i = 0; i < 400; i++) printf "abc defg%s", i % 3 ? "ab" : "\n" }' > text.txt
    "$stator" import text.txt --chars --vocab vocab.json --hold-out 0.1 -o text.tokens > /dev/null
    "$stator" model llama --config config.json --batch 4 --seq 8 -o g.stator
}
# Whether a process runs; one that has ended and that nobody has asked about does not.
alive() {
    kill -0 "$1" 2> /dev/null && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2> /dev/null
}
