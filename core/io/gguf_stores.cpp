#include "core/io/gguf_stores.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/io/gguf.h"

namespace hyb {
namespace {

namespace fs = std::filesystem;

/// Sorted; none where it is no folder.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_gguf_name(const fs::path& path) {
  return in_small_letters(path.extension().string()) == ".gguf";
}

bool begins_as_gguf(const fs::path& path) {
  try {
    const File file(path);
    std::array<char, 4> magic{};
    if (file.size() < magic.size()) return false;
    file.read(0, std::as_writable_bytes(std::span(magic)));
    return std::string_view(magic.data(), magic.size()) == "GGUF";
  } catch (const Error&) {
    return false;
  }
}

/// True if a file's name is that of one that lies beside models.
bool is_beside_model(const fs::path& file) {
  const std::string name = in_small_letters(file.filename().string());
  constexpr const char* marks[] = {"mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"};
  return std::any_of(std::begin(marks), std::end(marks),
                     [&](const char* mark) { return name.find(mark) != std::string::npos; });
}

/// The same by its content, where the name does not say.
bool is_model(const fs::path& file) {
  try {
    const GgufFiles files(file);
    const std::string_view type = files.metadata().text("general.type").value_or("model");
    return type == "model" && files.metadata().text("general.architecture") != "clip";
  } catch (const Error&) {
    return true;  // running it says what is wrong
  }
}

/// The files of models in a folder, sorted; of split ones the first parts. `depth`: of the folders
/// in it that are looked into.
std::vector<fs::path> models_in(const fs::path& folder, int depth) {
  std::vector<fs::path> files;
  for (const fs::path& path : entries_of(folder)) {
    const std::string name = path.filename().string();
    if (is_folder(path)) {
      if (depth == 0 || name.starts_with('.')) continue;
      std::vector<fs::path> more = models_in(path, depth - 1);
      std::move(more.begin(), more.end(), std::back_inserter(files));
    } else if (is_gguf_name(path) && !is_beside_model(path)) {
      const auto split = gguf_split_name(name);
      if (!split || split->number == 1) files.push_back(path);
    }
  }
  return files;
}

bool has_safetensors(const fs::path& folder) {
  return std::ranges::any_of(entries_of(folder), [](const fs::path& path) {
    const std::string name = path.filename().string();
    return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
  });
}

/// A name as typed: [hf.co/]org/name[@revision][:TAG], [HOST/][NAMESPACE/]MODEL[:TAG].
struct Name {
  explicit Name(std::string_view text) : typed(text) {
    const std::size_t colon = text.rfind(':');
    if (colon != std::string_view::npos && text.find('/', colon) == std::string_view::npos) {
      tag = text.substr(colon + 1);
      text = text.substr(0, colon);
    }
    base = without_hub_host(text);
    is_of_hub = base.size() < text.size();
    const auto is_legal = [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
    };
    for (const fs::path& part : fs::path(base.substr(0, base.rfind('@')))) {
      const std::string word = part.string();
      can_be_path &= !word.empty() && word.front() != '.' && word.front() != '-' &&
                     std::all_of(word.begin(), word.end(), is_legal);
      ++parts;
    }
    can_be_path &= parts > 0;
  }

