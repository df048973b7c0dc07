# Interrupted runs: a signal saves and says so; a killed save leaves the previous checkpoint.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small

wait_for() { # until the file has that many lines, half a minute at most
    tries=0
    while [ ! -e "$1" ] || [ "$(wc -l < "$1")" -lt "$2" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || fail "$1 did not get $2 lines"
        sleep 0.05
    done
}

for signal in INT TERM; do
    rm -rf DIR run.jsonl
    "$stator" train g.stator --tokens-file text.tokens --steps 10000000 --log run.jsonl --save DIR \
        > out 2> err &
    run=$!
    wait_for run.jsonl 3
    kill -s $signal $run
    status=0
    wait $run || status=$?
    [ "$status" = 130 ] || fail "SIG$signal: status $status instead of 130: $(cat err)"
    says err "interrupted after step" "--resume"
    step=$(sed -n 's/^.*interrupted after step \([0-9]*\).*$/\1/p' err)
    [ -e "DIR/set-000001-step-$step" ] || fail "SIG$signal: no set of step $step in DIR: $(ls DIR)"
    "$stator" train g.stator --tokens-file text.tokens --steps $((step + 2)) --resume DIR > /dev/null 2> err
    says err "resumed at step $step"
done

# A save after every step, killed at different moments.
for milliseconds in 11 37 53 71 97 113 149 173; do
    rm -f run.jsonl
    resume=""
    [ -e KILLED ] && resume="--resume KILLED"
    # shellcheck disable=SC2086 # two words or none
    "$stator" train g.stator --tokens-file text.tokens --steps 10000000 --log run.jsonl --save KILLED \
        --save-every 1 $resume > /dev/null 2>&1 &
    run=$!
    wait_for run.jsonl 2
    sleep "0.$(printf %03d $milliseconds)"
    kill -s KILL $run
    wait $run 2> /dev/null || true
    "$stator" info KILLED/model.safetensors > /dev/null
    # partial folders are what a killed save leaves behind
    last=$(ls KILLED | sed -n 's/^set-[0-9]*-step-\([0-9]*\)$/\1/p' | sort -n | tail -1)
    "$stator" train g.stator --tokens-file text.tokens --steps $((last + 2)) --resume KILLED \
        > /dev/null 2> err || fail "the folder of a killed run cannot be resumed: $(cat err)"
    says err "resumed at step"
done
