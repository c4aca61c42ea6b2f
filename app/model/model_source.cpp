#include "app/model/model_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <ranges>
#include <set>
#include <utility>

#include "app/model/embedded.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/io/gguf_stores.h"
#include "core/io/model_folder.h"
#include "core/text/gguf_tokenizer.h"
#include "models/families.h"
#include "models/gguf.h"
#include "models/weight_index.h"

namespace hyb::app {
namespace {

constexpr const char* tiktoken_file = "tiktoken.model";  // Kimi's

std::optional<std::string_view> embedded(const std::string& name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return file.bytes();
  }
  return std::nullopt;
}

std::string preset_file(const std::string& name) { return "presets/" + name + "/config.json"; }

/// Bytes of the binary as a file that can be mapped: the loader has one way to read tensors.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(memfd_create("hyb-demo", MFD_CLOEXEC)) {
    if (descriptor_ < 0) fail(bytes.size());
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t wrote = write(descriptor_, bytes.data() + done, bytes.size() - done);
      if (wrote < 0 && errno != EINTR) fail(bytes.size());
      if (wrote > 0) done += static_cast<std::size_t>(wrote);
    }
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  [[noreturn]] static void fail(std::size_t bytes) {
    const int error = errno;
    throw Error(
        ErrorKind::runtime,
        fmt::format(
            "the demo model can't be unpacked in memory: {}{}", std::strerror(error),
            error == EFBIG ? fmt::format("; it needs {} bytes, raise ulimit -f", bytes) : ""));
  }

  int descriptor_;
};

/// Says which file a name is, once: a command may look a model up more than once.
void say_taken(const std::string& name, const StoredGguf& stored) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (!said.insert(name).second) return;
  log::info(fmt::format("{} is {}{}{}", name, stored.file.string(), stored.note.empty() ? "" : "; ",
                        stored.note));
}

/// Models in the folder that `name` would be in, by its path there.
std::vector<std::string> models_beside(const std::string& name) {
  const std::string folder = name.substr(0, name.rfind('/') + 1);  // npos + 1 is 0
  std::vector<std::string> models;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, ignored), end;
       !ignored && entry != end; entry.increment(ignored)) {
    const std::filesystem::path& path = entry->path();
    if (path.extension() == ".gguf" || is_listed(path / "config.json")) {
      models.push_back(folder + path.filename().string());
    }
  }
  return models;
}

/// The names nearest to one that is nowhere, of few other letters or with the same beginning, at
/// most three; empty: none is near. Presets have no org.
std::string nearest_text(const std::string& name, const HubEnvironment& hub) {
  constexpr std::size_t letters_max = 64, names_max = 3, beginning = 4;
  if (name.size() > letters_max) return {};
  const std::string whole = in_small_letters(std::string(without_hub_host(name)));
  const std::string last = whole.substr(whole.rfind('/') + 1);
  std::vector<std::string> known = known_models(hub);
  std::ranges::move(models_beside(name), std::back_inserter(known));
  std::vector<std::pair<std::size_t, std::string>> near;
  for (std::string& one : known) {
    const std::string there = in_small_letters(one);
    const std::string& word = there.find('/') == std::string::npos ? last : whole;
    const std::size_t distance = edit_distance(word, there);
    const bool begins_alike = word.compare(0, beginning, there, 0, beginning) == 0;
    if (begins_alike || distance <= word.size() / 2) near.emplace_back(distance, std::move(one));
  }
  std::ranges::sort(near);
  near.resize(std::min(near.size(), names_max));
  const auto names = std::views::values(near);
  if (near.empty()) return {};
  return fmt::format("; the nearest {} {}", near.size() == 1 ? "is" : "are",
                     fmt::join(names, ", "));
}

/// The preset that has the sizes of org/name; empty: none.
std::string preset_of(const std::string& name) {
  std::string last = in_small_letters(name.substr(name.rfind('/') + 1));
  last = last.substr(0, last.find_first_of("@:"));
  return embedded(preset_file(last)) ? last : "";
}

/// Returns the command that downloads org/name; empty if it is no such name.
std::string download_text(std::string_view name) {
  name = without_hub_host(name);
  name = name.substr(0, name.find_first_of("@:"));
  const bool is_of_hub = std::ranges::count(name, '/') == 1 && !name.ends_with(".gguf");
  return is_of_hub ? fmt::format("; hf download {} fetches it", name) : "";
}

