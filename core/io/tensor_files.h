#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/io/safetensors.h"

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

/// The tensors of a model folder: `model.safetensors`, or the files that
/// `model.safetensors.index.json` lists. Opening reads headers only.
///
/// The index must be {"weight_map": {tensor: file, ...}, ...}; files are plain names inside the
/// folder. A listed file that is missing, a tensor that is in none or in two of the listed files
/// are Error(model); a tensor in another listed file than the index says, and tensors that the
/// index does not know, are warnings and the tensors are used.
class TensorFiles {
 public:
  explicit TensorFiles(const std::filesystem::path& folder);

  /// One safetensors file, whatever its name is.
  static TensorFiles of_file(const std::filesystem::path& file);

  /// Whether the folder has one of the two files: a folder with config.json alone is fine for
  /// `inspect` and `fit`.
  static bool are_in(const std::filesystem::path& folder);

  /// dtype, shape and size of a tensor; nullptr: there is none of that name.
  const TensorInfo* find(std::string_view name) const;

  /// The file that holds a tensor which is there.
  const std::filesystem::path& path_of(std::string_view name) const;

  /// Maps the data of all files. Call it once, before view().
  void map();

  /// The bytes of a tensor which is there; see TensorView for alignment.
  TensorView view(std::string_view name) const;

  /// Gives back the physical pages of a tensor which is there, once it was packed elsewhere.
  void drop(std::string_view name) const;

  /// All names, file by file in the order of their data.
  std::vector<std::string_view> names() const;

  /// Sum of all tensors.
  std::uint64_t bytes() const;

  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  TensorFiles() = default;

  struct Place {
    std::uint32_t file;
    std::uint32_t tensor;
  };

  void open_one(const std::filesystem::path& path);
  void check_against(const ShardIndex& index, const std::filesystem::path& index_path) const;
  const Place& place(std::string_view name) const;

  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string_view, Place> places_;  // keys point into the TensorInfos
};

}  // namespace hyb
