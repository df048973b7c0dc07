#!/bin/sh
# Compiles src/kernels/onednn/ against the headers of a current oneDNN 3.x, warnings as errors:
# Debian has 2.x, newer systems 3.x, and the folder serves both. The headers come from PyPI's
# onednn-devel; without network or pip it says so and exits with 77 (ctest counts that as skipped).
#
#   scripts/onednn3.sh [C compiler]
set -eu
cd "$(dirname "$0")/.."
cc=${1:-cc}
ls src/kernels/onednn/*.c >/dev/null 2>&1 || { echo "src/kernels/onednn/ has no sources"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! python3 -m pip download --quiet --no-deps --dest "$work" onednn-devel >"$work/log" 2>&1; then
    echo "skipped: onednn-devel could not be downloaded with python3 -m pip"
    exit 77
fi
python3 -m zipfile -e "$work"/onednn_devel-*.whl "$work"
header=$(find "$work" -path '*/include/oneapi/dnnl/dnnl_version.h')
include=${header%/oneapi/dnnl/dnnl_version.h}
version=$(sed -n 's/^#define DNNL_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' \
    "$(find "$work" -name dnnl_version.h | xargs grep -l '#define DNNL_VERSION_MAJOR')" | tr '\n' '.')
for source in src/kernels/onednn/*.c; do
    "$cc" -std=c11 -D_GNU_SOURCE -DSTATOR_HAVE_ONEDNN -Wall -Wextra -Wpedantic -Wconversion \
        -Wno-sign-conversion -Wno-comment -Werror -Isrc -isystem "$include" -fsyntax-only "$source"
    echo "$source compiles against oneDNN ${version%.}"
done
