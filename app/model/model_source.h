#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/machine/environment.h"
#include "core/io/gguf.h"
#include "core/io/tensor_files.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"
#include "models/config.h"

namespace hyb::app {

/// Source of a model: a folder, a GGUF file, the demo model inside the binary, or a preset (a
/// published config.json without weights).
class ModelSource {
 public:
  /// `name`: "demo", a folder, org/name[@revision] in the Hugging Face cache, a preset's name, or
  /// what find_gguf() takes; a line of log says which file that was.
  /// Throws Error(model) that says what is near where it is nowhere. `chat_template`: a file to
  /// take it from, or the name of one of the model's own, which comes first unless a slash says
  /// that it is a file; empty: the model's default.
  static ModelSource find(const std::string& name, const Environment& environment,
                          const std::string& chat_template = {});

  /// The same for another model, with its own default template.
  ModelSource other(const std::string& name) const;

  /// Returns the name as typed.
  const std::string& name() const { return name_; }
  /// Names a file of this model in messages.
  std::string path_of(std::string_view file) const;
  /// The folder; none for GGUF files, the demo and presets.
  const std::optional<std::filesystem::path>& folder() const { return folder_; }
  /// True if the model is in files that others may write.
  bool has_files() const { return folder_ || gguf_; }
  bool is_gguf() const { return gguf_.has_value(); }
  /// Opened, where it is a GGUF file: its header is read once. Null: it is none.
  const GgufFiles* gguf() const;

  /// A text file, or nothing when there is none; of a GGUF file a generation_config.json with the
  /// tokens that end an answer. Throws Error(model) above `bytes_max`, and for
  /// what is there and can't be read: a link to a blob that was never downloaded, a FIFO.
  std::optional<std::string> read(const std::string& file,
                                  std::size_t bytes_max = std::size_t{256} << 20) const;

  models::Config config() const;
  /// nullopt: there is none. Throws Error(model) as Tokenizer::from_json() and from_gguf().
  std::optional<Tokenizer> tokenizer() const;
  /// "tokenizer.json", or "tiktoken.model" where a folder has only that.
  std::string tokenizer_file() const;
  /// The most memory that it takes, as peaks of Pss show: three to four times its file, or six to
  /// eleven times the texts of a GGUF file's tokens and merges, of 16 bytes more each.
  std::size_t tokenizer_bytes() const;

  /// The template that find() was given, else the model's default; named as in messages. Throws
  /// Error(usage) with the names that there are where neither a file nor a template has the name
  /// that was given, and Error(model) as find_chat_templates().
  std::optional<NamedTemplate> chat_template() const;
  /// The one for conversations with tools, where the model has one and find() was given none.
  std::optional<NamedTemplate> tool_template() const;
  /// The model's own: "default, rag"; empty: none.
  std::string chat_template_names() const;

  /// True if all files of the weights are there.
  bool has_tensors() const;
  /// Does what TensorFiles::missing_in does.
  std::optional<MissingFiles> missing_files() const;

  /// Why there are no tensors, and what to do about it: where has_tensors() is false.
  std::string lack_of_tensors() const;

  TensorFiles tensors() const;

 private:
  enum class Kind { folder, gguf, demo, preset };
  /// The files are opened at first use. A copy opens its own.
  struct OpenedGguf {
    OpenedGguf() = default;
    OpenedGguf(const OpenedGguf&) {}
    OpenedGguf& operator=(const OpenedGguf&) { return files.reset(), *this; }

    std::mutex mutex = {};
    std::optional<GgufFiles> files = {};
  };

  models::Config with_tie_of_files(models::Config config) const;
  std::vector<NamedTemplate> own_templates() const;
  std::optional<NamedTemplate> own_template(std::string_view name) const;

  Kind kind_ = Kind::folder;
  std::string name_;
  std::optional<std::filesystem::path> folder_;
  std::optional<std::filesystem::path> gguf_;
  mutable OpenedGguf opened_;
  std::string chat_template_;  ///< as given to find()
  Environment environment_;
};

/// The names of the published configurations inside the binary, sorted.
std::vector<std::string> preset_names();

/// The names of presets and of the models of all stores, by which find() takes them.
std::vector<std::string> known_models(const HubEnvironment& hub);

}  // namespace hyb::app
