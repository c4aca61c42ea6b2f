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
# Lines that say nothing new are left out: ninja takes globbed folders for changed every time, so
# a dry run cannot tell whether there is something to do.
noise='^ninja: (Entering directory|no work to do)|Re-checking globbed directories'
ninja -C "$folder" "${targets[@]}" | { grep -vE --line-buffered "$noise" >&2 || true; }
