#!/bin/sh
# Words that do not belong in the tree: machine paths, unfinished marks, talk about how the work
# went. Usage: words.sh <repository root>
set -eu
cd "$1"

# Tracked files where git knows them, else everything outside build/ (a source archive). This
# folder has the words in its patterns.
if git ls-files --error-unmatch CMakeLists.txt >/dev/null 2>&1; then
    files=$(git ls-files)
else
    files=$(find . -type f -not -path './build/*' -not -path './.git/*' | sed 's|^\./||')
fi
files=$(printf '%s\n' "$files" | grep -vE '^(tests/lint/|LICENSE$|tests/fuzz/corpus/)')
[ -n "$files" ] || { echo "no files to read in $1"; exit 1; }

bad=0
refuse() { # extended regular expression, reason
    # A file removed but not yet committed is no finding, hence -s.
    if printf '%s\n' "$files" | tr '\n' '\0' | xargs -0 grep -snIE "$1"; then
        printf '  %s\n' "$2"
        bad=1
    fi
}
refuse '(^|[^A-Za-z0-9_.-])/(work|root|home)/' 'a path of one machine: make it relative'
refuse '(^|[^A-Za-z0-9_])(TODO|FIXME|XXX)([^A-Za-z0-9_]|$)' 'finish it, or write down what is not there in the README'
refuse '(^|[^A-Za-z0-9_])((earlier|previous|last|next|later) sessions?|[Ii]ssue (#|[0-9])|[Aa]gents?|[Ww]orkplace|helper-)([^A-Za-z_]|$)' \
    'the project speaks of itself, not of the work on it'
[ "$bad" = 0 ] && echo "no words to refuse in $(printf '%s\n' "$files" | wc -l) files"
exit "$bad"
