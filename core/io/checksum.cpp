#include "core/io/checksum.h"

#include <xxhash.h>

namespace hyb {

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace hyb
