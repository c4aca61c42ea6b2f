#!/usr/bin/env bash
# build.sh FOLDER TARGETS... [-- CMAKE OPTIONS...]: configures where needed, builds, prints to
# stderr and only when there is something to do.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
folder=$1
shift
targets=()
while [ $# -gt 0 ] && [ "$1" != "--" ]; do
  targets+=("$1")
  shift
done
[ $# -gt 0 ] && shift

exec </dev/null  # stdin is for hyb
"$top/scripts/setup.sh" "${targets[@]}"
if [ ! -f "$folder/build.ninja" ] || [ $# -gt 0 ]; then
  cmake -S "$top" -B "$folder" -G Ninja "$@" >&2
fi
if ! ninja -C "$folder" -n "${targets[@]}" | grep -q 'no work to do'; then
  ninja -C "$folder" "${targets[@]}" >&2
fi
