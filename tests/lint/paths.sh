#!/bin/sh
# A stripped library names its sources from the repository's root: it holds no path of the machine
# that built it.
# Usage: paths.sh <strip> <repository root> <library>...
set -eu
strip=$1 root=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
for library in "$@"; do
    "$strip" -o "$work/stripped" "$library"
    tr -c '[:print:]' '\n' <"$work/stripped" >"$work/text"
    if ! grep -qE '^src/[a-z0-9_/]+\.[ch]$' "$work/text"; then
        echo "$library names no source as src/…"
        bad=1
    fi
    if grep -F -e "$root/" -e ../src/ "$work/text" >"$work/found"; then
        echo "$library holds paths of the machine that built it:"
        head -5 "$work/found"
        bad=1
    fi
done
exit "$bad"
