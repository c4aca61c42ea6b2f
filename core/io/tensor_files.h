#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/io/gguf.h"
#include "core/io/safetensors.h"

namespace hyb {

/// model.safetensors.index.json: which file holds each tensor.
struct ShardIndex {
  std::optional<std::uint64_t> total_bytes;             ///< of all tensors, where it says so
  std::vector<std::string> files;                       ///< plain names, sorted
  std::unordered_map<std::string, std::uint32_t> file;  ///< tensor name -> index in files
};

/// Throws Error(model) with the file and the rule: not {"weight_map": {tensor: file, ...}}, over
/// 100,000,000 bytes, no tensor at all, a file name that could lead out of the folder (empty, "..",
/// with '/'). Of equal tensor names the last counts.
ShardIndex read_shard_index(const std::filesystem::path& path);

/// Lists what a folder lacks of the files that its index lists: a download that is not complete, or
/// an index alone.
struct MissingFiles {
  std::vector<std::string> names;            ///< sorted
  std::size_t listed = 0;                    ///< files that the index lists
  std::optional<std::uint64_t> total_bytes;  ///< as ShardIndex
};

/// The tensors of a model: of a folder with `model.safetensors`, or the files that
/// `model.safetensors.index.json` lists; or of a GGUF file. Opening reads headers only.
///
/// Error(model): a listed file is missing, or a listed tensor is in two of the listed files. What
/// is listed and in none of them is a warning, as is a tensor in another listed file than the index
/// says, or one that the index does not list; these are used. An adapter beside the weights is
/// Error(model), too: they would be run without it.
class TensorFiles {
 public:
  /// Says of a tensor by its name that no model needs it. A listed file that is said to hold such
  /// ones alone may be missing; null: none may.
  using IsUnneeded = bool (*)(std::string_view name);

  explicit TensorFiles(const std::filesystem::path& folder, IsUnneeded is_unneeded = nullptr);

  /// One safetensors file, whatever its name is.
  static TensorFiles of_file(const std::filesystem::path& file);

  /// Those of a GGUF file, of all its parts. Dimensions of 1 may be missing or more there than
  /// elsewhere.
  static TensorFiles of_gguf(GgufFiles files);
  bool are_gguf() const { return gguf_.has_value(); }
  /// Names what says which tensors there are to be, for messages.
  const char* outline_name() const { return gguf_ ? "its metadata" : "config.json"; }

  /// Returns whether the folder has all files of its weights; `inspect` and `fit` need none.
  static bool are_in(const std::filesystem::path& folder, IsUnneeded is_unneeded = nullptr);

  /// Returns what an index lists and the folder lacks; none where no index is in use, or nothing is
  /// lacking. Throws Error(model) as read_shard_index does.
  static std::optional<MissingFiles> missing_in(const std::filesystem::path& folder,
                                                IsUnneeded is_unneeded = nullptr);

  /// dtype, shape and size of a tensor; nullptr when there is none of that name.
  const TensorInfo* find(std::string_view name) const;

  /// The file that holds an existing tensor.
  const std::filesystem::path& path_of(std::string_view name) const;

  /// Maps the data of all files. Call it once, before view().
  void map();

  /// The bytes of an existing tensor; see TensorView for alignment.
  TensorView view(std::string_view name) const;

  /// Releases the physical pages of an existing tensor, for one that was copied elsewhere.
  void drop(std::string_view name) const;

  /// All names, file by file, ordered by data offset.
  std::vector<std::string_view> names() const;

  /// Sum of all tensors.
  std::uint64_t bytes() const;

  /// Names what the tensors are of, for messages: the folder, or the GGUF file.
  std::string source() const;

  /// The files, at least one.
  std::vector<std::filesystem::path> paths() const;

 private:
  TensorFiles() = default;

  struct Place {
    std::uint32_t file;
    std::uint32_t tensor;
  };

  void open_one(const std::filesystem::path& path);
  void check_against(const ShardIndex& index, const std::filesystem::path& index_path,
                     IsUnneeded is_unneeded) const;
  const Place& place(std::string_view name) const;
  const TensorInfo& at(const Place& place) const;

  std::vector<SafetensorsFile> files_;
  std::optional<GgufFiles> gguf_;         ///< then there are no files_
  std::vector<TensorInfo> gguf_tensors_;  ///< what they are called here; file 0 of a Place
  std::unordered_map<std::string_view, Place> places_;  // keys point into the TensorInfos
};

}  // namespace hyb
