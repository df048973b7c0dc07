#!/bin/sh
# Each public header compiles alone, as C11 and as C++17, without a warning, and includes nothing
# but the C library and its own folder.
# Usage: headers.sh <repository root> <C compiler> [C++ compiler]
set -eu
root=$1 cc=$2 cxx=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0 n=0
for header in "$root"/include/stator/*.h; do
    [ -e "$header" ] || { echo "no headers in include/stator/"; exit 1; }
    name=stator/$(basename "$header")
    # Twice: the guard must hold.
    printf '#include <%s>\n#include <%s>\nint stator_unit_is_not_empty;\n' "$name" "$name" >"$work/unit.c"
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror -I"$root/include" -c \
        "$work/unit.c" -o "$work/unit.o" || { echo "$name does not stand alone as C11"; bad=1; }
    if [ -n "$cxx" ]; then
        cp "$work/unit.c" "$work/unit.cc"
        "$cxx" -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$root/include" -c "$work/unit.cc" \
            -o "$work/unit.o" || { echo "$name does not stand alone as C++17"; bad=1; }
    fi
    others=$(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]\([^>"]*\)[>"].*/\1/p' "$header" |
        grep -vE '^(stator/[a-z_]+\.(h|def)|std(int|def|bool|io|arg)\.h|inttypes\.h)$' || true)
    if [ -n "$others" ]; then
        printf '%s includes what a user may not have:\n%s\n' "$name" "$others"
        bad=1
    fi
    n=$((n + 1))
done
echo "$n headers read as C11${cxx:+ and C++17}"
exit "$bad"
