#!/bin/sh
# A small training step on a GPU under compute-sanitizer: no access out of bounds, no race in shared
# memory, no read of memory that nothing wrote, no wrong barrier. racecheck and synccheck do not
# follow the barriers of the library's own attention kernels and report them: they are left out
# there.
. "$(dirname "$0")/common.sh"
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || skip "there is no compute-sanitizer"
make_small
export STATOR_CACHE="$PWD/cache"

bench() {
    "$@" "$stator" bench g.stator --target h200 --device cuda --dtype "$dtype" --optimizer adamw --clip 1 --steps 1 --tune off
}
dtype=bf16
if ! bench env > out 2> err; then
    grep -qE "no NVIDIA driver|finds no GPU|libstator_cuda.so|serves CUDA" err && skip "$(head -1 err)"
    fail "$(cat err)"
fi
for dtype in f32 bf16 f16; do
    [ $dtype = f32 ] && dtype=auto
    for tool in memcheck racecheck initcheck synccheck; do
        case $tool in
            racecheck | synccheck) others="--kernel-name-exclude kernel_substring=cudnn" ;;
            *) others= ;;
        esac
        bench "$sanitizer" --tool $tool $others --error-exitcode 9 > out 2> err || fail "$tool, $dtype: $(grep -m 20 '=====' out err)"
        grep -qE "SUMMARY: 0 (errors|hazards)" out || fail "$tool, $dtype gave no summary: $(tail -3 out)"
    done
done
