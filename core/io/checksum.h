#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hyb {

/// XXH3, 64 bits: finds damage, protects from no adversary. With different seeds the same bytes
/// have different sums.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace hyb