/// Says of a name that is nowhere what is near, and how to fetch it.
[[noreturn]] void refuse_unknown(const std::string& name, const HubEnvironment& hub,
                                 const std::vector<std::string>& gguf_places) {
  log::debug(fmt::format("looked for {} in this folder, {}, {}", name, hub_folder(hub).string(),
                         fmt::join(gguf_places, ", ")));
  const std::string preset = preset_of(name);
  const std::string sizes = fmt::format("; hyb fit {} shows whether it would fit", preset);
  refuse_model(name, fmt::format("not found{}{}{}; hyb list shows what is there",
                                 preset.empty() ? nearest_text(name, hub) : "", download_text(name),
                                 preset.empty() ? "" : sizes));
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.name.starts_with("presets/")) continue;
    const std::string_view rest = file.name.substr(8);
    names.emplace_back(rest.substr(0, rest.find('/')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> known_models(const HubEnvironment& hub) {
  std::vector<std::string> known = preset_names();
  std::ranges::move(models_in_hub(hub_folder(hub)), std::back_inserter(known));
  for (const StoredGguf& stored : stored_ggufs(hub)) known.push_back(stored.name);
  return known;
}

ModelSource ModelSource::find(const std::string& name, const Environment& environment,
                              const std::string& chat_template) {
  ModelSource source;
  source.name_ = name;
  source.chat_template_ = chat_template;
  source.environment_ = environment;
  std::error_code ignored;
  const bool is_path = std::filesystem::exists(name, ignored);
  if (name == "demo") {  // the default must mean the same in every folder; ./demo is a folder
    source.kind_ = Kind::demo;
  } else if (!is_path && embedded(preset_file(name))) {
    source.kind_ = Kind::preset;
  } else if (const auto stored = find_gguf(name, environment.hub)) {
    source.kind_ = Kind::gguf;
    source.gguf_ = stored->file;
    if (stored->file != name) say_taken(name, *stored);
  } else {
    const std::vector<std::string> places = gguf_places(name, environment.hub);
    if (!is_path && !places.empty() && !find_hub_snapshot(name, environment.hub)) {
      refuse_unknown(name, environment.hub, places);
    }
    source.folder_ = find_model_folder(name, environment.hub);
  }
  return source;
}

ModelSource ModelSource::other(const std::string& name) const { return find(name, environment_); }

std::string ModelSource::path_of(std::string_view file) const {
  if (gguf_) return gguf_->string();
  return folder_ ? (*folder_ / file).string() : fmt::format("{} ({})", file, name_);
}

const GgufFiles* ModelSource::gguf() const {
  if (!gguf_) return nullptr;
  const std::lock_guard lock(opened_.mutex);
  if (!opened_.files) opened_.files.emplace(*gguf_);
  return &*opened_.files;
}

std::optional<std::string> ModelSource::read(const std::string& file, std::size_t bytes_max) const {
  if (folder_) {
    if (!is_listed(*folder_ / file)) return std::nullopt;
    return read_text_file(*folder_ / file, bytes_max);
  }
  if (gguf_) {
    if (file != "generation_config.json") return std::nullopt;
    Json ends = Json::array();
    for (const TokenId token : end_tokens_of(gguf()->metadata())) ends.push_back(index(token));
    return Json{{"eos_token_id", std::move(ends)}}.dump();
  }
  const auto bytes =
      embedded(kind_ == Kind::demo ? "demo/" + file : "presets/" + name_ + "/" + file);
  if (!bytes) return std::nullopt;
  return std::string(*bytes);
}

models::Config ModelSource::config() const {
  if (folder_) return with_tie_of_files(models::Config::from_folder(*folder_));
  if (gguf_) return models::gguf_config(*gguf());
  return models::Config::from_text(read("config.json").value(), path_of("config.json"));
}

std::optional<Tokenizer> ModelSource::tokenizer() const {
  if (gguf_) return Tokenizer::from_gguf(gguf()->metadata());
  const std::string file = tokenizer_file();
  const auto text = read(file);
  if (!text) return std::nullopt;
  return (file == tiktoken_file ? Tokenizer::from_tiktoken : Tokenizer::from_json)(
      *text, path_of(file), read("tokenizer_config.json").value_or(""),
      path_of("tokenizer_config.json"));
}

std::string ModelSource::tokenizer_file() const {
  constexpr const char* usual = "tokenizer.json";
  const bool is_other =
      folder_ && !is_listed(*folder_ / usual) && is_listed(*folder_ / tiktoken_file);
  return is_other ? tiktoken_file : usual;
}

std::size_t ModelSource::tokenizer_bytes() const {
  if (gguf_) {
    std::size_t bytes = 0;
    for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
      for (const std::string_view text : gguf()->metadata().texts(key)) bytes += 16 + text.size();
    }
    return 11 * bytes;
  }
  std::error_code ignored;  // one of the demo is no file, and small
  const std::string name = tokenizer_file();
  const std::uintmax_t file = std::filesystem::file_size(path_of(name), ignored);
  // Merges are in no tiktoken.model: their tables have several times its bytes.
  return ignored ? 0 : (name == tiktoken_file ? 32 : 4) * static_cast<std::size_t>(file);
}

/// Where the flags of the whole model and of its text part differ, the files decide: head and
/// embedding are separate if they have both.
models::Config ModelSource::with_tie_of_files(models::Config config) const {
  constexpr const char* key = "tie_word_embeddings";
  const bool is_tied = config.b(key, false);
  if (config.b("outer_tie_word_embeddings", is_tied) == is_tied || !has_tensors()) return config;
  const models::Family& family = models::family_of(config);
  const TensorFiles files = tensors();
  const auto has = [&](models::Role role) {
    return std::ranges::any_of(files.names(), [&](std::string_view name) {
      return models::role_of(family, name) == role;
    });
  };
  const bool are_apart = has("head") && has("embed");
  return config.without(key).with_defaults(are_apart ? R"({"tie_word_embeddings":false})"
                                                     : R"({"tie_word_embeddings":true})");
}

std::vector<NamedTemplate> ModelSource::own_templates() const {
  if (folder_) return find_chat_templates(*folder_);
  if (gguf_) return gguf_chat_templates(gguf()->metadata());
  const auto text = read("chat_template.jinja");
  return text ? std::vector<NamedTemplate>{{"default", *text}} : std::vector<NamedTemplate>();
}

std::optional<NamedTemplate> ModelSource::own_template(std::string_view name) const {
  for (NamedTemplate& own : own_templates()) {
    if (own.name != name) continue;
    const std::string place = name == "default" ? "chat template" : "chat template " + own.name;
    return NamedTemplate{.name = path_of(place), .text = std::move(own.text)};
  }
  return std::nullopt;
}

std::optional<NamedTemplate> ModelSource::chat_template() const {
  if (chat_template_.empty()) return own_template("default");
  const bool is_path = chat_template_.find('/') != std::string::npos;
  if (!is_path) {
    if (auto own = own_template(chat_template_)) return own;
  }
  if (is_path || is_listed(chat_template_)) {
    return NamedTemplate{.name = chat_template_, .text = read_chat_template(chat_template_)};
  }
  const std::string names = chat_template_names();
  throw Error(ErrorKind::usage,
              fmt::format("--chat-template: '{}' is neither a file nor a template of the model{}",
                          chat_template_, names.empty() ? ", which has none" : ": " + names));
}

std::optional<NamedTemplate> ModelSource::tool_template() const {
  return chat_template_.empty() ? own_template("tool_use") : std::nullopt;
}

std::string ModelSource::chat_template_names() const {
  std::string names;
  for (const NamedTemplate& own : own_templates()) {
    names += (names.empty() ? "" : ", ") + own.name;
  }
  return names;
}

bool ModelSource::has_tensors() const {
  return folder_ ? TensorFiles::are_in(*folder_, models::is_of_other_media)
                 : kind_ == Kind::demo || kind_ == Kind::gguf;
}

std::optional<MissingFiles> ModelSource::missing_files() const {
  return folder_ ? TensorFiles::missing_in(*folder_, models::is_of_other_media) : std::nullopt;
}

std::string ModelSource::lack_of_tensors() const {
  if (kind_ == Kind::preset) {
    return fmt::format(
        "{} is the configuration of a published model, without weights: hyb fit and hyb inspect "
        "read it, hyb bench --random-weights SEED measures it; to run the model give the folder "
        "that holds its weights",
        name_);
  }
  const std::string other = folder_ ? other_format_text(*folder_) : "";
  std::error_code ignored;
  return fmt::format(
      "{} holds no model.safetensors and no model.safetensors.index.json; {}; to measure speed "
      "without weights use --random-weights SEED",
      name_,
      !other.empty() ? other
                     : "its download is not complete" +
                           (std::filesystem::exists(name_, ignored) ? "" : download_text(name_)));
}

TensorFiles ModelSource::tensors() const {
  if (folder_) return TensorFiles(*folder_, models::is_of_other_media);
  if (gguf_) return TensorFiles::of_gguf(GgufFiles(*gguf_));
  require(kind_ == Kind::demo, "model source: only a folder or the demo has tensors");
  const MemoryFile file(embedded("demo/model.safetensors").value());
  return TensorFiles::of_file(file.path());
}

}  // namespace hyb::app
