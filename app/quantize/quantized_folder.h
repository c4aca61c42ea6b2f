#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "app/model/model_source.h"
#include "kernels/queue.h"
#include "models/written_groups.h"

namespace hyb::app {

struct FolderFormat {
  std::string_view name;  ///< for people
  models::WrittenFormat written;
};

/// Returns the weight of each column of a matrix.
using Importance =
    std::function<std::vector<float>(const models::WeightKey& key, std::int64_t columns)>;

/// A model's folder with its linear weights in groups, as compressed-tensors has it: config.json
/// with a quantization_config, safetensors, and the files of the texts as they are.
///
/// While it is not complete there is no config.json, but a file hyb-quantize.json that says what it
/// is made of. Files appear whole or not at all, so that a rerun adds what is missing.
class QuantizedFolder {
 public:
  /// Opens the model's files and decides what becomes of each tensor; writes nothing. Throws
  /// Error(model) for a model that hyb cannot load, or whose matrices are neither BF16, F16 nor
  /// F32, and for names that collide with those to be written; Error(usage) for GGUF files, models
  /// that are quantised, and those of which no matrix can be in the format.
  QuantizedFolder(const ModelSource& source, const FolderFormat& format,
                  std::size_t shard_bytes = std::size_t{1} << 30);

  /// Makes `folder`, or goes on with one that the same `job` began. Throws Error(usage) for one
  /// that holds anything else, and Error(runtime) where it can't be written or has too little room.
  void claim(const std::filesystem::path& folder, std::string_view job);

  /// True if claim() found all weights.
  bool has_all_weights() const;

  /// Writes what is missing. Throws Error(runtime) that names the file, Error(model) for numbers
  /// that are not finite; what is complete stays.
  void write(kernels::Queue& queue, const Importance& importance,
             const std::function<void(std::size_t bytes)>& progress);

  std::size_t bytes() const { return bytes_; }  ///< of all weights
  /// Says in one line what became of the tensors.
  std::string summary() const;

 private:
  struct Entry {
    std::string name;                               ///< in the files
    const models::PlannedMatrix* matrix = nullptr;  ///< null: it is copied
    std::vector<models::WrittenTensor> tensors = {};
    std::size_t bytes = 0;
  };
  struct Shard {
    std::size_t first, end;  ///< of entries_
    std::string header;      ///< with its length
    std::size_t bytes = 0;   ///< of the file
    std::string file = {};
  };

  void plan_entries();
  [[noreturn]] void refuse_nothing() const;
  void plan_shards(std::size_t shard_bytes);
  void note_kept(const Entry& entry, const models::PlannedMatrix* matrix);
  float largest_of(kernels::Queue& queue, const models::PlannedMatrix& matrix);
  void write_shard(const Shard& shard, kernels::Queue& queue, const Importance& importance,
                   const std::function<void(std::size_t)>& progress);
  std::string kept_text() const;
  std::string index_text() const;
  std::string config_text() const;
  bool is_there(const Shard& shard) const;

  ModelSource source_;
  FolderFormat format_;
  TensorFiles files_;
  std::string config_;
  models::Plan plan_;
  models::WeightIndex index_;
  std::vector<models::PlannedMatrix> matrices_;
  std::vector<Entry> entries_;
  std::vector<Shard> shards_;
  std::map<std::int64_t, float> largest_;     ///< of what is joined
  std::map<std::string, std::int64_t> kept_;  ///< how many tensors of a kind
  std::vector<std::string> odd_, modules_;    ///< matrices that are no groups; modules kept
  std::size_t bytes_ = 0, coded_bytes_ = 0;
  double numbers_ = 0, coded_numbers_ = 0;
  std::int64_t coded_ = 0;
  std::filesystem::path folder_;
  std::string job_;
};

}  // namespace hyb::app
