# A disk that is full, a folder that cannot be written: an error of one line that names the file,
# and what was there before is still there.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small

one_line() { # file's name: the last answer's message
    [ "$(wc -l < err)" = 1 ] || fail "not one line: $(cat err)"
    says err "stator: " "$1"
}

# Writing below a file, over a folder, into a folder that is not there.
mkdir folder
answer 2 "$stator" compile g.stator -o nowhere/g.plan
one_line nowhere/g.plan
for output in text.txt/g.plan folder; do
    given=0
    "$stator" compile g.stator -o "$output" > out 2> err || given=$?
    [ "$given" = 1 ] || [ "$given" = 2 ] || fail "-o $output ended with $given"
    one_line "$output"
done
[ -z "$(ls folder)" ] || fail "something is left in the folder: $(ls folder)"

# A full disk, made of memory where the test may mount one.
mkdir disk
if mount -t tmpfs -o size=256k none disk 2> /dev/null; then
    trap 'umount disk' EXIT
    cp g.stator disk/g.stator
    "$stator" train g.stator --tokens-file text.tokens --steps 1 --save disk/set > out
    cp disk/set/model.safetensors before.safetensors
    head -c 400000 /dev/zero > disk/filler 2> /dev/null || true
    answer 1 "$stator" train g.stator --tokens-file text.tokens --steps 2 --resume disk/set --save disk/set
    sed -i '/^resumed at step/d' err
    one_line disk/set
    cmp disk/set/model.safetensors before.safetensors
    answer 1 "$stator" train g.stator --tokens-file text.tokens --steps 1 --log disk/run.jsonl
    one_line disk/run.jsonl
    answer 1 "$stator" import text.txt --chars -o disk/new.tokens
    one_line disk/new.tokens
    answer 1 "$stator" compile g.stator -o disk/g.stator
    one_line disk/g.stator
    cmp disk/g.stator g.stator
    # with room again the run goes on from the checkpoint that was kept
    rm disk/filler
    answer 0 "$stator" train g.stator --tokens-file text.tokens --steps 2 --resume disk/set
    says err "resumed at step 1"
else
    echo "a full disk is not tested: mounting one needs more rights"
fi
