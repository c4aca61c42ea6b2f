#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

namespace hyb {

/// What model.safetensors.index.json says: in which file each tensor lies.
struct ShardIndex {
  std::vector<std::string> files;                       ///< plain names, sorted
  std::unordered_map<std::string, std::uint32_t> file;  ///< tensor name -> index in files
};

/// Throws Error(model) naming the file and the rule: not {"weight_map": {tensor: file, ...}}, over
/// 100,000,000 bytes, duplicate names, no tensor at all, a file name that is not plain (with '/',
/// "..", empty) and so could lead out of the folder.
ShardIndex read_shard_index(const std::filesystem::path& path);

}  // namespace hyb
