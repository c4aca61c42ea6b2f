#!/usr/bin/env bash
# thread_races.sh [--short] [--build FOLDER]: what has threads under ThreadSanitizer; exit 1 where
# it reports a race.
#
# --short builds hyb_tests_threads alone (scripts/cmake/tests.cmake): the thread pool, queues of transfers,
# links, threaded runners, workers, the log, background work, and their tests. 1.6 minutes of
# processor, cold; a run takes 3 seconds of processor and 15 by the clock.
# Else core's tests but those of texts and simulations, which have one thread, and the tests of
# batches, lanes, tiers and sessions on hyb as a whole, too. That builds nearly all there is, in 12
# minutes of processor, and runs for 20 or more, half of them in app/surface_lanes; on a busy machine
# tests may run out of their time.
#
# What is not seen: in a process that was forked from one with threads ThreadSanitizer ignores the
# thread that was forked (die_after_fork=0: it would end the process where it starts threads), so of
# a worker its pool's threads alone are watched. The same runner is watched whole in one process
# where the prefill lane has memory of its own. The kernels' graphs are a card's own matter.
set -euo pipefail

cd "$(dirname "$0")/../.."
folder=build-threads
is_short=
while [ $# -gt 0 ]; do
  case $1 in
    --short) is_short=1 ;;
    --build) folder=$2; shift ;;
    *) sed -n 's/^# \{0,1\}//p' "$0" | sed -n '/^!/!p'; exit 2 ;;
  esac
  shift
done

targets=(hyb_tests_threads)
[ -n "$is_short" ] || targets+=(hyb hyb_tests_core hyb_tests_app)
scripts/build.sh "$folder" "${targets[@]}" -- -DHYB_CUDA=OFF -DCMAKE_BUILD_TYPE=Dev \
  -DCMAKE_CXX_FLAGS_DEV=-O1 -DHYB_SANITIZE=thread
folder=$(realpath "$folder")
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
# Reports of processes whose stderr a test reads, too, are files. Some tests cut a file that is
# mapped, for which hyb has a handler of its own.
export TSAN_OPTIONS="die_after_fork=0 handle_sigbus=0 log_path=$reports/race"

failed=0
run() {
  "$folder/$1" --no-path-filenames=true "${@:2}" >"$reports/output" 2>&1 && return
  cat "$reports/output"
  failed=1
}

# app/ui/process: with this sanitizer _exit() of a forked process writes what stdio has buffered.
run hyb_tests_threads -tse=app/ui/process
if [ -z "$is_short" ]; then
  run hyb_tests_core -tse='core/text/*,core/io/tensor_files,core/io/safetensors,core/replay/*,sim/*'
  run hyb_tests_app \
    -ts='app/batch/*,app/sessions/*,app/tiers,app/idle_memory,app/bench/card_watch,app/surface_lanes,app/surface_batch,app/surface_reuse' \
    -tce='*measure*,bench*,*sweep*'
fi
races=$(find "$reports" -name 'race.*' | wc -l)
find "$reports" -name 'race.*' -exec cat {} +
echo "processes with reports of races: $races"
[ "$races" = 0 ] && [ "$failed" = 0 ]
