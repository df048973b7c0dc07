#!/bin/sh
# Kept plans are of a build: its hash changes with the source of any pass, kernel or op, and with
# nothing else; and the command has the hash of the sources that it was built from.
. "$(dirname "$0")/common.sh"
command -v cmake > /dev/null || skip "cmake is absent"
source=$STATOR_SOURCE_DIR

cp -R "$source/src" tree
hash() {
    cmake -DROOT="$PWD/tree" -DVERSION=1.2.3 -DOUT="$PWD/made.c" -P "$source/cmake/plan_build.cmake"
    sed -n 's/.*plan_build\[\] = "\(.*\)";/\1/p' made.c
}
first=$(hash)
case $first in 1.2.3-????????????????) ;; *) fail "'$first' is no version and hash" ;; esac
[ "$(hash)" = "$first" ] || fail "the hash of the same sources changes"
for file in fusion/simplify.c ir/ops.def schedule/pack.c shard/decide.c kernels/table.c compile/memory.c \
    autodiff/precision.c base/heap.c; do
    [ -f "tree/$file" ] || fail "there is no $file"
    echo '/* another */' >> "tree/$file"
    second=$(hash)
    [ "$second" != "$first" ] || fail "$file does not count"
    first=$second
done
mv tree/fusion/simplify.c tree/fusion/simpler.c
[ "$(hash)" != "$first" ] || fail "a file's name does not count"
first=$(hash)
echo '/* another */' >> tree/tools/main.c
echo '/* another */' >> tree/exec/session.c
[ "$(hash)" = "$first" ] || fail "what makes no plans counts"

rm -rf tree
cp -R "$source/src" tree
version=$(sed -n 's/^project(.* VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
cmake -DROOT="$PWD/tree" -DVERSION="$version" -DOUT="$PWD/made.c" -P "$source/cmake/plan_build.cmake"
own=$(sed -n 's/.*plan_build\[\] = "\(.*\)";/\1/p' made.c)
# where it is linked to libstator.so, that one has it
library=$(ldd "$stator" | sed -n 's/.*libstator\.so[^ ]* => \(.*\) (0x[0-9a-f]*)$/\1/p')
grep -qF -e "$own" "${library:-$stator}" || fail "the command is of another build than $own"