  std::string typed, base;
  std::string tag;  ///< empty: none
  bool is_of_hub = false;
  bool can_be_path = true;  ///< below a store's folder, and never outside of it
  int parts = 0;
};

/// Returns whether `tag` is a word of the path, before a '-' or '.', or is the file's name.
bool has_tag(const fs::path& path, const std::string& tag) {
  const std::string text = in_small_letters(path.string()), wanted = in_small_letters(tag);
  if (in_small_letters(path.filename().string()) == wanted) return true;
  for (std::size_t at = text.find(wanted); at != std::string::npos;
       at = text.find(wanted, at + 1)) {
    const std::size_t end = at + wanted.size();
    const bool is_start = at == 0 || std::string_view("-./_").find(text[at - 1]) != text.npos;
    if (is_start && end < text.size() && (text[end] == '-' || text[end] == '.')) return true;
  }
  return false;
}

/// Returns what has_tag() holds for: the last part of a name, "Q4_K_M" of
/// "x-Q4_K_M-00001-of-00002.gguf".
std::string tag_of(const fs::path& file) {
  const auto split = gguf_split_name(file.filename().string());
  const std::string stem = split ? split->prefix : file.stem().string();
  return stem.substr(stem.find_last_of("-.") + 1);
}

/// Publisher, repository, file.
std::vector<fs::path> lm_studio_folders(const HubEnvironment& environment) {
  if (!is_set(environment.home)) return {};
  const fs::path home = *environment.home;
  return {home / ".lmstudio/models", home / ".cache/lm-studio/models"};
}

/// Flat: org_name_file.gguf.
fs::path llama_cpp_folder(const HubEnvironment& environment) {
  if (is_set(environment.llama_cache)) return *environment.llama_cache;
  return is_set(environment.home) ? fs::path(*environment.home) / ".cache/llama.cpp" : fs::path();
}

/// Returns ollama's folders, which have manifests/HOST/NAMESPACE/MODEL/TAG and blobs/sha256-HEX.
std::vector<fs::path> ollama_folders(const HubEnvironment& environment) {
  if (is_set(environment.ollama_models)) return {*environment.ollama_models};
  std::vector<fs::path> folders;
  if (is_set(environment.home)) {
    folders.push_back(fs::path(*environment.home) / ".ollama/models");
  }
  folders.emplace_back("/usr/share/ollama/.ollama/models");  // of the service
  return folders;
}

/// The files of one model in a store.
struct Candidates {
  fs::path root;  ///< what of a file's path is no part of its name
  std::vector<fs::path> files;
};

/// Returns what the stores but ollama's have by a name, one after the other. `snapshot`: in the
/// Hugging Face cache.
std::vector<Candidates> candidates(const Name& name, const std::optional<fs::path>& snapshot,
                                   const HubEnvironment& environment) {
  std::vector<Candidates> all;
  if (!name.can_be_path) return all;
  if (snapshot) all.push_back({*snapshot, models_in(*snapshot, 2)});
  for (const fs::path& root : lm_studio_folders(environment)) {
    if (!is_gguf_name(name.base)) {
      if (name.parts == 2) all.push_back({root / name.base, models_in(root / name.base, 1)});
      continue;
    }
    std::vector<fs::path> files = models_in(root, 2);
    std::erase_if(files, [&](const fs::path& file) { return file.filename() != name.base; });
    all.push_back({root, std::move(files)});
  }
  if (const fs::path root = llama_cpp_folder(environment); !root.empty()) {
    std::string prefix = name.base + "_";
    std::replace(prefix.begin(), prefix.end(), '/', '_');
    std::vector<fs::path> files = models_in(root, 0);
    std::erase_if(files, [&](const fs::path& file) {
      const std::string own = file.filename().string();
      return own != name.base && (name.parts != 2 || !own.starts_with(prefix));
    });
    all.push_back({root, std::move(files)});
  }
  return all;
}

/// The only one of the files that are models; nullopt: there is none.
std::optional<fs::path> only_one(std::string_view model, std::vector<fs::path> files) {
  if (files.size() > 1) std::erase_if(files, [](const fs::path& file) { return !is_model(file); });
  if (files.empty()) return std::nullopt;
  if (files.size() == 1) return files.front();
  std::vector<std::string> names;
  for (const fs::path& file : files) names.push_back(file.string());
  refuse_model(model, fmt::format("{} files fit, name one of them: {}", files.size(),
                                  fmt::join(names, ", ")));
}

std::optional<fs::path> pick(const Name& name, Candidates from) {
  const auto with = [&](const std::string& tag) {
    std::vector<fs::path> fitting;
    for (const fs::path& file : from.files) {
      if (has_tag(file.lexically_relative(from.root), tag)) fitting.push_back(file);
    }
    const auto is_last = [&](const fs::path& file) {
      return in_small_letters(tag_of(file)) == in_small_letters(tag);
    };
    if (std::ranges::any_of(fitting, is_last)) std::erase_if(fitting, std::not_fn(is_last));
    return fitting;
  };
  if (!name.tag.empty()) return only_one(name.typed, with(name.tag));
  for (const char* tag : {"Q4_K_M", "Q8_0"}) {
    if (from.files.size() < 2) break;
    if (auto usual = with(tag); !usual.empty()) from.files = std::move(usual);
  }
  return only_one(name.typed, std::move(from.files));
}

constexpr std::string_view ollama_host = "registry.ollama.ai", ollama_namespace = "library";
constexpr std::string_view ollama_media = "application/vnd.ollama.image.";

/// Below manifests/; empty: the name is not of ollama's form.
fs::path ollama_manifest(const Name& name) {
  const int parts = name.parts + (name.is_of_hub ? 1 : 0);
  if (!name.can_be_path || parts > 3 || name.base.find('@') != std::string::npos) return {};
  fs::path path = name.is_of_hub ? "hf.co" : parts < 3 ? ollama_host : std::string_view();
  if (parts < 2) path /= ollama_namespace;
  const Name tag(name.tag.empty() ? "latest" : name.tag);
  return tag.can_be_path && tag.parts == 1 ? path / name.base / tag.base : fs::path();
}

/// The blob of a layer. Nothing but its digest becomes a part of the path.
fs::path ollama_blob(const fs::path& root, const fs::path& manifest, const Json& layer) {
  constexpr std::string_view prefix = "sha256:";
  const Json* const digest = member_of(layer, "digest");
  const std::string text = digest && digest->is_string() ? digest->get<std::string>() : "";
  const std::string_view hex = std::string_view(text).substr(std::min(prefix.size(), text.size()));
  if (!text.starts_with(prefix) || hex.size() != 64 ||
      hex.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    throw Error(ErrorKind::model, fmt::format("{}: a digest must be sha256: and 64 digits, is {}",
                                              manifest.string(), quote_name(text)));
  }
  return root / "blobs" / fmt::format("sha256-{}", hex);
}

/// Returns what its manifest says of a model.
StoredGguf read_manifest(const fs::path& root, const fs::path& manifest) {
  const auto refuse = [&](const char* text) {
    throw Error(ErrorKind::model, fmt::format("{}: {}", manifest.string(), text));
  };
  const Json json = parse_json(read_text_file(manifest, 1 << 20), manifest.string());
  const Json* const layers = member_of(json, "layers");
  if (layers == nullptr || !layers->is_array()) refuse("it has no list of layers");
  StoredGguf stored;
  std::vector<std::string> ignored;
  for (const Json& layer : *layers) {
    const Json* const media = member_of(layer, "mediaType");
    const std::string type = media && media->is_string() ? media->get<std::string>() : "";
    if (!type.starts_with(ollama_media)) continue;
    const std::string kind = type.substr(ollama_media.size());
    if (kind == "tensor" || kind == "json") refuse("its weights are no GGUF file but for MLX");
    if (kind == "adapter") refuse("it is a model with an adapter (LoRA), which is not read");
    if (kind == "system" || kind == "params" || kind == "messages") ignored.push_back(kind);
    if (kind != "model") continue;
    if (!stored.file.empty()) refuse("its weights are several files, of which only one is read");
    stored.file = ollama_blob(root, manifest, layer);
  }
  if (stored.file.empty()) refuse("it names no GGUF file");
  if (!is_listed(stored.file)) {
    throw Error(ErrorKind::model,
                fmt::format("{}: the file that it names is not there: {}; pull the model again",
                            manifest.string(), stored.file.string()));
  }
  if (!ignored.empty()) {
    stored.note =
        fmt::format("what ollama keeps beside it is not used: {}", fmt::join(ignored, ", "));
  }
  return stored;
}

/// Returns whether ollama itself takes the file for a manifest: not what other programs leave
/// there.
bool is_manifest(const fs::path& root, const fs::path& file) {
  const fs::path below = file.lexically_relative(root / "manifests");
  return std::ranges::all_of(below, [](const fs::path& part) {
    const Name name(part.string());
    return name.can_be_path && name.tag.empty();
  });
}

/// A manifest's model by the shortest name that find_gguf() knows it by.
StoredGguf listed_manifest(const fs::path& root, const fs::path& manifest) {
  const fs::path below = manifest.lexically_relative(root / "manifests");
  std::string name = below.parent_path().string() + ":" + below.filename().string();
  for (const std::string_view usual : {ollama_host, ollama_namespace}) {
    if (name.starts_with(std::string(usual) + "/")) name.erase(0, usual.size() + 1);
  }
  StoredGguf stored;
  try {
    stored = read_manifest(root, manifest);
  } catch (const Error& error) {
    stored.trouble = error.what();
  }
  stored.name = std::move(name);
  return stored;
}

std::optional<StoredGguf> in_ollama(const Name& name, const HubEnvironment& environment) {
  const fs::path below = ollama_manifest(name);
  if (below.empty()) return std::nullopt;
  for (const fs::path& root : ollama_folders(environment)) {
    const fs::path manifest = root / "manifests" / below;
    std::error_code ignored;
    if (!fs::is_regular_file(manifest, ignored)) continue;
    StoredGguf stored = read_manifest(root, manifest);
    stored.name = name.typed;
    return stored;
  }
  return std::nullopt;
}

/// Throws: there are only files of another tag.
void refuse_tag(const Name& name, const std::vector<Candidates>& others) {
  std::vector<std::string> tags;
  for (const Candidates& there : others) {
    for (const fs::path& file : there.files) {
      const bool is_only = std::ranges::count(there.files, tag_of(file), tag_of) == 1;
      tags.push_back(is_only ? tag_of(file) : file.filename().string());
    }
  }
  if (tags.empty()) return;
  refuse_model(name.typed, fmt::format("no file of it is {}; there are {}", quote_name(name.tag),
                                       fmt::join(tags, ", ")));
}

std::optional<StoredGguf> find_stored(const Name& name, const HubEnvironment& environment) {
  if (name.is_of_hub) {  // also ollama's own way to name what it took from there
    if (auto stored = in_ollama(name, environment)) return stored;
  }
  const auto snapshot = name.can_be_path ? find_hub_snapshot(name.base, environment) : std::nullopt;
  if (snapshot && name.tag.empty() && has_safetensors(*snapshot)) return std::nullopt;
  const std::vector<Candidates> others = candidates(name, snapshot, environment);
  for (const Candidates& there : others) {
    if (auto file = pick(name, there)) {
      return StoredGguf{.name = name.typed, .file = *std::move(file)};
    }
  }
  if (auto stored = in_ollama(name, environment)) return stored;
  if (!name.tag.empty()) refuse_tag(name, others);
  return std::nullopt;
}

bool finds(const std::string& name, const fs::path& file, const HubEnvironment& environment) {
  try {
    const auto stored = find_stored(Name(name), environment);
    return stored && stored->file == file;
  } catch (const Error&) {  // such as several files that fit
    return false;
  }
}

/// Returns the name under which one of a repository's files is listed.
std::string listed_name(const std::string& repository, const fs::path& file, bool is_only,
                        const HubEnvironment& environment) {
  if (is_only && finds(repository, file, environment)) return repository;
  for (const std::string& tag : {tag_of(file), file.filename().string()}) {
    std::string name = repository + ":" + tag;
    if (finds(name, file, environment)) return name;
  }
  return file.string();
}

}  // namespace

