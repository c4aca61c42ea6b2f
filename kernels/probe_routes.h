#pragma once

#include <cstddef>
#include <cstdint>

namespace hyb::kernels {

/// Reads all bytes (a multiple of 1024); the answer depends on each, so that none is left out.
std::uint64_t read_all_avx512(const std::byte* bytes, std::size_t count);
std::uint64_t read_all_avx2(const std::byte* bytes, std::size_t count);
std::uint64_t read_all_plain(const std::byte* bytes, std::size_t count);

/// Runs `rounds` rounds of independent dot products in registers, adds something that depends on
/// them to `sink`, and returns the operations done.
std::int64_t dot_bf16_avx512(std::int64_t rounds, float& sink);
std::int64_t dot_f32_avx512(std::int64_t rounds, float& sink);
std::int64_t dot_f32_avx2(std::int64_t rounds, float& sink);
std::int64_t dot_f32_plain(std::int64_t rounds, float& sink);

}  // namespace hyb::kernels
