# A resumed run goes on where it stopped, bit for bit: weights, optimizer state, data order,
# learning rate.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small

# The schedule depends on all ten steps, so the first half is the set that the whole run left after
# five.
options="--tokens-file text.tokens --optimizer adamw --lr 1e-2 --warmup 2 --schedule cosine --ema 0.9
    --clip 1 --seed 3 --steps 10 --ranks 2"
# shellcheck disable=SC2086 # words are meant
{
    "$stator" train g.stator $options --save whole --save-every 5 --log whole.jsonl > /dev/null
    "$stator" train g.stator $options --resume whole/set-000001-step-5 --save rest --log rest.jsonl \
        > /dev/null 2> err
}
says err "resumed at step 5"
set_of() { echo "$1"/set-*-step-10; }
for file in model.safetensors optimizer.safetensors trainer.json; do
    cmp "$(set_of whole)/$file" "$(set_of rest)/$file"
done
cmp "$(set_of whole)/model.safetensors" whole/model.safetensors
sed -n '6,10p' whole.jsonl | sed 's/,"step_ms.*//' > wanted
sed 's/,"step_ms.*//' rest.jsonl > given
diff given wanted

# Without a schedule: five steps, then five more in the same folder and log.
short="--tokens-file text.tokens --seed 3"
# shellcheck disable=SC2086
{
    "$stator" train g.stator $short --steps 10 --save ten > /dev/null
    "$stator" train g.stator $short --steps 5 --save five --log five.jsonl > /dev/null
    "$stator" train g.stator $short --steps 10 --save five --resume five --log five.jsonl > /dev/null 2>&1
}
cmp ten/model.safetensors five/model.safetensors
cmp ten/set-*-step-10/optimizer.safetensors five/set-*-step-10/optimizer.safetensors
[ "$(wc -l < five.jsonl)" = 10 ] || fail "the log has $(wc -l < five.jsonl) lines, not 10"

# Inputs copied ahead change nothing: the same numbers, and a checkpoint stands at the batch after
# its step. shellcheck disable=SC2086
{
    "$stator" train g.stator $short --steps 10 --feed-ahead on --save ahead --save-every 5 --log ahead.jsonl > /dev/null
    "$stator" train g.stator $short --steps 10 --feed-ahead on --resume ahead/set-000001-step-5 --save after > /dev/null 2>&1
}
sed 's/,"step_ms.*//' five.jsonl > wanted
sed 's/,"step_ms.*//' ahead.jsonl > given
diff wanted given
cmp ten/model.safetensors ahead/model.safetensors
cmp ten/model.safetensors after/model.safetensors
cmp "$(set_of ten)/trainer.json" "$(set_of ahead)/trainer.json"

# On another number of ranks the checkpoint loads as well.
# shellcheck disable=SC2086
"$stator" train g.stator $short --steps 12 --resume five --ranks 3 > /dev/null 2>&1

# The seed is the run's, also where it is not given again; another one is refused.
"$stator" train g.stator --tokens-file text.tokens --steps 10 --resume five/set-000001-step-5 --save unseeded \
    > /dev/null 2>&1
cmp ten/model.safetensors unseeded/model.safetensors
answer 2 "$stator" train g.stator --tokens-file text.tokens --steps 12 --resume five --seed 4
says err "--seed 3"

# A folder belongs to one run: a new one is refused before it has begun, and told how to go on.
answer 2 "$stator" train g.stator --tokens-file text.tokens --steps 1 --save ten
says err "'ten' has the checkpoints of another run, up to step 10" "--resume ten" "--save another folder"
[ ! -s out ] || fail "a step was run: $(cat out)"
mkdir empty
answer 0 "$stator" train g.stator --tokens-file text.tokens --steps 1 --save empty

# How many sets are kept.
"$stator" train g.stator --tokens-file text.tokens --steps 6 --save kept --save-every 1 --keep 3 > /dev/null
[ "$(ls kept | grep -c "^set-")" = 3 ] || fail "--keep 3 keeps: $(ls kept)"
answer 2 "$stator" train g.stator --tokens-file text.tokens --steps 1 --save none --keep 0
says err keep

# A damaged newest set is passed over, with a note.
newest=$(ls -d kept/set-*-step-6)
printf 'x' | dd of="$newest/optimizer.safetensors" bs=1 seek=200 conv=notrunc 2> /dev/null
answer 0 "$stator" train g.stator --tokens-file text.tokens --steps 7 --resume kept
says err "resumed at step 5" "$newest"

# Another optimizer's state does not fit.
answer 2 "$stator" train g.stator --tokens-file text.tokens --steps 12 --resume five --optimizer sgd
says err optim.m.lm_head.weight
