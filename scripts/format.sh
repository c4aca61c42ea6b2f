#!/usr/bin/env bash
# Formats every C++ and CUDA source as .clang-format says, with the version that CI uses.
#   scripts/format.sh            # in place
#   scripts/format.sh --check    # names the files that differ; exit 1 if there are any
set -euo pipefail

cd "$(dirname "$0")/.."
command -v clang-format-14 >/dev/null || {
  echo "scripts/format.sh: clang-format-14 is missing; on Debian: apt-get install clang-format-14" >&2
  exit 1
}
mapfile -t sources < <(git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')
case ${1:-} in
  "") clang-format-14 -i "${sources[@]}" ;;
  --check) clang-format-14 --dry-run -Werror "${sources[@]}" ;;
  *) echo "scripts/format.sh: $1 is no option; there is --check" >&2; exit 2 ;;
esac
