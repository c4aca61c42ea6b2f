#pragma once

#include "tests/cuda_emulator/runtime/vector_types.h"

// CUDA's built-in variables, set whenever a thread of a kernel is resumed.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;
