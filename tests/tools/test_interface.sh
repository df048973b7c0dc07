# The frame: help, hints, environment, output on a terminal and in a pipe.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
make_small

answer 0 "$stator" --help
for command in model import info compile plan run train eval bench generate; do
    says out "  $command "
done
for command in model import info compile plan run train eval bench generate; do
    answer 0 "$stator" $command --help
    says out "usage: stator $command" "options:"
    [ ! -s err ] || fail "'$command --help' writes to standard error: $(cat err)"
done
answer 0 "$stator" train --help
says out "--optimizer" "(sgd|adam|adamw)" "--ranks" "[1]" "--save-every" "STATOR_"
if grep -q -e '--greedy' out; then fail "train --help lists an option of generate"; fi
answer 0 "$stator" generate --help
says out --greedy --temperature --tokenizer
answer 0 "$stator" --version
says out "stator 0."

answer 2 "$stator"
says err "usage: stator"
answer 2 "$stator" trian
says err "there is no command 'trian'"
answer 2 "$stator" train g.stator --wieght-decay 0.1
says err "wieght-decay" "weight-decay"
answer 2 "$stator" train g.stator --optimizer adagrad
says err adagrad "sgd|adam|adamw"
answer 2 "$stator" info g.stator --lr 1
says err "'--lr' is not an option of 'info'"

# --key=value, values that begin with a dash, options before the file
answer 0 "$stator" compile --ranks=2 g.stator --json
says out '"ranks":2'

# the environment sets an option, the command line wins
answer 0 env STATOR_RANKS=3 "$stator" compile g.stator --json
says out '"ranks":3'
answer 0 env STATOR_RANKS=3 "$stator" compile g.stator --json --ranks 1
says out '"ranks":1'
answer 2 env STATOR_RANKS=three "$stator" compile g.stator
says err STATOR_RANKS three
# a misspelt variable is told once, by whichever rank leads
answer 0 env STATOR_THREAD=3 STATOR_XYLOPHONE=1 "$stator" compile g.stator --json
says out '"ranks":1'
says err "note: environment variable STATOR_THREAD is no option and changes nothing; did you mean STATOR_THREADS?" \
    "STATOR_XYLOPHONE is no option and changes nothing"
[ "$(wc -l < err)" = 2 ] || fail "more than was asked for: $(cat err)"
answer 0 env STATOR_THREAD=3 "$stator" launch -n 2 -- "$stator" train g.stator --tokens-file text.tokens --steps 1
[ "$(grep -c "STATOR_THREAD is no option" err)" = 1 ] || fail "not one rank tells: $(cat err)"

# types by the names that other systems have for them; float32 only of what is
for dtype in f32 float32 fp32; do answer 0 "$stator" compile g.stator --dtype $dtype -o $dtype.plan; done
cmp f32.plan fp32.plan
answer 0 "$stator" compile g.stator --dtype bfloat16 --text
says out "bf16["
answer 2 "$stator" compile g.stator --dtype f8
says err "option 'dtype' is 'f8', expected auto|f32|f64|bf16|f16"
printf 'graph "g" {\n  %%0 x = input {dtype=f64, shape=[4]}\n  output y = %%0\n}\n' > double.stator
answer 0 "$stator" compile double.stator --mode eval
answer 2 "$stator" compile double.stator --mode eval --dtype f32
says err "option 'dtype' is 'f32'" "x" "f64"

# where a command writes to
for command in model import compile plan run bench checkpoint; do
    answer 0 "$stator" $command --help
    says out "--output, -o"
done

# the graph after a pass; a pass that does not exist
answer 0 "$stator" compile g.stator --dump lower
says err "# after lower, program 0"
for pass in recognize simplify; do # recognize: before the gradient, and again on the step
    answer 0 env STATOR_DUMP=$pass "$stator" compile g.stator
    says err "# after $pass" "rms_norm("
done
answer 2 "$stator" compile g.stator --dump lowr
says err "'lowr'" "lower"

# a pipe gets plain lines, at most about twenty beside the first
"$stator" train g.stator --tokens-file text.tokens --steps 40 > plain
if grep -q "$(printf '[\r\033]')" plain; then fail "control characters in a pipe"; fi
[ "$(wc -l < plain)" -le 22 ] || fail "$(wc -l < plain) lines for 40 steps"
says plain "step 1/40" "step 40/40" "steps/s" "a rank" "s left"

# the rate is that of the steps behind the first, which prepares kernels and is slower: more steps a
# second than all of them took. Others on the machine may spoil a run.
tries=0
while :; do
    "$stator" train g.stator --tokens-file text.tokens --steps 20 --log rate.jsonl > plain
    rate=$(sed -n 's|^step 20/20 .*  \([0-9.]*\) steps/s.*|\1|p' plain)
    sed -n 's/.*"step_ms":\([0-9.]*\).*/\1/p' rate.jsonl |
        awk -v rate="$rate" '{ ms += $1 } END { exit !(NR == 20 && rate > 1.05 * 1000 * NR / ms) }' && break
    tries=$((tries + 1))
    [ $tries -lt 10 ] || fail "the first step counts: $(tail -1 plain); $(head -2 rate.jsonl)"
done

# a terminal gets one line that is written over
if command -v script > /dev/null; then
    script -qec "$stator train g.stator --tokens-file text.tokens --steps 40" typescript > /dev/null < /dev/null
    live=$(tr -cd '\r' < typescript | wc -c)
    [ "$live" -ge 40 ] || fail "on a terminal the line was written $live times for 40 steps"
    says typescript "step 39/40" "step 40/40"
else
    echo "the live line is not tested: there is no command 'script'"
fi

# a file name with a control character stays on the message's line
name=$(printf 'no\nfile\033[1m')
answer 2 "$stator" info "$name"
[ "$(wc -l < err)" = 1 ] || fail "more than one line: $(cat err)"

# standard output that cannot be written is an error
if [ -c /dev/full ]; then
    given=0
    "$stator" info g.stator > /dev/full 2> err || given=$?
    [ "$given" = 1 ] || fail "a full standard output ended with $given instead of 1"
    says err "standard output"
fi
