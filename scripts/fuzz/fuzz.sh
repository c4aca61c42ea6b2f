#!/usr/bin/env bash
# libFuzzer with AddressSanitizer and UBSan; needs clang (scripts/setup.sh fuzz). Targets: gguf (the
# reader and its tokenizers), constraint (grammars, and tokens that follow them). The suites
# core/text/gguf_tokenizer and core/constraint/constraint replay the committed corpora without it.
#   scripts/fuzz/fuzz.sh TARGET BUILD_FOLDER [OPTIONS OF LIBFUZZER...]  # -runs=10000000, -max_total_time=300
#   scripts/fuzz/fuzz.sh TARGET BUILD_FOLDER --shrink                   # what was found -> tests/fuzz/TARGET
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
target=$1
build=$2
shift 2
clang=$(command -v clang++-16) || { echo "clang-16 is missing: scripts/setup.sh fuzz" >&2; exit 2; }
mkdir -p "$build/found"
build=$(cd "$build" && pwd)
cd "$top"

flags=(-std=c++20 -O1 -g1 -I. -I"$build" -DPCRE2_CODE_UNIT_WIDTH=8 -DUTF8PROC_STATIC
  -fsanitize=address,undefined -fno-sanitize-recover=undefined)
case $target in
  gguf) sources=(core/base/*.cpp core/text/*.cpp core/text/jinja/*.cpp
    core/io/{file,gguf,gguf_metadata,mapped_file}.cpp) ;;
  constraint) sources=(core/base/{error,json,strings}.cpp core/text/unicode.cpp core/constraint/*.cpp) ;;
esac
rules=$build/build.ninja
{
  echo "builddir = $build"
  echo "rule cxx"
  echo "  command = $clang ${flags[*]} -fsanitize=fuzzer-no-link -MD -MF \$out.d -c \$in -o \$out"
  echo "  depfile = \$out.d"
  echo "rule link"
  echo "  command = $clang ${flags[*]} -fsanitize=fuzzer \$in -o \$out -lfmt -lpcre2-8 -lutf8proc -lxxhash -pthread"
  objects=()
  for source in "${sources[@]}" tests/fuzz/${target}_fuzz.cpp; do
    object=$build/${source//\//_}.o
    echo "build $object: cxx $top/$source"
    objects+=("$object")
  done
  echo "build $build/${target}_fuzz: link ${objects[*]}"
} > "$rules"
ninja -f "$rules" >&2

if [ "${1:-}" = --shrink ]; then
  rm -rf "$build/small"
  mkdir "$build/small"
  "$build/${target}_fuzz" -merge=1 -max_len=2000 "$build/small" tests/fuzz/$target "$build/found"
  rm -f tests/fuzz/$target/*
  # The smallest are enough: those that lead deepest are the longest and few.
  for file in $(ls -Sr "$build/small" | head -n 200); do cp "$build/small/$file" tests/fuzz/$target; done
  exit 0
fi
exec "$build/${target}_fuzz" -artifact_prefix="$build/" -max_len=4096 -timeout=10 -print_final_stats=1 "$@" "$build/found" tests/fuzz/$target
