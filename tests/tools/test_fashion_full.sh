#!/bin/sh
# ResNet-8 on Fashion-MNIST, one epoch by the one command of examples/resnet50: the mean accuracy of
# three seeds is at least 86.5 % on one rank and on two, and the two means are within one point.
. "$(dirname "$0")/common.sh"
[ -r /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] ||
    skip "the Debian package dataset-fashion-mnist is not installed"

for ranks in 1 2; do
    for seed in 1 2 3; do
        STATOR=$stator OUT=$PWD/r$ranks-$seed SEED=$seed \
            "$STATOR_SOURCE_DIR/examples/resnet50/train.sh" "$ranks" > "r$ranks-$seed.out"
        tail -n 1 "r$ranks-$seed/resnet.jsonl" |
            sed 's/.*"accuracy":\([0-9.]*\).*"seconds":\([0-9.]*\).*/\1 \2/' > result
        read -r accuracy seconds < result
        echo "$ranks $accuracy" >> accuracies
        echo "$ranks ranks, seed $seed: accuracy $accuracy in $seconds s"
    done
done
awk '{ sum[$1] += $2; n[$1]++ } END {
    one = sum[1] / n[1]; two = sum[2] / n[2]
    printf "mean accuracy: %.4f on one rank, %.4f on two\n", one, two
    exit !(n[1] == 3 && n[2] == 3 && one >= 0.865 && two >= 0.865 && one - two < 0.01 && two - one < 0.01)
}' accuracies || fail "the accuracies do not hold"
