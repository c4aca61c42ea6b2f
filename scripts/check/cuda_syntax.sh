#!/usr/bin/env bash
# Compiles what only a build with nvcc compiles, the tests and tools of cards, as far as their syntax,
# against the toolkit's own headers: the emulator's are another implementation of the same names. No
# card is needed; where no toolkit is, a line says that nothing was checked.
#   scripts/check/cuda_syntax.sh
set -euo pipefail

cd "$(dirname "$0")/../.."
nvcc=$(PATH="$PATH:/usr/local/cuda/bin" command -v nvcc || true)
include=$(dirname "$(readlink -f "${nvcc:-/usr/local/cuda/bin/nvcc}")")/../include
if [[ ! -f $include/cuda_runtime.h ]]; then
  echo "cuda_syntax: no CUDA toolkit here, tests/cuda was not checked against its headers"
  exit 0
fi
defines=(-DHYB_HAS_CUDA=true '-DHYB_TESTS_DIR="tests"')

# As one source: their common headers are most of the time.
sources=$(ls tests/cuda/*.cpp tests/tools/card_*.cpp | grep -v /card_steps.cpp)  # of the emulator
awk '{ print "#define main main_" NR "\n#include \"" $0 "\"\n#undef main" }' <<<"$sources" |
  g++ -std=c++20 -fsyntax-only -I. -isystem "$include" "${defines[@]}" -Wall -Wextra -Wshadow \
    -Wno-restrict -Werror -x c++ - &
host=$!
kernels=(tests/cuda/*.cu tests/tools/*.cu)
if [[ -n $nvcc ]]; then
  for kernel in "${kernels[@]}"; do
    "$nvcc" -std=c++20 -arch=sm_90 --expt-relaxed-constexpr -I. "${defines[@]}" \
      -Xcompiler=-Wall,-Wextra,-Wno-restrict -Werror=all-warnings -cuda -o /dev/null "$kernel"
  done
fi
wait $host
echo "cuda_syntax: $(wc -l <<<"$sources") sources and ${#kernels[@]} of kernels agree with the headers of $include"
