#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "app/environment.h"
#include "core/io/tensor_files.h"
#include "models/config.h"

namespace hyb::app {

/// Where a model's files are: a folder, the demo model inside the binary, or a preset (a published
/// config.json without weights).
class ModelSource {
 public:
  /// `name`: "demo", a folder, org/name[@revision] in the Hugging Face cache, or a preset's name.
  /// Throws Error(model) listing what was looked for.
  static ModelSource find(const std::string& name, const Environment& environment);

  /// What to call the model: the name as typed.
  const std::string& name() const { return name_; }
  /// Names a file of this model in messages.
  std::string path_of(std::string_view file) const;
  /// The folder; none for the demo and for presets.
  const std::optional<std::filesystem::path>& folder() const { return folder_; }

  /// A text file, or nothing when there is none. Throws Error(model) above `bytes_max`, and for
  /// what is there and can't be read: a link to a blob that was never downloaded, a FIFO.
  std::optional<std::string> read(const std::string& file,
                                  std::size_t bytes_max = std::size_t{256} << 20) const;

  models::Config config() const;
  std::optional<std::string> chat_template(const std::string& name) const;

  bool has_tensors() const;
  TensorFiles tensors() const;

 private:
  enum class Kind { folder, demo, preset };
  Kind kind_ = Kind::folder;
  std::string name_;
  std::optional<std::filesystem::path> folder_;
};

}  // namespace hyb::app
