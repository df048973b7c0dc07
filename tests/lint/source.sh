#!/bin/sh
# Rules about our own source text. Usage: source.sh <repository root>
#
#   - no `case` on an op id outside src/ir: what depends on the op is a table row
#   - getenv in one file only (the options table)
#   - the library never ends the process: exit and abort are st_assert_fail's alone; src/tools may
#     exit
#   - allocation goes through src/base/memory.c, so that tests can make it fail; src/tools, which
#     sees only the public interface, uses the C library's
#   - files up to 800 lines, functions up to 120; comments up to 100 columns
#   - for information: comparisons with op ids outside src/ir, which a flag or column could replace
set -eu
cd "$1"
bad=0

# Reports the lines of a pattern outside the files that an awk regular expression names.
refuse() { # pattern, allowed files, reason
    hits=$(find src -type f \( -name '*.c' -o -name '*.h' -o -name '*.inc' -o -name '*.cu' \) | LC_ALL=C sort |
        xargs awk -v pattern="$1" -v allowed="$2" '
            FNR == 1 { in_comment = 0 }
            FILENAME ~ allowed { next }
            {
                line = $0
                gsub(/"([^"\\]|\\.)*"/, "\"\"", line)   # texts may say anything
                if (in_comment) {
                    if (!sub(/^.*\*\//, "", line)) next
                    in_comment = 0
                }
                gsub(/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//, "", line)
                sub(/\/\/.*/, "", line)
                if (sub(/\/\*.*/, "", line)) in_comment = 1
                if (line ~ pattern) printf "%s:%d:%s\n", FILENAME, FNR, $0
            }')
    if [ -n "$hits" ]; then
        printf '%s\n  %s\n' "$hits" "$3"
        bad=1
    fi
}

refuse 'case[ \t]+IR_OP_' '^src/ir/' "an op's behaviour is a row of a table, not a case (src/ir only)"
refuse '(^|[^A-Za-z0-9_])(exit|_exit|_Exit|quick_exit|abort)[ \t]*\(' '^src/(base/status\.c|tools/.*)$' \
    'the library reports failure, it does not end the program'
refuse '(^|[^A-Za-z0-9_])(malloc|calloc|realloc|aligned_alloc|posix_memalign|memalign|strdup|strndup|asprintf|vasprintf|free)[ \t]*\(' \
    '^src/(base/memory\.c|tools/.*)$' 'use st_malloc and its family (src/base/memory.h) or an arena'

getenv_files=$(grep -rlE '(^|[^A-Za-z0-9_])(secure_)?getenv[[:space:]]*\(' src || true)
if [ "$(printf '%s' "$getenv_files" | grep -c .)" -gt 1 ]; then
    printf '%s\n  getenv belongs in one file, behind the options table\n' "$getenv_files"
    bad=1
fi

files=$(find src include tests examples -type f \( -name '*.c' -o -name '*.h' -o -name '*.inc' -o \
    -name '*.cu' \) |
    LC_ALL=C sort)
# shellcheck disable=SC2086 # paths here have no spaces
awk '
    function close_file() {
        if (lines > 800) { printf "%s: %d lines, more than 800: split it\n", name, lines; bad = 1 }
    }
    FNR == 1 { close_file(); name = FILENAME; lines = 0; start = 0 }
    { lines++ }
    # A function: its first line begins in column 0 and ends in "{"; its last is "}" in column 0.
    /^[A-Za-z].*\)[ \t]*\{[ \t]*$/ || /^[ \t]+.*\)[ \t]*\{[ \t]*$/ && !start && previous ~ /^[A-Za-z].*[,(][ \t]*$/ {
        if (!start) start = FNR
    }
    /^\}/ {
        if (start && FNR - start + 1 > 120) {
            printf "%s:%d: function of %d lines, more than 120: one idea a function\n", FILENAME,
                start, FNR - start + 1
            bad = 1
        }
        start = 0
    }
    { previous = $0 }
    END { close_file(); exit bad }
' $files || bad=1

# Letters count, not their bytes; clang-format takes no care of comments. Rows of tables (.def) are
# code.
commented=$(find src include tests examples bench scripts cmake -type f \( -name '*.c' -o \
    -name '*.h' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.py' -o \
    -name '*.cmake' \) 2>/dev/null | LC_ALL=C sort)
# shellcheck disable=SC2086 # paths here have no spaces
LC_ALL=C awk '
    function columns(text) { gsub(/[\200-\277]/, "", text); return length(text) }
    FNR == 1 { inside = 0; hash = FILENAME ~ /\.(sh|cmake|py)$/ }
    {
        if (hash) comment = /^[ \t]*#[^!]/ && !/shellcheck/
        else comment = inside || /^[ \t]*\/\*/
        if (!hash && /\/\*/ && !/\*\//) inside = 1
        if (!hash && /\*\//) inside = 0
        if (comment && columns($0) > 100) {
            printf "%s:%d: a comment of %d columns, more than 100\n", FILENAME, FNR, columns($0)
            bad = 1
        }
    }
    END { exit bad }
' $commented || bad=1

echo "comparisons with op ids outside src/ir, by file:"
find src -type f -name '*.c' -not -path 'src/ir/*' | LC_ALL=C sort |
    xargs grep -cE '[=!]= IR_OP_[A-Z]' /dev/null | sed -n 's/^\(.*\):\([1-9][0-9]*\)$/  \2 \1/p' | sort -k1,1nr -k2

[ "$bad" = 0 ] && echo "source rules hold"
exit "$bad"
