#!/bin/sh
# Each lint finds the fault it is for: small trees with one fault each must be refused, with the
# words that name it, and the same tree without it must pass.
# Usage: selftest.sh <folder of the lints>
set -eu
lints=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

fresh() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree/src/base" "$work/tree/src/ir" "$work/tree/src/fusion" "$work/tree/src/compile" \
        "$work/tree/src/capi" "$work/tree/src/exec" "$work/tree/include/stator" "$work/tree/tests" \
        "$work/tree/examples"
    cd "$work/tree"
    echo '#include <stddef.h>' >src/base/a.h
    echo '#include "base/a.h"' >src/ir/graph.h
    printf '#include "ir/graph.h"\n#include "base/a.h"\n' >src/fusion/pass.c
    printf '#include "kernels/table.h"\n' >src/compile/pipeline.c
    printf '#include <stator/stator.h>\n#include "ir/graph.h"\n' >src/capi/api.c
    printf 'int stator_x(void);\n' >include/stator/stator.h
}
passes() { # lint
    if ! sh "$lints/$1.sh" "$work/tree" >"$work/out" 2>&1; then
        echo "$1 refuses a clean tree:"
        cat "$work/out"
        bad=1
    fi
}
refused() { # lint, file, text that names the fault
    if sh "$lints/$1.sh" "$work/tree" >"$work/out" 2>&1; then
        echo "$1 lets pass: $3 in $2"
        bad=1
    elif ! grep -q "$3" "$work/out" || ! grep -q "$2" "$work/out"; then
        echo "$1 does not name '$3' in $2 but says:"
        cat "$work/out"
        bad=1
    fi
    fresh
}

fresh
for lint in arrows source words; do passes $lint; done

echo '#include "compile/plan.h"' >src/ir/up.c; refused arrows src/ir/up.c 'may include ir base'
echo '#include "shard/mesh.h"' >src/fusion/x.c; refused arrows src/fusion/x.c 'may include fusion'
echo '#include "kernels/kernel.h"' >src/compile/x.c; refused arrows src/compile/x.c 'may include'
mkdir src/comm
printf '#include "ir/types.h"\n#include "ir/graph.h"\n' >src/comm/x.c
refused arrows src/comm/x.c 'graph.h": src/comm may include'
echo '  #  include "a.h"' >src/base/b.c; refused arrows src/base/b.c 'relative to src'
echo '#include <dnnl.h>' >src/exec/x.c; refused arrows src/exec/x.c 'only kernels/onednn'
echo '#include <stator/stator.h>' >src/exec/x.c; refused arrows src/exec/x.c 'may include exec'
mkdir src/tools
printf '#include <stator/stator.h>\n#include "ir/graph.h"\n' >src/tools/main.c
refused arrows src/tools/main.c 'only src/capi may'
mkdir src/other; echo '#include "base/a.h"' >src/other/x.c; refused arrows src/other/x.c 'no arrows'

echo '        case IR_OP_ADD:' >src/fusion/x.c; refused source src/fusion/x.c 'row of a table'
echo 'void f(void) { exit(1); }' >src/ir/x.c; refused source src/ir/x.c 'does not end the program'
echo 'void f(void) { abort (); }' >src/exec/x.c; refused source src/exec/x.c 'does not end the program'
echo 'void *f(void) { return malloc(3); }' >src/exec/x.c; refused source src/exec/x.c 'st_malloc'
echo 'char *f(void) { return getenv("A"); }' >src/ir/x.c; cp src/ir/x.c src/exec/x.c
refused source src/exec/x.c 'one file'
awk 'BEGIN { for (i = 0; i < 801; i++) print "int x;" }' >src/ir/long.c
refused source src/ir/long.c 'more than 800'
awk 'BEGIN { print "int f(void) {"; for (i = 0; i < 120; i++) print "    x();"; print "}" }' >src/ir/f.c
refused source src/ir/f.c 'more than 120'
awk 'BEGIN { printf "/* short\n * "; for (i = 0; i < 98; i++) printf "x"; print " */" }' >src/ir/wide.c
refused source src/ir/wide.c 'more than 100'
awk 'BEGIN { printf "# "; for (i = 0; i < 99; i++) printf "x"; print "" }' >tests/wide.sh
refused source tests/wide.sh 'more than 100'
awk 'BEGIN { printf "# "; for (i = 0; i < 98; i++) printf "é"; print "" }' >tests/wide.sh
passes source; fresh
printf '/* exit(1) and\n * malloc(3) */\nconst char *a = "abort()"; // free(x)\n' >src/ir/x.c
passes source

printf '/* see /%s/x */\n' root >src/ir/x.c; refused words src/ir/x.c 'one machine'
printf '/* %s later */\n' 'TO''DO' >src/ir/x.c; refused words src/ir/x.c 'finish it'
printf '/* as %s 7 asks */\n' issue >src/ir/x.c; refused words src/ir/x.c 'speaks of itself'

[ "$bad" = 0 ] && echo "every planted fault was found"
exit "$bad"
