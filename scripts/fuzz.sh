#!/bin/sh
# Runs every fuzzer and states the line coverage of the parsers.
#
#   scripts/fuzz.sh [--seconds N] [--keep] [FORMAT...]
#
# Each runs N seconds (60) under AddressSanitizer, from tests/fuzz/corpus/<format>/ and from the
# seeds that its comment names. A finding fails the run and leaves the input in
# build/fuzz/findings/. Then a coverage build replays what was found and the files in the comments'
# "Covers:" lines must have 80 % of their lines reached, all together. --keep adds the small inputs
# that reach something new to tests/fuzz/corpus/.
set -eu
cd "$(dirname "$0")/.."

seconds=60 keep=no formats=""
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=$2; shift ;;
        --keep) keep=yes ;;
        -*) sed -n '2,11p' "$0"; exit 2 ;;
        *) formats="$formats $1" ;;
    esac
    shift
done
wanted_percent=80
kept_bytes=8192

sh scripts/packages.sh build test fuzz
if [ -z "$formats" ]; then
    for source in tests/fuzz/fuzz_*.c; do
        [ -e "$source" ] || { echo "no fuzzers in tests/fuzz/"; exit 1; }
        format=${source#tests/fuzz/fuzz_}
        formats="$formats ${format%.c}"
    done
fi
of_comment() { # key, format
    sed -n "s|^ \* $1: *||p" "tests/fuzz/fuzz_$2.c"
}
llvm() { # tool, argument...: Debian also has the tools under versioned names only
    tool=$1
    shift
    command -v "$tool" >/dev/null 2>&1 || tool=$tool-14
    "$tool" "$@"
}
targets=""
for format in $formats; do targets="$targets fuzz_$format"; done

cmake --preset fuzz >/dev/null
cmake --preset coverage >/dev/null
# shellcheck disable=SC2086 # words are meant, here and below
{
    cmake --build --preset fuzz --parallel 2 --target $targets
    cmake --build --preset coverage --parallel 2 --target $targets
}

failed=""
mkdir -p build/fuzz/findings
for format in $formats; do
    corpus=build/fuzz/corpus/$format
    seeds=build/fuzz/seeds/$format
    rm -rf "$corpus" "$seeds"
    mkdir -p "$corpus" "$seeds"
    for ending in $(of_comment Seeds "$format"); do
        for file in ../shared/cases/*/*"$ending" ../shared/data/*"$ending"; do
            [ -f "$file" ] && cp "$file" "$seeds/$(echo "$file" | tr '/' '_')"
        done
    done
    [ -d "tests/fuzz/corpus/$format" ] && cp -r "tests/fuzz/corpus/$format/." "$seeds/"
    dictionary=tests/fuzz/$format.dict
    echo "fuzzing $format: $(find "$seeds" -type f | wc -l) seeds, $seconds s"
    log=build/fuzz/$format.log
    ASAN_OPTIONS=allocator_may_return_null=1 "build/fuzz/tests/fuzz/fuzz_$format" \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/findings/$format-" \
        $([ -e "$dictionary" ] && echo "-dict=$dictionary") "$corpus" "$seeds" >"$log" 2>&1 || {
        failed="$failed $format"
        grep -aE 'ERROR|SUMMARY|Test unit written' "$log" || tail -20 "$log"
    }
    grep -aE 'number_of_executed_units|average_exec' "$log" || true
done

covered=""
for format in $formats; do
    corpus=build/fuzz/corpus/$format
    seeds=build/fuzz/seeds/$format
    LLVM_PROFILE_FILE="build/coverage/$format.profraw" "build/coverage/tests/fuzz/fuzz_$format" \
        "$corpus" "$seeds" >/dev/null 2>&1 ||
        echo "notice: the replay of $format ended early (a finding, or an input over its time)"
    for pattern in $(of_comment Covers "$format"); do
        [ -e "$pattern" ] || { echo "fuzz_$format.c covers $pattern, which is not there"; exit 1; }
        case " $covered " in *" $pattern "*) ;; *) covered="$covered $pattern" ;; esac
    done
    if [ "$keep" = yes ]; then
        small=build/fuzz/small/$format
        rm -rf "$small"
        mkdir -p "$small" "tests/fuzz/corpus/$format"
        find "$corpus" -type f -size "-${kept_bytes}c" -exec cp {} "$small/" \;
        ASAN_OPTIONS=allocator_may_return_null=1 "build/fuzz/tests/fuzz/fuzz_$format" -merge=1 \
            "tests/fuzz/corpus/$format" "$small" >/dev/null 2>&1 || failed="$failed $format(merge)"
    fi
done

objects="" profiles=""
for format in $formats; do
    objects="$objects${objects:+ -object }build/coverage/tests/fuzz/fuzz_$format"
    profiles="$profiles build/coverage/$format.profraw"
done
llvm llvm-profdata merge -sparse $profiles -o build/coverage/fuzz.profdata
# Columns of the report: file, regions ×3, functions ×3, lines, missed lines, percent, …
llvm llvm-cov report $objects -instr-profile build/coverage/fuzz.profdata $covered \
    >build/coverage/fuzz.txt
awk 'NF >= 10 && $1 != "Filename" { printf "%-40s %6s lines %8s reached\n", $1, $8, $10 }' \
    build/coverage/fuzz.txt
percent=$(awk '$1 == "TOTAL" { sub(/%/, "", $10); print int($10) }' build/coverage/fuzz.txt)
echo "Line coverage of the parsers: $percent %, wanted $wanted_percent %"
[ -z "$failed" ] || { echo "Findings:$failed (inputs in build/fuzz/findings/)"; exit 1; }
[ "$percent" -ge "$wanted_percent" ]
