#pragma once

#include "tests/cuda_emulator/runtime/vector_types.h"

// CUDA's built-in variables, set whenever a block goes on, threadIdx whenever a thread of it does.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;
