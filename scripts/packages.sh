#!/bin/sh
# Installs the Debian packages that are missing, or says which.
#
#   packages.sh build [test] [fuzz]
#
# As root it installs them; otherwise it prints the command and fails. On a system without dpkg it
# leaves the matter to CMake, whose messages name what it does not find.
set -eu

list_build="cmake ninja-build gcc libc6-dev pkg-config protobuf-c-compiler
    libprotobuf-c-dev libonnx-dev libjson-c-dev zlib1g-dev libdnnl-dev"
list_test="g++ libcmocka-dev libopenmpi-dev openmpi-bin bible-kjv bible-kjv-text dataset-fashion-mnist sentencepiece"
list_fuzz="clang llvm libclang-rt-14-dev"

command -v dpkg-query >/dev/null 2>&1 || exit 0

missing=""
for group in "$@"; do
    case $group in
        build) list=$list_build ;;
        test) list=$list_test ;;
        fuzz) list=$list_fuzz ;;
        *) echo "packages.sh: unknown group '$group': build, test or fuzz" >&2; exit 2 ;;
    esac
    for package in $list; do
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        case $state in installed*) ;; *) missing="$missing $package" ;; esac
    done
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    echo "Missing packages. Install them, then run make again:" >&2
    echo "    sudo apt-get install$missing" >&2
    exit 1
fi
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086 # one word a package is meant
apt-get install -q -y --no-install-recommends $missing