std::optional<StoredGguf> find_gguf(std::string_view model, const HubEnvironment& environment) {
  const fs::path path(model);
  std::error_code ignored;
  if (is_folder(path)) {
    if (has_safetensors(path)) return std::nullopt;
    std::vector<fs::path> files = models_in(path, 0);
    if (files.empty()) files = models_in(path, 1);
    const auto file = only_one(model, std::move(files));
    return file ? std::optional(StoredGguf{.name = std::string(model), .file = *file})
                : std::nullopt;
  }
  if (!fs::exists(path, ignored)) return find_stored(Name(model), environment);
  if (!is_gguf_name(path) && !begins_as_gguf(path)) return std::nullopt;
  return StoredGguf{.name = std::string(model), .file = path};
}

std::vector<std::string> gguf_places(std::string_view model, const HubEnvironment& environment) {
  const Name name(model);
  std::vector<std::string> places;
  if (!name.can_be_path || name.parts > 3) return places;
  for (const fs::path& root : lm_studio_folders(environment)) places.push_back(root.string());
  if (const fs::path root = llama_cpp_folder(environment); !root.empty()) {
    places.push_back(root.string());
  }
  for (const fs::path& root : ollama_folders(environment)) {
    places.push_back((root / "manifests" / ollama_manifest(name)).string());
  }
  return places;
}

