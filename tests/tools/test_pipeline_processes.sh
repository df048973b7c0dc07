# Stages as processes: the losses of one rank, and the states of the threads' stages.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small

llama="--tokens-file text.tokens --dtype f64 --clip 1 --seed 3 --steps 4 --threads 1 --microbatches 4"
# shellcheck disable=SC2086 # words are meant
"$stator" train g.stator $llama --log one.jsonl > /dev/null
while read -r n form; do
    rm -rf threads processes threads.jsonl processes.jsonl
    # shellcheck disable=SC2086
    {
        "$stator" train g.stator $llama $form --save threads --log threads.jsonl > /dev/null
        "$stator" launch -n "$n" --timeout 30s -- \
            "$stator" train g.stator $llama $form --save processes --log processes.jsonl > out
    }
    says out "[0] step 4/4"
    # Sums of float64 in another order: some hundred roundings of 1.1e-16.
    same_steps processes.jsonl one.jsonl 1e-13 1 2 3 4
    # Each stage's process writes what it has; together that is what threads write whole.
    answer 0 "$stator" checkpoint gather processes -o gathered.safetensors
    cmp gathered.safetensors "$(echo threads/set-*-step-4)/model.safetensors"
done << 'END'
2 --mesh pipe=2
2 --mesh pipe=2 --pipeline zb
4 --mesh pipe=2,data=2
4 --mesh data=2,pipe=2 --shard zero1
END

# One that goes on without a pipeline reads all stages' parts.
# shellcheck disable=SC2086
"$stator" train g.stator $llama --steps 5 --resume processes > /dev/null 2> err
says err "resumed at step 4"
