#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hyb::testing {

/// Length, header and data, put together as they are: right or wrong.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) {
    out += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> shift & 0xFFU);
  }
  return out.append(header).append(data);
}

}  // namespace hyb::testing
