#include "core/io/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/file.h"
#include "core/io/home.h"

namespace hyb {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t commit_length = 40;
constexpr std::size_t prefix_length_min = 7;

bool is_name_part(std::string_view part) {
  const auto is_legal = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  };
  return !part.empty() && part.front() != '.' && part.find("..") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), is_legal);
}

/// "name" or "org/name".
bool is_hub_name(std::string_view name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return is_name_part(name);
  return is_name_part(name.substr(0, slash)) && is_name_part(name.substr(slash + 1));
}

/// A branch or tag, possibly with slashes ("refs/pr/1"), that can't lead out of the refs folder.
bool is_revision(std::string_view revision) {
  while (true) {
    const std::size_t slash = revision.find('/');
    if (!is_name_part(revision.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    revision.remove_prefix(slash + 1);
  }
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "));
}

/// The commit in refs/<revision>, without the line end that some tools write.
std::string read_reference(std::string_view model, const fs::path& path) {
  std::string commit = read_whole_file(path, 4096);
  commit.erase(commit.find_last_not_of(" \t\r\n") + 1);
  if (!is_name_part(commit)) {
    refuse_model(
        model, fmt::format("{} should hold a commit, holds {}", path.string(), quote_name(commit)));
  }
  return commit;
}

fs::path snapshot_of(std::string_view model, const fs::path& repository,
                     const std::string& revision) {
  const fs::path snapshots = repository / "snapshots";
  const fs::path reference = repository / "refs" / revision;
  std::error_code ignored;
  if (revision.size() == commit_length && is_hex(revision) && is_folder(snapshots / revision)) {
    return snapshots / revision;
  }
  if (fs::is_regular_file(reference, ignored)) {
    const std::string commit = read_reference(model, reference);
    if (is_folder(snapshots / commit)) return snapshots / commit;
    refuse_model(model,
                 fmt::format("{} names the commit {}, but {} is not there; download it again",
                             reference.string(), commit, (snapshots / commit).string()));
  }
  const std::vector<std::string> commits = entries(snapshots);
  std::vector<std::string> matches;
  if (revision.size() >= prefix_length_min && is_hex(revision)) {
    std::copy_if(commits.begin(), commits.end(), std::back_inserter(matches),
                 [&](const std::string& commit) { return commit.starts_with(revision); });
  }
  if (matches.size() == 1) return snapshots / matches.front();
  if (matches.size() > 1) {
    refuse_model(model, fmt::format("{} commits begin with {}: {}; give more digits",
                                    matches.size(), revision, listed(matches)));
  }
  refuse_model(
      model, fmt::format("revision {} is not in the Hugging Face cache: looked for {} and {}/{}*; "
                         "there are the branches {} and the commits {}",
                         quote_name(revision), reference.string(), snapshots.string(), revision,
                         listed(entries(repository / "refs")), listed(commits)));
}

/// A snapshot consists of links into the cache's own blobs; huggingface_hub makes no other links.
void report_outside_links(const fs::path& snapshot, const fs::path& hub) {
  std::error_code ignored;
  const fs::path root = fs::weakly_canonical(hub, ignored);
  for (const std::string& name : entries(snapshot)) {
    if (!fs::is_symlink(snapshot / name, ignored)) continue;
    const fs::path target = fs::weakly_canonical(snapshot / name, ignored);
    const auto [end, unused] =
        std::mismatch(root.begin(), root.end(), target.begin(), target.end());
    if (end == root.end()) continue;
    log::warning(fmt::format("{}: is a link to {}, outside the Hugging Face cache",
                             (snapshot / name).string(), target.string()));
  }
}

/// org/name[@revision] as the cache has it.
struct HubName {
  explicit HubName(std::string_view model) {
    model = without_hub_host(model);
    name = model.substr(0, model.rfind('@'));
    revision = name.size() == model.size() ? "main" : model.substr(name.size() + 1);
  }

  fs::path repository_in(const fs::path& hub) const {
    std::string folder = "models--" + name;
    const std::size_t slash = folder.find('/');
    if (slash != std::string::npos) folder.replace(slash, 1, "--");
    return hub / folder;
  }

  std::string name, revision;
};

fs::path find_in_hub(std::string_view model, const HubEnvironment& environment) {
  const HubName name(model);
  if (!is_hub_name(name.name)) {
    refuse_model(model, "no such file or folder, and not of the form org/name[@revision]");
  }
  if (!is_revision(name.revision)) {
    refuse_model(model, quote_name(name.revision) + " can't be a revision");
  }
  const fs::path hub = hub_folder(environment);
  if (hub.empty()) {
    refuse_model(
        model,
        "no such file or folder, and no Hugging Face cache to look in: HF_HUB_CACHE, HF_HOME, "
        "XDG_CACHE_HOME and HOME are unset");
  }
  const fs::path repository = name.repository_in(hub);
  if (!is_folder(repository)) {
    refuse_model(model, "not found");
  }
  fs::path snapshot = snapshot_of(model, repository, name.revision);
  report_outside_links(snapshot, hub);
  return snapshot;
}

struct OtherFormat {
  const char* extension;
  const char* text;
};

constexpr std::array other_formats = {
    OtherFormat{
        ".bin",
        "a pickle of PyTorch, which is not read, as reading one runs its code; transformers "
        "writes safetensors: AutoModelForCausalLM.from_pretrained(OLD).save_pretrained(NEW)"},
    OtherFormat{".pt", "a pickle of PyTorch, which is not read, as reading one runs its code"},
    OtherFormat{".pth", "a pickle of PyTorch, which is not read, as reading one runs its code"},
    OtherFormat{".onnx", "ONNX, which is not read: safetensors are"},
};

bool is_pickle_name(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("pytorch_model") || name.starts_with("model") ||
         name.starts_with("consolidated");
}

std::string format_text_of(const fs::path& file) {
  for (const OtherFormat& format : other_formats) {
    if (file.extension() != format.extension) continue;
    if (!is_pickle_name(file)) continue;  // training_args.bin and the like
    return quote_name(file.filename().string()) + " is " + format.text;
  }
  if (file.extension() != ".gguf") return {};
  return quote_name(file.filename().string()) +
         " is passed over, as its name or its metadata say that it only goes with a model (mmproj, "
         "imatrix, a draft); if it is a model give the file itself";
}

}  // namespace

std::string_view without_hub_host(std::string_view model) {
  for (const std::string_view host : {"hf.co/", "huggingface.co/"}) {
    if (model.starts_with(host)) return model.substr(host.size());
  }
  return model;
}

void refuse_model(std::string_view model, const std::string& text) {
  throw Error(ErrorKind::model, "model " + quote_name(model) + ": " + text);
}

std::string adapter_text(const fs::path& folder) {
  if (!is_listed(folder / "adapter_config.json")) return {};
  for (const char* name :
       {"adapter_model.safetensors", "adapter_model.bin", "adapters.safetensors"}) {
    if (!is_listed(folder / name)) continue;
    return fmt::format(
        "{} is an adapter (LoRA or the like) for the base model that adapter_config.json names, "
        "and "
        "none is applied: PEFT merges it into the weights, "
        "AutoPeftModelForCausalLM.from_pretrained(OLD).merge_and_unload().save_pretrained(NEW)",
        quote_name(name));
  }
  return {};
}

std::string other_format_text(const fs::path& path) {
  if (!is_folder(path)) return format_text_of(path);
  if (std::string adapter = adapter_text(path); !adapter.empty()) return adapter;
  const std::vector<std::string> names = entries(path);
  if (std::any_of(names.begin(), names.end(),
                  [](const std::string& name) { return name.ends_with(".safetensors"); })) {
    return {};
  }
  for (const std::string& name : names) {
    const std::string text = format_text_of(name);
    if (!text.empty()) return text;
  }
  return {};
}

namespace {

/// Lists the revisions in a repository's folder of the cache.
std::vector<std::string> revisions_in(const fs::path& repository) {
  std::vector<std::string> branches;
  std::error_code ignored;
  const fs::path refs = repository / "refs";
  for (const auto& entry : fs::recursive_directory_iterator(refs, ignored)) {
    if (entry.is_regular_file(ignored)) {
      branches.push_back(entry.path().lexically_relative(refs).string());
    }
  }
  std::sort(branches.begin(), branches.end());
  if (!branches.empty()) return branches;
  std::vector<std::string> commits = entries(repository / "snapshots");
  for (std::string& commit : commits) {
    if (commit.size() == commit_length) commit.resize(prefix_length_min);
  }
  return commits;
}

}  // namespace

std::vector<std::string> models_in_hub(const fs::path& hub) {
  constexpr std::string_view prefix = "models--";
  std::vector<std::string> models;
  for (const std::string& folder : entries(hub)) {
    if (!folder.starts_with(prefix)) continue;
    std::string name = folder.substr(prefix.size());
    const std::size_t dashes = name.find("--");
    if (dashes != std::string::npos) name.replace(dashes, 2, "/");
    for (const std::string& revision : revisions_in(hub / folder)) {
      models.push_back(revision == "main" ? name : name + "@" + revision);
    }
  }
  return models;
}

fs::path hub_folder(const HubEnvironment& environment) {
  if (is_set(environment.hf_hub_cache))
    return with_home(*environment.hf_hub_cache, environment.home);
  if (is_set(environment.huggingface_hub_cache)) {
    return with_home(*environment.huggingface_hub_cache, environment.home);
  }
  if (is_set(environment.hf_home)) return with_home(*environment.hf_home, environment.home) / "hub";
  if (is_set(environment.xdg_cache_home)) {
    return with_home(*environment.xdg_cache_home, environment.home) / "huggingface" / "hub";
  }
  if (is_set(environment.home)) return fs::path(*environment.home) / ".cache/huggingface/hub";
  return {};
}

std::optional<fs::path> find_hub_snapshot(std::string_view model,
                                          const HubEnvironment& environment) {
  const HubName name(model);
  const fs::path hub = hub_folder(environment);
  if (hub.empty() || !is_hub_name(name.name) || !is_folder(name.repository_in(hub))) {
    return std::nullopt;
  }
  return find_in_hub(model, environment);
}

fs::path find_model_folder(std::string_view model, const HubEnvironment& environment) {
  if (model.empty()) refuse_model(model, "the name is empty");
  if (model.find('\0') != std::string_view::npos) refuse_model(model, "the name holds a NUL byte");
  fs::path folder(model);
  std::error_code ignored;
  if (!is_folder(folder)) {
    if (fs::exists(folder, ignored)) {
      const std::string other = other_format_text(folder);
      refuse_model(model, other.empty() ? "is a file; give the folder that holds it" : other);
    }
    folder = find_in_hub(model, environment);
  }
  const std::string other = is_listed(folder / "config.json") ? "" : other_format_text(folder);
  if (!other.empty()) refuse_model(model, "has no config.json; " + other);
  // Opened here so that a missing file, or a link to a blob that was never downloaded, is named.
  const File config(folder / "config.json");
  return folder;
}

}  // namespace hyb
