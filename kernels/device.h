#pragma once

#include <cstdint>

namespace hyb::kernels {

enum class Device : std::uint8_t { cpu, cuda };

/// Instruction sets that ops have routes for. `avx512` means F, BW, VL, DQ and BF16; `avx2` means
/// AVX2, FMA and F16C. Answers are bit-identical within one level, not between levels.
enum class Isa : std::uint8_t { plain, avx2, avx512 };

/// The best level of this machine (cpuid, and the operating system saves the registers).
Isa best_isa();

}  // namespace hyb::kernels
