#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/safetensors.h"

namespace hyb {

/// What the JSON header of a safetensors file says.
struct TensorHeader {
  std::vector<TensorInfo> tensors;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
};

/// Parses a header and checks every rule of the format except unique names (the caller sorts by
/// name anyway). `data_bytes` is the size of the file without length and header.
/// Throws Error(model) "path: tensor: rule: value".
TensorHeader parse_tensor_header(std::string_view text, std::uint64_t data_bytes,
                                 const std::filesystem::path& path);

}  // namespace hyb
