#!/bin/sh
# See CMakeLists.txt beside this file.
# Usage: install.sh <build folder> <source folder> <C compiler> <lib folder> [C++ compiler]
set -eu
build=$1 source=$2 cc=$3 lib=$4 cxx=${5:-}
limit_kib=10240 # the archive and the shared library hold the same code: twice a few megabytes
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix="$work/a prefix" # a space: paths must be quoted everywhere
unset DESTDIR

cmake --install "$build" --prefix "$prefix" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$prefix" "$work/moved" # the packages must not remember where they were put
prefix=$work/moved
export PKG_CONFIG_PATH="$prefix/$lib/pkgconfig"
export LD_LIBRARY_PATH="$prefix/$lib"

check() { # what, command...: its first line must be the version that pkg-config states
    what=$1
    shift
    answer=$("$@")
    if [ "$answer" != "$(pkg-config --modversion stator)" ]; then
        echo "$what printed '$answer', not the version $(pkg-config --modversion stator)"
        exit 1
    fi
    echo "$what: $answer"
}
program=$source/tests/install/consumer/consumer.c
strict="-Wall -Wextra -Wpedantic -Werror"

# shellcheck disable=SC2046,SC2086 # flags are words
{
    $cc -std=c11 $strict "$program" -o "$work/shared" $(pkg-config --cflags --libs stator)
    check "C, shared, pkg-config" "$work/shared"
    $cc -std=c11 $strict "$program" -o "$work/static" $(pkg-config --cflags stator) \
        "$prefix/$lib/libstator.a" $(pkg-config --static --libs stator | sed 's/-lstator //')
    check "C, archive, pkg-config" env LD_LIBRARY_PATH= "$work/static"
    if [ -n "$cxx" ]; then
        cp "$program" "$work/consumer.cc"
        $cxx -std=c++17 $strict "$work/consumer.cc" -o "$work/cxx" $(pkg-config --cflags --libs stator)
        check "C++, shared, pkg-config" "$work/cxx"
    else
        echo "C++: skipped, no C++ compiler"
    fi
    # The example that the README shows must build against what is installed.
    for example in "$source"/examples/c/*.c; do
        [ -e "$example" ] || continue
        $cc -std=c11 $strict "$example" -o "$work/example" $(pkg-config --cflags --libs stator) -lm
        echo "builds: examples/c/$(basename "$example")"
    done
}

cmake -S "$source/tests/install/consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$cc" >"$work/log" && cmake --build "$work/cmake" >>"$work/log" ||
    { cat "$work/log"; exit 1; }
check "C, shared, CMake" "$work/cmake/shared"
check "C, archive, CMake" env LD_LIBRARY_PATH= "$work/cmake/static"

if [ -e "$build/stator" ]; then
    # The command finds libstator.so without help, whatever folder it is called from.
    (cd / && env LD_LIBRARY_PATH= "$prefix/bin/stator" --help) >"$work/log" || { cat "$work/log"; exit 1; }
    grep -q train "$work/log" || { echo "stator --help does not mention train"; exit 1; }
fi

find "$prefix" -type f \( -name '*.a' -o -name '*.so.*' -o -path '*/bin/*' \) -exec strip --strip-unneeded {} + # a release has none
echo "Installed:"
(cd "$prefix" && find . -type f -exec du -k {} + | sort -rn | head -8)
kib=$(du -sk "$prefix" | cut -f1)
echo "Installed size: $kib KiB, limit $limit_kib KiB"
[ "$kib" -le "$limit_kib" ]
