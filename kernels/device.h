#pragma once

#include <cstdint>

namespace hyb::kernels {

enum class Device : std::uint8_t { cpu, cuda };

/// True where this build has the ops' CUDA routes. Where it is false, calls of what kernels/cuda/
/// declares are inside `if constexpr (has_cuda)` and are left out.
inline constexpr bool has_cuda = HYB_HAS_CUDA;

/// Instruction sets that ops have routes for. `avx512` means F, BW, VL, DQ, VBMI and BF16; `avx2`
/// means AVX2, FMA and F16C. Answers are bit-identical within one level, not between levels.
enum class Isa : std::uint8_t { plain, avx2, avx512 };

/// The best level of this machine (cpuid, and the operating system saves the registers).
Isa best_isa();

}  // namespace hyb::kernels
