#!/bin/sh
# Ranks with a GPU each, as threads and as processes: under each form the training of one CPU rank;
# the same bits in a second run; a rank that is killed or stopped ends the others, who say which.
. "$(dirname "$0")/common.sh"
gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU') || true
[ "${gpus:-0}" -ge 2 ] || skip "this machine has ${gpus:-0} GPUs, two are needed"
make_small
export STATOR_CACHE="$PWD/cache"
text="--tokens-file text.tokens --seed 3 --optimizer adamw --lr 1e-2 --clip 1"
gpu="--target h200 --device cuda"

train() { # folder options...
    folder=$1
    shift
    # shellcheck disable=SC2086
    "$stator" train g.stator $text --steps 12 --log "$folder.jsonl" --save "$folder" "$@" > "$folder.txt" 2> err
}
same() { # folder as limit
    for step in 1 6 12; do
        close "$(field "$1.jsonl" $step loss)" "$(field "$2.jsonl" $step loss)" "$3"
    done
}
for n in 1 2 4; do
    train cpu$n --ranks 1 --accumulate $n || fail "the CPU: $(cat err)"
done
# shellcheck disable=SC2086
train dp $gpu --ranks 2 --shard dp || fail "dp: $(cat err)"
same dp cpu1 1e-4
for form in zero1 zero2 zero3 tp auto; do
    # shellcheck disable=SC2086
    train $form $gpu --ranks 2 --shard $form || fail "$form: $(cat err)"
    same $form cpu1 1e-4
done
for mesh in "pipe=2 --microbatches 4" "pipe=2 --microbatches 4 --stages-per-rank 2 --pipeline zb" "context=2" \
    "context=2 --context-attention ring"; do
    as=cpu4
    case $mesh in context*) as=cpu1 ;; esac
    # shellcheck disable=SC2086
    train mesh $gpu --mesh $mesh || fail "--mesh $mesh: $(cat err)"
    same mesh $as 1e-4
    rm -r mesh mesh.jsonl
done
# shellcheck disable=SC2086
train twice $gpu --ranks 2 --shard dp --accumulate 2 || fail "accumulating: $(cat err)"
same twice cpu2 1e-4
# shellcheck disable=SC2086
train parts $gpu --ranks 2 --shard zero2 --accumulate 2 || fail "zero2, accumulating: $(cat err)"
same parts cpu2 1e-4
for form in dp zero3; do
    for run in one two; do
        # shellcheck disable=SC2086
        train bf16.$run $gpu --ranks 2 --shard $form --dtype bf16 || fail "bf16, $form: $(cat err)"
    done
    cmp bf16.one/model.safetensors bf16.two/model.safetensors || fail "bf16, $form: a second run has other bits"
    rm -r bf16.one bf16.two bf16.one.jsonl bf16.two.jsonl
done

# processes, and their checkpoint on one rank
# shellcheck disable=SC2086
"$stator" launch -n 2 -- "$stator" train g.stator $text $gpu --shard zero3 --steps 12 --log run.jsonl --save run > out 2> err ||
    fail "processes: $(cat err)"
mv run.jsonl processes.jsonl
same processes cpu1 1e-4
# shellcheck disable=SC2086
"$stator" train g.stator $text $gpu --ranks 1 --steps 14 --resume run --log more.jsonl > out 2> err || fail "resumed on one: $(cat err)"

for signal in KILL STOP; do
    rm -f pid.* run.jsonl
    # shellcheck disable=SC2086
    "$stator" launch -n 2 --timeout 5s -- sh -c 'echo $$ > pid.$RANK; exec "$@"' sh \
        "$stator" train g.stator $text $gpu --shard dp --steps 10000000 --log run.jsonl > out 2> err &
    run=$!
    tries=0
    while [ ! -e run.jsonl ] || [ "$(wc -l < run.jsonl)" -lt 3 ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "no steps: $(cat err)"
        sleep 0.05
    done
    begin=$(date +%s%N)
    kill -s $signal "$(cat pid.1)"
    status=0
    wait $run || status=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    wanted=4
    [ $signal = STOP ] || wanted=137
    [ $status = $wanted ] || fail "SIG$signal: exit code $status: $(cat err)"
    [ $took -le 8000 ] || fail "SIG$signal: all ended after $took ms: $(cat err)"
    grep "^\[0\] stator: " err > said || fail "rank 0 is silent: $(cat err)"
    says said "rank 1 (pid $(cat pid.1) on " ", last seen at step "
done
