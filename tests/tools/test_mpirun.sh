# Ranks that mpirun starts: the bits of threads on 2 and 4 ranks, and a rank that is lost ends them
# all.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
command -v mpirun > /dev/null || skip "mpirun is not installed"
[ -e "$(dirname "$stator")/libstator_mpi.so" ] || skip "libstator_mpi.so is not built"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
make_small

train="train g.stator --tokens-file text.tokens --dtype f64 --clip 1 --seed 3 --threads 1"
for n in 2 4; do
    # shellcheck disable=SC2086 # words are meant
    {
        "$stator" $train --steps 5 --ranks $n --save threads.$n > /dev/null
        answer 0 mpirun -n $n "$stator" $train --steps 5 --save mpi.$n --timeout 30
    }
    diff -r -x .lock threads.$n mpi.$n
    [ "$(grep -o 'step 5/5' out | wc -l)" = 1 ] || fail "not one rank prints: $(cat out)"
done

# shellcheck disable=SC2086
{
    "$stator" $train --steps 5 --ranks 4 --mesh data=2,tensor=2 --shard zero3 --save split.threads > /dev/null
    answer 0 mpirun -n 4 "$stator" $train --steps 5 --mesh data=2,tensor=2 --shard zero3 --save split.mpi --timeout 30
}
ls split.mpi/set-*-step-5/model-00003-of-00004.safetensors > /dev/null
answer 0 "$stator" checkpoint gather split.mpi -o gathered.safetensors
cmp gathered.safetensors split.threads/model.safetensors
# moments, too: steps that go on from either have the same bits
for from in threads mpi; do
    # shellcheck disable=SC2086
    "$stator" $train --steps 7 --ranks 2 --resume split.$from --save on.$from > /dev/null 2>&1
done
diff -r -x .lock on.threads on.mpi

# Plans that differ.
cat > differ.sh << 'END'
size=4KiB
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && size=8KiB
exec "$@" --bucket-size $size
END
# shellcheck disable=SC2086
given=0
mpirun -n 2 sh differ.sh "$stator" $train --steps 5 --timeout 5 > out 2> err || given=$?
[ $given != 0 ] || fail "plans that differ train"
says err "ranks 0 and 1 disagree on bucket-size: '4096' and '8192'"

# A rank that is stopped is named, and mpirun ends what is left.
# shellcheck disable=SC2086
mpirun -n 2 sh -c 'echo $$ > pid.$OMPI_COMM_WORLD_RANK; exec "$@"' sh "$stator" $train --steps 10000000 \
    --log run.jsonl --timeout 5 > out 2> err &
run=$!
tries=0
while [ ! -e run.jsonl ] || [ "$(wc -l < run.jsonl)" -lt 3 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || fail "no steps: $(cat err)"
    sleep 0.05
done
stopped=$(cat pid.1)
kill -s STOP "$stopped"
begin=$(date +%s%N)
given=0
wait $run || given=$?
took=$((($(date +%s%N) - begin) / 1000000))
[ $given != 0 ] || fail "a stopped rank is no failure: $(cat err)"
says err "rank 1 (pid $stopped on " "has been silent for " ", last seen at step "
[ $took -le 10000 ] || fail "all ended after $took ms"
if alive "$stopped"; then fail "the stopped rank is left"; fi
