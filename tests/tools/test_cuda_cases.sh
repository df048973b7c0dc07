#!/bin/sh
# The shared cases on a GPU beside the CPU, whose losses are PyTorch's (capi.cases): Llamas for 20
# steps, in float32 within 1e-4 of each loss, in bf16 within 5 %; ResNets for three steps, within
# 1e-3 and 5 %, for batch norm over eight images makes rounding grow from step to step; and the one
# command of examples/resnet50 with a GPU's options.
. "$(dirname "$0")/common.sh"
need_shared
export STATOR_CACHE="$PWD/cache"
gpu="--target h200 --device cuda"

train() { # case log options...
    case=$shared/cases/$1 log=$2
    shift 2
    "$stator" train g.stator --weights "$case/weights.safetensors" --input "$case/batches.safetensors" \
        --map 'x=x.*,y=y.*' --optimizer adamw --lr 1e-3 --betas 0.9,0.95 --weight-decay 0.1 --clip 1.0 \
        --steps 20 --ranks 1 --log "$log" "$@" > train.txt 2> err
}
compare() { # case what log limit
    case $1 in
        resnet*) steps="1 2 3" ;;
        *) steps="1 2 5 10 20" ;;
    esac
    for step in $steps; do
        close "$(field "$3" $step loss)" "$(field cpu.jsonl $step loss)" "$4" ||
            fail "$1, $2, step $step: $(field "$3" $step loss), on the CPU $(field cpu.jsonl $step loss)"
    done
}
for name in llama_tiny llama_tiny_tied resnet_tiny resnet_tiny_smoothing; do
    for model in "$shared/cases/$name"/model.*; do
        "$stator" import "$model" -o g.stator > import.txt
        train $name cpu.jsonl || fail "$name on the CPU: $(cat err)"
        # shellcheck disable=SC2086 # words are meant
        if ! train $name f32.jsonl $gpu; then
            grep -qE "no NVIDIA driver|finds no GPU|libstator_cuda.so|serves CUDA" err && skip "$(head -1 err)"
            fail "$name: $(cat err)"
        fi
        case $name in
            resnet*) compare $name f32 f32.jsonl 1e-3 ;;
            *) compare $name f32 f32.jsonl 1e-4 ;;
        esac
        # shellcheck disable=SC2086
        train $name bf16.jsonl $gpu --dtype bf16 || fail "$name, bf16: $(cat err)"
        compare $name bf16 bf16.jsonl 0.05
        echo "${model#"$shared"/cases/}: $(field f32.jsonl 20 loss) in f32, $(field bf16.jsonl 20 loss) in bf16"
    done
done

if [ ! -r /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]; then
    echo "Fashion-MNIST is not tested: the Debian package dataset-fashion-mnist is not installed"
    exit 0
fi
# shellcheck disable=SC2086
STATOR=$stator OUT=$PWD/fashion "$STATOR_SOURCE_DIR/examples/resnet50/train.sh" $gpu 1 > out || fail "$(tail -3 out)"
accuracy=$(tail -n 1 fashion/resnet.jsonl | sed 's/.*"accuracy":\([0-9.]*\).*/\1/')
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.855) }' || fail "ResNet-8 on Fashion-MNIST: accuracy $accuracy"
echo "ResNet-8 on Fashion-MNIST: accuracy $accuracy"