std::vector<StoredGguf> stored_ggufs(const HubEnvironment& environment) {
  std::vector<StoredGguf> all;
  const auto add = [&](const std::string& name, const std::vector<fs::path>& files) {
    for (const fs::path& file : files) {
      all.push_back(
          {.name = listed_name(name, file, files.size() == 1, environment), .file = file});
    }
  };
  for (const std::string& name : models_in_hub(hub_folder(environment))) {
    try {
      const auto snapshot = find_hub_snapshot(name, environment);
      const std::size_t before = all.size();
      if (snapshot && !has_safetensors(*snapshot)) add(name, models_in(*snapshot, 2));
      for (std::size_t i = before; i < all.size(); ++i) all[i].hub_name = name;
    } catch (const Error&) {  // models_in_hub()'s own list says what is wrong with it
    }
  }
  for (const fs::path& root : lm_studio_folders(environment)) {
    for (const fs::path& publisher : entries_of(root)) {
      for (const fs::path& repository : entries_of(publisher)) {
        add(repository.lexically_relative(root).string(), models_in(repository, 1));
      }
    }
  }
  for (const fs::path& file : models_in(llama_cpp_folder(environment), 0)) {
    const std::string name = file.filename().string();
    all.push_back({.name = finds(name, file, environment) ? name : file.string(), .file = file});
  }
  for (const fs::path& root : ollama_folders(environment)) {
    for (const fs::path& host : entries_of(root / "manifests")) {
      for (const fs::path& space : entries_of(host)) {
        for (const fs::path& model : entries_of(space)) {
          for (const fs::path& tag : entries_of(model)) {
            if (is_manifest(root, tag)) all.push_back(listed_manifest(root, tag));
          }
        }
      }
    }
  }
  return all;
}

}  // namespace hyb
