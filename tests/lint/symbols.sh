#!/bin/sh
# The symbols that libstator.so exports, and those global in libstator.a, are exactly the functions
# declared in include/stator/.
# Usage: symbols.sh <repository root> <libstator.so> <libstator.a> <C compiler> <nm>
set -eu
root=$1 shared=$2 archive=$3 cc=$4 nm=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The preprocessor removes comments and macros; what is then followed by "(" at file level is
# declared.
for header in "$root"/include/stator/*.h; do
    printf '#include <stator/%s>\n' "$(basename "$header")"
done >"$work/all.c"
"$cc" -std=c11 -E -P -I"$root/include" "$work/all.c" >"$work/all.i"
awk '
    # Drops bodies (inline functions, structs), so that only declarations at file level remain.
    {
        n = length($0)
        for (i = 1; i <= n; i++) {
            c = substr($0, i, 1)
            if (c == "{") depth++
            if (depth == 0) printf "%s", c
            if (c == "}") { depth--; if (depth == 0) printf ";" }
        }
        printf " "
    }' "$work/all.i" | tr ';' '\n' | grep -vE '(^| )(static|typedef) ' |
    grep -oE 'stator_[a-z0-9_]+[[:space:]]*\(' | tr -d ' (\t' | LC_ALL=C sort -u >"$work/declared"
[ -s "$work/declared" ] || { echo "no function is declared in include/stator/"; exit 1; }

"$nm" -D --defined-only "$shared" | awk '$2 ~ /[A-Z]/ && $2 != "A" { sub(/@.*/, "", $3); print $3 }' |
    LC_ALL=C sort -u >"$work/shared"
"$nm" -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' |
    LC_ALL=C sort -u >"$work/archive"

bad=0
for kind in shared archive; do
    if ! diff "$work/declared" "$work/$kind" >"$work/diff"; then
        echo "include/stator/ (<) and the $kind library (>) differ:"
        grep '^[<>]' "$work/diff"
        bad=1
    fi
done
echo "$(wc -l <"$work/declared") functions declared"
exit "$bad"
