#!/bin/sh
# clang-format leaves every file as it is. Usage: format.sh <repository root> <clang-format>
set -eu
cd "$1"
find src include tests examples -type f \( -name '*.c' -o -name '*.h' \) | LC_ALL=C sort |
    xargs "$2" --dry-run -Werror --style=file
