#!/bin/sh
# Predicted against measured step times on this machine's processor: ten models (graphs.sh),
# training with AdamW and evaluation, one thread. Measured is the least processor time of a step,
# which other programs on the machine do not lengthen. The description is made from single ops,
# never from these models.
#
#   predict.sh [TARGET] [OPTION...]    TARGET: a file of 'stator bench --calibrate' [cpu]; OPTIONs
#                                      go to 'stator bench'; environment: STATOR, STEPS
set -eu
here=$(cd "$(dirname "$0")" && pwd)
stator=$(realpath "${STATOR:-build/release/stator}")
target=${1:-cpu}
[ $# = 0 ] || shift
case $target in */* | *.target) target=$(realpath "$target") ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$here/graphs.sh" "$stator" "$work"
cd "$work"

"$stator" --version
printf '%-20s %10s %10s %7s\n' model predicted measured ratio
for graph in *.stator; do
    for mode in train eval; do
        "$stator" bench "$graph" --mode $mode --target "$target" --threads 1 --steps "${STEPS:-12}" --json "$@" 2> /dev/null |
            sed 's/.*"cpu_ms_min":\([0-9.e+-]*\).*"predicted_step_us":\([0-9.e+-]*\).*/\1 \2/' |
            awk -v n="${graph%.stator} $mode" '{ printf "%-20s %7.2f ms %7.2f ms %7.3f\n", n, $2 / 1000, $1, $2 / 1000 / $1 }'
    done
done | tee rows
awk '{ p[NR] = $3; m[NR] = $5; r = $3 / $5; e = r > 1 ? r - 1 : 1 - r; if (e > worst) worst = e; near += e <= 0.2; sum += e }
END {
    for (i = 1; i <= NR; i++) for (j = i + 1; j <= NR; j++)
        if (m[i] > 1.1 * m[j] || m[j] > 1.1 * m[i]) { pairs++; right += (p[i] > p[j]) == (m[i] > m[j]) }
    printf "within 20 %%: %d of %d; mean error %.1f %%, worst %.1f %%; order right for %d of %d pairs at least 10 %% apart\n", near, NR, 100 * sum / NR, 100 * worst, right, pairs
}' rows
