# The commands on the shared cases, as a user types them: import, run with gradients, train.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
need_shared

# check CASE MODEL
check() {
    case=$shared/cases/$1
    rm -rf DIR again
    "$stator" import "$case/$2" -o g.stator > import.txt
    [ -e g.safetensors ] || fail "$1/$2: no g.safetensors beside g.stator"
    says import.txt "g.stator:" parameters buffers

    "$stator" run g.stator --weights "$case/weights.safetensors" --input "$case/batches.safetensors" \
        --map x=x.0,y=y.0 --grad --ranks 2 --output out.safetensors > run.txt 2> notes.txt
    names "$case/weights.safetensors" > weights
    # a parameter gives a gradient, running statistics give their value afterwards
    sed -e '/running_mean$\|running_var$/s/^/after./' -e t -e 's/^/grad./' weights > wanted
    echo loss >> wanted
    # batch norm's counters are buffers of the archive that the weights lack
    names out.safetensors | grep -v '^after\..*num_batches_tracked$' > given
    LC_ALL=C sort wanted -o wanted
    LC_ALL=C sort given -o given
    same_names given wanted "$1/$2: run --output"

    "$stator" train g.stator --weights "$case/weights.safetensors" --input "$case/batches.safetensors" \
        --map 'x=x.*,y=y.*' --optimizer adamw --lr 1e-3 --betas 0.9,0.95 --weight-decay 0.1 --clip 1.0 \
        --steps 20 --ranks 1 --log run.jsonl --save DIR > train.txt 2>> notes.txt
    [ "$(wc -l < run.jsonl)" = 20 ] || fail "$1/$2: $(wc -l < run.jsonl) lines in the log, not 20"
    for step in 1 2 20; do
        [ "$(field run.jsonl $step step)" = $step ] || fail "$1/$2: line $step is step $(field run.jsonl $step step)"
        [ -n "$(field run.jsonl $step grad_norm)" ] || fail "$1/$2: no grad_norm in line $step"
    done
    close "$(field run.jsonl 1 loss)" "$(sed -n 's/^loss //p' run.txt)" 1e-6
    says train.txt "step 1/20" "step 20/20"
    names DIR/model.safetensors | grep -v 'num_batches_tracked$' > given
    same_names given weights "$1/$2: DIR/model.safetensors"

    # from the archive's own values, which stand beside the graph
    "$stator" train g.stator --weights g.safetensors --input "$case/batches.safetensors" \
        --map 'x=x.*,y=y.*' --steps 1 --log own.jsonl > /dev/null 2>> notes.txt
    [ "$(field own.jsonl 1 step)" = 1 ] || fail "$1/$2: no step from g.safetensors"
    "$stator" run g.stator --input "$case/batches.safetensors" --map x=x.0,y=y.0 > run.txt 2>> notes.txt
    close "$(field own.jsonl 1 loss)" "$(sed -n 's/^loss //p' run.txt)" 1e-6
    echo "$1/$2: loss $(field run.jsonl 1 loss), after 20 steps $(field run.jsonl 20 loss)"
}

for name in llama_tiny llama_tiny_tied resnet_tiny resnet_tiny_smoothing; do
    for model in "$shared/cases/$name"/model.*; do
        check "$name" "${model##*/}"
    done
done

# 20 steps again, on two ranks, twice: the same bits
case=$shared/cases/resnet_tiny
for turn in 1 2; do
    "$stator" train g.stator --weights "$case/weights.safetensors" --input "$case/batches.safetensors" \
        --map 'x=x.*,y=y.*' --steps 10 --ranks 2 --save "twice$turn" > /dev/null 2>&1
done
cmp twice1/model.safetensors twice2/model.safetensors

# float64: the file has doubles, the loss is that of float32 within its rounding
"$stator" run g.stator --weights "$case/weights.safetensors" --input "$case/batches.safetensors" \
    --map x=x.0,y=y.0 --dtype f64 --output out64.safetensors > run64.txt 2> /dev/null
"$stator" info out64.safetensors > info64.txt
grep -q '^loss  *f64\[\]$' info64.txt || fail "with --dtype f64 the loss is not float64: $(cat info64.txt)"
"$stator" run g.stator --weights "$case/weights.safetensors" --input "$case/batches.safetensors" \
    --map x=x.0,y=y.0 > run32.txt 2> /dev/null
close "$(sed -n 's/^loss //p' run64.txt)" "$(sed -n 's/^loss //p' run32.txt)" 1e-5

# a map that does not fit: x of one batch shape for y
answer 2 "$stator" run g.stator --weights "$case/weights.safetensors" --input "$case/batches.safetensors" \
    --map x=y.0,y=x.0
[ "$(grep -c '^stator: ' err)" = 1 ] || fail "not one message: $(cat err)"
says err "input 'x'" 'f32[8,3,48,48]'
