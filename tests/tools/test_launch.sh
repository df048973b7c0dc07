# stator launch: what ranks get, how their output comes, and how failures and signals end them all.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"

# The command line.
answer 2 "$stator" launch -- true
says err "-n says how many ranks"
answer 2 "$stator" launch -n 2
says err "the command is missing"
answer 2 "$stator" launch -n two -- true
says err "a number from 1 to 1024, not 'two'"
answer 2 "$stator" launch -n 2 --timeout soon -- true
says err "a time like 5s"
answer 2 "$stator" launch -n 2 --tiemout 5 -- true
says err "no option '--tiemout'"
answer 0 "$stator" launch --help
says out "usage: stator launch"
answer 127 "$stator" launch -n 2 -- ./no-such-program
says err "'./no-such-program' does not start"

# The variables, one line a rank behind its number; standard error apart.
answer 0 "$stator" launch -n 3 --timeout 7s -- sh -c \
    'echo "$RANK $LOCAL_RANK of $WORLD_SIZE/$LOCAL_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT $STATOR_TIMEOUT"; echo "err $RANK" >&2'
port=$(sed -n 's/^\[0\].*:\([0-9]*\) 7$/\1/p' out)
for rank in 0 1 2; do
    says out "[$rank] $rank $rank of 3/3 at 127.0.0.1:$port 7"
    says err "[$rank] err $rank"
done
[ "$(wc -l < out)" = 3 ] || fail "not three lines: $(cat out)"
# Of one rank the output is as it is; a line without an end is not lost.
answer 0 "$stator" launch -n 1 -- printf 'a b'
[ "$(cat out)" = "a b" ] || fail "'$(cat out)' is not 'a b'"

# The first failure gives the exit code and is told; the others are ended within the limit.
begin=$(date +%s)
answer 9 "$stator" launch -n 3 --timeout 2s -- sh -c 'if [ "$RANK" = 1 ]; then echo "no luck" >&2; exit 9; fi; sleep 60'
[ $(($(date +%s) - begin)) -le 5 ] || fail "the others were not ended within the limit"
says err "[1] no luck" "rank 1 (pid" "failed first: exit code 9: no luck"
# One that only says that another is lost is not the first.
answer 7 "$stator" launch -n 2 --timeout 4s -- sh -c '[ "$RANK" = 0 ] && exit 4; sleep 0.5; exit 7'
says err "rank 1 (pid" "failed first: exit code 7"
answer 137 "$stator" launch -n 2 --timeout 2s -- sh -c '[ "$RANK" = 0 ] && kill -s KILL $$; sleep 60'
says err "rank 0 (pid" "failed first: ended by signal 9"
# What a rank started in its turn ends too; so does one that is stopped.
answer 3 "$stator" launch -n 2 --timeout 1s -- sh -c \
    '[ "$RANK" = 0 ] && { sleep 0.3; exit 3; }; sleep 61 & echo $! > grandchild; kill -s STOP $$'
sleep 0.2
if alive "$(cat grandchild)"; then fail "an orphan is left"; fi

# Signals go to all ranks.
"$stator" launch -n 2 -- sh -c 'trap "echo got it; exit 0" TERM; echo ready; while :; do sleep 0.05; done' \
    > out 2> err &
run=$!
tries=0
while [ "$(grep -c ready out)" != 2 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 400 ] || fail "the ranks do not start: $(cat out err)"
    sleep 0.05
done
kill -s TERM $run
wait $run || fail "status $? after a signal that both ranks handle"
says out "[0] got it" "[1] got it"

# Ranks die with their launcher.
"$stator" launch -n 2 -- sh -c 'echo $$ > pid.$RANK; exec sleep 62' &
run=$!
tries=0
while [ ! -s pid.0 ] || [ ! -s pid.1 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 400 ] || fail "the ranks do not start"
    sleep 0.05
done
kill -s KILL $run
wait $run 2> /dev/null || true
tries=0
while alive "$(cat pid.0)" || alive "$(cat pid.1)"; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || fail "an orphan is left"
    sleep 0.05
done
