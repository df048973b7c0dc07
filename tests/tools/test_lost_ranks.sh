# Ranks that are processes: whatever happens to one, all end within five seconds, and say which, at
# what step and op. Nothing hangs, nothing is left behind.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small
train="train g.stator --tokens-file text.tokens --steps 10000000 --threads 1"

wait_for_lines() { # file, lines
    tries=0
    while [ ! -e "$1" ] || [ "$(wc -l < "$1")" -lt "$2" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || fail "$1 did not get $2 lines: $(cat err)"
        sleep 0.05
    done
}
gone() { # pids
    for pid in "$@"; do
        tries=0
        while alive "$pid"; do
            tries=$((tries + 1))
            [ "$tries" -lt 40 ] || fail "process $pid is left"
            sleep 0.05
        done
    done
}
# run N ARGUMENTS...: in the background, each rank's process id in pid.RANK.
run_ranks() {
    rm -f pid.* run.jsonl
    n=$1
    shift
    "$stator" launch -n "$n" --timeout 5s -- sh -c 'echo $$ > pid.$RANK; exec "$@"' sh "$stator" "$@" \
        > out 2> err &
    run=$!
}

# A rank that is killed, and one that is stopped; rank 0 and another.
for signal in KILL STOP; do
    for rank in 1 0; do
        # shellcheck disable=SC2086 # words are meant
        run_ranks 3 $train --log run.jsonl
        wait_for_lines run.jsonl 3
        begin=$(date +%s%N)
        kill -s $signal "$(cat pid.$rank)"
        status=0
        wait $run || status=$?
        took=$((($(date +%s%N) - begin) / 1000000))
        wanted=4
        [ $signal = STOP ] || wanted=137
        [ $status = $wanted ] || fail "SIG$signal of rank $rank: exit code $status: $(cat err)"
        [ $took -le 5000 ] || fail "SIG$signal of rank $rank: all ended after $took ms: $(cat err)"
        gone "$(cat pid.0)" "$(cat pid.1)" "$(cat pid.2)"
        for other in 0 1 2; do
            [ $other = $rank ] || grep "^\[$other\] stator: " err > said || fail "rank $other is silent: $(cat err)"
            [ $other = $rank ] || says said "rank $other: step " "node " "rank $rank (pid $(cat pid.$rank) on " \
                ", last seen at step "
        done
    done
done

# A rank that is stopped while all save: rank 0 stands at the folder's lock, which is held here, the
# others wait for it. Who finds out names what is lost, and where both were.
mkdir held
exec 9> held/.lock
flock 9
# shellcheck disable=SC2086
run_ranks 3 $train --log run.jsonl --save held --save-every 3
wait_for_lines run.jsonl 3
sleep 2
kill -s STOP "$(cat pid.1)"
sleep 4
flock -u 9
exec 9>&-
status=0
wait $run || status=$?
[ $status = 4 ] || fail "stopped while saving: exit code $status: $(cat err)"
grep "^\[2\] stator: " err > said || fail "rank 2 is silent: $(cat err)"
says said "rank 2: step 3: saving a checkpoint: " "rank 1 (pid $(cat pid.1) on " \
    ", last seen at step 3, saving a checkpoint"
gone "$(cat pid.0)" "$(cat pid.1)" "$(cat pid.2)"

# An interrupt reaches all ranks, which end after the same step and save once.
# shellcheck disable=SC2086
run_ranks 2 $train --log run.jsonl --save interrupted
wait_for_lines run.jsonl 3
kill -s INT $run
status=0
wait $run || status=$?
[ $status = 130 ] || fail "interrupted: status $status instead of 130: $(cat err)"
step=$(sed -n 's/^\[0\].*interrupted after step \([0-9]*\).*$/\1/p' err)
says err "[1] stator: interrupted after step $step"
[ -e "interrupted/set-000001-step-$step" ] || fail "no set of step $step: $(ls interrupted)"
