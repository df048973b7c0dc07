#!/bin/sh
# Trains a ResNet on images in IDX files, by default ResNet-8 on Fashion-MNIST (Debian package
# dataset-fashion-mnist) for one epoch.
#
#   train.sh [--OPTION VALUE …] [RANKS [CONFIG]]
#
# Environment: STATOR (the command), OUT (folder, of one run), SEED, EPOCHS.
# Options go to 'stator train': --device cuda --target h200 --dtype bf16, say.
# CONFIG is a shell file like those beside this script: depth, classes, image, batch, lr, warmup,
# mean, std, and the four files.
set -eu
options=
while [ $# -ge 2 ] && [ "${1#--}" != "$1" ]; do
    options="$options $1 $2"
    shift 2
done
here=$(dirname "$0")
ranks=${1:-2}
stator=${STATOR:-stator}
out=${OUT:-build/resnet}
. "${2:-$here/fashion8.conf}"
mkdir -p "$out"

"$stator" model resnet --depth "$depth" --classes "$classes" --channels 1 --image "$image" \
    --batch "$batch" -o "$out/resnet.stator"
# shellcheck disable=SC2086 # words are meant
"$stator" train "$out/resnet.stator" --ranks "$ranks" $options --seed "${SEED:-1}" --epochs "${EPOCHS:-1}" \
    --images "$train_images" --labels "$train_labels" \
    --mean "$mean" --std "$std" \
    --eval-images "$test_images" --eval-labels "$test_labels" \
    --optimizer sgd --momentum 0.9 --nesterov --weight-decay 5e-4 --lr "$lr" --warmup "$warmup" \
    --schedule linear --log "$out/resnet.jsonl" --save "$out/checkpoints"
