#!/bin/sh
# Who may include whom under src/. Usage: arrows.sh <repository root>
#
#   base ← ir ← {import, autodiff, shard, fusion, schedule} ← compile ← exec
#   base ← device ← {comm, kernels};  ir ← kernels;  state → base, ir
#   compile → kernels/table.h, and of kernels nothing else
#   comm → ir/types.h and ir/convert.h (a reduction needs the element type), and of ir nothing else
#   capi → everything; it alone includes both include/stator/ and internals
#
# Vendor headers stay in the folder that wraps them: oneDNN in kernels/onednn, CUDA in device/cuda,
# kernels/cuda and comm/nccl, generated readers and JSON where a format is read.
set -eu
cd "$1"

find src -type f \( -name '*.c' -o -name '*.h' -o -name '*.def' -o -name '*.inc' -o -name '*.cu' \) | LC_ALL=C sort |
while IFS= read -r file; do
    sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*\([<"][^>"]*[>"]\).*/\1/p' "$file" |
        sed "s|^|$file |"
done | awk '
BEGIN {
    allowed["base"] = "base"
    allowed["ir"] = "ir base"
    allowed["import"] = "import ir base"
    allowed["autodiff"] = "autodiff ir base"
    allowed["shard"] = "shard ir base"
    allowed["fusion"] = "fusion ir base"
    allowed["schedule"] = "schedule ir base"
    allowed["device"] = "device base"
    allowed["comm"] = "comm device base"
    allowed["kernels"] = "kernels device ir base"
    allowed["compile"] = "compile import autodiff shard fusion schedule ir base"
    allowed["exec"] = "exec compile device comm kernels ir base"
    allowed["state"] = "state ir base"
    all = "import autodiff shard fusion schedule device comm kernels compile exec state ir base"
    allowed["capi"] = "capi stator " all
    allowed["tools"] = "tools capi stator " all

    # Headers from outside the C library: who may include them.
    outside["json-c/"] = "import state tools"
    outside["json.h"] = outside["json-c/"]
    outside["zlib.h"] = "import state"
    outside["protobuf-c/"] = "ir import state compile"
    outside["stator.pb-c.h"] = "ir compile"
    outside["onnx"] = "import"
    outside["sentencepiece.pb-c.h"] = "state"
    outside["dnnl"] = "kernels/onednn"
    outside["oneapi/"] = "kernels/onednn"
    outside["cuda"] = "device/cuda kernels/cuda comm/nccl"
    outside["nccl"] = "comm/nccl device/cuda"
    outside["mpi.h"] = "comm/mpi"
    n_seen = n_bad = 0
}
function among(word, list,   words, n, i) {
    n = split(list, words, " ")
    for (i = 1; i <= n; i++) if (words[i] == word) return 1
    return 0
}
function bad(text) {
    printf "%s includes %s: %s\n", $1, $2, text
    n_bad++
}
{
    n_seen++
    split($1, path, "/")
    folder = path[2]
    subfolder = path[2] "/" path[3]
    header = substr($2, 2, length($2) - 2)
    if (!(folder in allowed)) { bad("folder src/" folder " has no arrows in tests/lint/arrows.sh"); next }

    for (prefix in outside) {
        if (index(header, prefix) == 1) {
            if (!among(folder, outside[prefix]) && !among(subfolder, outside[prefix]))
                bad("only " outside[prefix] " may")
            next
        }
    }
    split(header, target, "/")
    internal = target[1] in allowed
    if (substr($2, 1, 1) == "\"" && !internal && target[1] != "stator") {
        bad("paths are relative to src/, with the folder")
        next
    }
    if (!internal && target[1] != "stator") next # the C library
    if (internal && substr($2, 1, 1) == "<") bad("internal headers are included with quotes")

    if (folder == "compile" && header == "kernels/table.h") next
    if (folder == "comm" && (header == "ir/types.h" || header == "ir/convert.h")) next
    if (!among(target[1], allowed[folder])) {
        bad("src/" folder " may include " allowed[folder])
        next
    }
    if (target[1] == "stator") public[folder] = $1
    else if (target[1] != folder) inside[folder] = $1
}
END {
    for (folder in public) {
        if (folder != "capi" && folder in inside) {
            printf "src/%s includes both include/stator/ (%s) and internals (%s): only src/capi may\n",
                folder, public[folder], inside[folder]
            n_bad++
        }
    }
    if (n_seen == 0) { print "no include lines under src/: wrong folder?"; exit 1 }
    printf "%d include lines, %d against the arrows\n", n_seen, n_bad
    exit n_bad > 0
}'
