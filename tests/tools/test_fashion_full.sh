#!/bin/sh
# ResNet-8 on Fashion-MNIST, one epoch by the one command of examples/resnet50: the mean accuracy of three
# seeds is at least 86.5 % on one rank and on two.
set -eu
if [ ! -r /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]; then
    echo "skipped: the Debian package dataset-fashion-mnist is not installed"
    exit 77
fi
for ranks in 1 2; do
    for seed in 1 2 3; do
        STATOR=$STATOR_COMMAND OUT=$PWD/r$ranks-$seed SEED=$seed \
            "$STATOR_SOURCE_DIR/examples/resnet50/train.sh" "$ranks" > "r$ranks-$seed.out"
        tail -n 1 "r$ranks-$seed/resnet.jsonl" | sed 's/.*"accuracy":\([0-9.]*\).*"seconds":\([0-9.]*\).*/\1 \2/' |
            awk -v r="$ranks" -v s="$seed" '{ printf "%d ranks, seed %d: accuracy %.4f in %.0f s\n", r, s, $1, $2 }' |
            tee -a results
    done
    grep "^$ranks ranks" results | awk -v r="$ranks" '{ sum += $6 } END {
        printf "%d ranks: mean accuracy %.4f\n", r, sum / NR
        exit !(NR == 3 && sum / NR >= 0.865) }'
done
