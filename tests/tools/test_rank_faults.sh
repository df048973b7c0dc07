# Ranks that are processes and do not fit together: all end, with one reason, before the first step.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small

# Plans that differ, before the first step.
answer 5 "$stator" launch -n 2 --timeout 5s -- sh -c '
    size=4KiB; [ "$RANK" = 1 ] && size=8KiB; exec "$@" --bucket-size $size' \
    sh "$stator" train g.stator --tokens-file text.tokens --steps 2
for rank in 0 1; do # by itself, or told by the other
    grep "^\[$rank\] stator: " err > said || fail "rank $rank is silent: $(cat err)"
    says said "ranks 0 and 1 disagree on bucket-size: '4096' and '8192'"
done
answer 5 "$stator" launch -n 2 --timeout 5s -- sh -c '
    lr=0.1; [ "$RANK" = 1 ] && lr=0.2; exec "$@" --lr $lr' \
    sh "$stator" train g.stator --tokens-file text.tokens --steps 2
says err "ranks 0 and 1 disagree on option 'lr', 'base' of node " "(lr_schedule): '0.1' and '0.2'"

# A rank that cannot begin, and its reason on the others.
answer 2 "$stator" launch -n 2 --timeout 5s -- sh -c '
    file=text.tokens; [ "$RANK" = 1 ] && file=none.tokens; exec "$@" --tokens-file $file' \
    sh "$stator" train g.stator --steps 2
says err "none.tokens" "rank 1 gave up: " "rank 1 (pid" "failed first: exit code 2"

# Numbers of ranks that differ.
answer 2 "$stator" launch -n 2 --timeout 5s -- "$stator" train g.stator --tokens-file text.tokens --steps 2 --ranks 3
says err "option 'ranks' is 3, 2 processes run"

# Without a launcher: the variables alone.
port=$((20000 + $$ % 20000))
as() { # rank, size
    RANK=$1 WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$stator" train g.stator --tokens-file text.tokens --steps 2 --timeout 2 > "out.$3" 2> "err.$3"
}
ended() { # status, wanted, name
    [ "$1" = "$2" ] || fail "$3 ended with $1 instead of $2: $(cat "err.$3")"
}
begin=$(date +%s)
status=0
as 0 2 alone || status=$?
ended $status 4 alone
says err.alone "rank 1 of 2 did not come to 127.0.0.1:$port within 2000 ms"
status=0
as 1 2 alone || status=$?
ended $status 4 alone
says err.alone "nobody answers at 127.0.0.1:$port"
[ $(($(date +%s) - begin)) -le 6 ] || fail "a missing rank was waited for too long"

as 0 3 zero & zero=$!
as 1 3 one & one=$!
as 1 3 two & two=$!
for name in zero one two; do
    status=0
    eval "wait \$$name" || status=$?
    ended $status 5 $name
    says err.$name "two processes claim rank 1: pid "
done

as 0 2 zero & zero=$!
sleep 0.5
status=0
as 0 2 again || status=$?
ended $status 1 again
says err.again "port $port is in use"
wait $zero || true

answer 2 env RANK=0 "$stator" train g.stator --tokens-file text.tokens --steps 2
says err "WORLD_SIZE is not set"
answer 2 env RANK=2 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 "$stator" train g.stator --tokens-file text.tokens --steps 2
says err "RANK is '2': a number from 0 to 1"
# One rank of one is no communicator, and neither is a process that does not want to be.
answer 0 env RANK=0 WORLD_SIZE=1 "$stator" train g.stator --tokens-file text.tokens --steps 2
answer 0 env RANK=0 WORLD_SIZE=2 "$stator" train g.stator --tokens-file text.tokens --steps 2 --comm none

# What no plan holds: seeds and data of ranks that are processes.
answer 5 "$stator" launch -n 2 --timeout 10s -- sh -c 'exec "$@" --seed $RANK' sh "$stator" train g.stator \
    --tokens-file text.tokens --steps 2
says err "ranks 0 and 1 disagree on option 'seed': '0' and '1'"
answer 5 "$stator" launch -n 2 --timeout 10s -- sh -c 'held=; [ $RANK = 0 ] || held=.held; exec "$@" --tokens-file text.tokens$held' \
    sh "$stator" train g.stator --steps 2
says err "ranks 0 and 1 disagree on what option 'tokens-file' names"
answer 5 "$stator" launch -n 2 --timeout 10s -- sh -c 'exec "$@" --save-every $((RANK + 2))' sh "$stator" train g.stator \
    --tokens-file text.tokens --steps 2 --save kept
says err "disagree on option 'save-every': '2' and '3'"

# Links that cannot be.
answer 2 "$stator" train g.stator --tokens-file text.tokens --steps 2 --ranks 2 --comm-latency soon
says err "option 'comm-latency' is 'soon'"
answer 2 "$stator" train g.stator --tokens-file text.tokens --steps 2 --ranks 2 --comm-bandwidth 0MB/s
says err "option 'comm-bandwidth' is '0MB/s'"
