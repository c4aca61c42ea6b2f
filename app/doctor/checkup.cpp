#include "app/doctor/checkup.h"

#include <algorithm>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "app/machine/version.h"
#include "app/model/model_source.h"
#include "app/options/options.h"
#include "app/options/settings_file.h"
#include "app/runtime/run_settings.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/gguf.h"
#include "core/io/gguf_stores.h"
#include "core/io/model_folder.h"
#include "kernels/thread_pool.h"
#include "models/families.h"
#include "models/gguf.h"

namespace hyb::app {
namespace {

namespace fs = std::filesystem;

HubModel look_at(const std::string& name, const HubEnvironment& environment) {
  try {
    const auto gguf = find_gguf(name, environment);
    const models::Config config =
        gguf ? models::gguf_config(GgufFiles(gguf->file))
             : models::Config::from_folder(find_model_folder(name, environment));
    models::family_of(config).plan(config);
    return {.name = name, .status = "runs", .runs = true};
  } catch (const Error& error) {
    return {.name = name, .status = error.what(), .runs = false};
  }
}

}  // namespace

std::string chosen_of(const std::string& choices) {
  const std::size_t begin = choices.find('[');
  const std::size_t end = choices.find(']', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  return choices.substr(begin + 1, end - begin - 1);
}

bool flip_is_slow(const Checkup& checkup) {
  const std::string& shared = checkup.shared_huge_pages;
  const bool has_huge_pages = checkup.huge_pages == "always" || checkup.huge_pages == "madvise";
  return has_huge_pages && (shared.empty() || shared == "never" || shared == "deny");
}

std::vector<HubModel> hub_models(const fs::path& hub, const HubEnvironment& environment) {
  constexpr std::size_t models_max = 1000;
  constexpr std::string_view prefix = "models--";
  std::vector<HubModel> models;
  std::error_code error;
  for (fs::directory_iterator entry(hub, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string folder = entry->path().filename().string();
    if (!folder.starts_with(prefix) || models.size() == models_max) continue;
    std::string name = folder.substr(prefix.size());
    const std::size_t dashes = name.find("--");
    if (dashes != std::string::npos) name.replace(dashes, 2, "/");
    models.push_back(look_at(name, environment));
  }
  std::sort(models.begin(), models.end(),
            [](const HubModel& a, const HubModel& b) { return a.name < b.name; });
  return models;
}

Checkup examine(const Environment& environment) {
  const kernels::UsableCpus usable = kernels::usable_cpus();
  Checkup checkup;
  checkup.version = version_text();
  checkup.cpu = cpu_name();
  checkup.isa = kernels::best_isa();
  checkup.cpus = static_cast<int>(std::thread::hardware_concurrency());
  checkup.threads = usable.count;
  checkup.quota_binds = usable.quota_binds;
  checkup.memory = meminfo_bytes("MemTotal").value_or(0);
  checkup.memory_available = available_bytes();
  checkup.memory_limits = memory_limits();
  checkup.huge_pages = chosen_of(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  checkup.shared_huge_pages =
      chosen_of(first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  checkup.hub_folder = hub_folder(environment.hub);
  std::error_code ignored;
  checkup.has_hub_folder = fs::is_directory(checkup.hub_folder, ignored);
  checkup.hub_models = hub_models(checkup.hub_folder, environment.hub);
  checkup.cuda = examine_cuda();
  checkup.links = examine_links();
  checkup.output_is_terminal = is_terminal(Stream::output);
  checkup.term = environment.term;
  checkup.utf8 = environment.utf8;
  checkup.state_folder = environment.state_folder;
  return checkup;
}

namespace {

/// Names the model in the settings that can't be found, and the sections that match no model here.
std::string absent_text(const Json& settings, const Environment& environment) {
  std::vector<std::string> known = {"demo"};
  std::set<std::string> sections;
  std::string text;
  for (const Json& setting : settings) {
    if (setting["key"] == "model") {
      const std::string model = setting["values"][0];
      known.push_back(model);
      try {
        static_cast<void>(ModelSource::find(model, environment));
      } catch (const Error& error) {
        text += fmt::format("; model = {}: {}", model, error.what());
      }
    }
    const std::string section = setting["section"];
    if (!section.empty() && section != "chat" && section != "run") sections.insert(section);
  }
  if (!sections.empty()) {
    std::ranges::move(known_models(environment.hub), std::back_inserter(known));
  }
  for (const std::string& section : sections) {
    const auto is_for = [&](const std::string& name) { return is_section_for(section, name); };
    if (std::ranges::none_of(known, is_for)) {
      text += fmt::format("; [{}] is for none of the models that hyb finds by name", section);
    }
  }
  return text;
}

}  // namespace

SettingsCheckup examine_settings(CLI::App& root, const Environment& environment) {
  const std::string file = environment.config_file.value_or("").string();
  Json json = {{"file", file}, {"values", nullptr}, {"trouble", ""}};
  if (file.empty()) return {.text = "none: HOME is unset", .json = std::move(json)};
  try {
    const SettingsFile settings(root, environment);
    if (!settings.is_there()) return {.text = file + " (not there)", .json = std::move(json)};
    settings.try_all(root);
    json["values"] = settings.json();
    const std::string text = settings.text();
    return {.text = file + (text.empty() ? " (without settings)" : ": " + text) +
                    absent_text(json["values"], environment),
            .json = std::move(json)};
  } catch (const Error& error) {
    json["trouble"] = error.what();
    return {.text = error.what(), .json = std::move(json)};
  }
}

namespace {

std::string limits_text(const Checkup& checkup) {
  std::string text;
  for (const MemoryLimit& limit : checkup.memory_limits) {
    text += fmt::format("{}{} by {}, {} in use", text.empty() ? "" : "; ", bytes_text(limit.bytes),
                        limit.source, bytes_text(limit.used));
  }
  return text.empty() ? "none besides the machine's" : text;
}

Json limits_json(const Checkup& checkup) {
  Json list = Json::array();
  for (const MemoryLimit& limit : checkup.memory_limits) {
    list.push_back({{"source", limit.source}, {"bytes", limit.bytes}, {"used_bytes", limit.used}});
  }
  return list;
}

std::string hub_text(const Checkup& checkup) {
  if (checkup.hub_folder.empty()) return "none: HF_HUB_CACHE, HF_HOME and HOME are unset";
  return checkup.hub_folder.string() + (checkup.has_hub_folder ? "" : " (not there)");
}

const char* isa_text(kernels::Isa isa) {
  switch (isa) {
    case kernels::Isa::avx512:
      return "avx512 (F, BW, VL, DQ, BF16)";
    case kernels::Isa::avx2:
      return "avx2 (AVX2, FMA, F16C); no AVX-512 with BF16 here";
    case kernels::Isa::plain:
      break;
  }
  return "plain loops, slow: no AVX2 here";
}

/// Returns the mode that --memory-mode auto chooses on the CPU.
std::string memory_mode() {
  const kernels::MapMode mode = mapping_of({}, kernels::Device::cpu).mode;
  return std::string(word_of(words::memory_mode, std::optional(mode)));
}

/// The default and why; flip is the default where a device has page tables of its own.
std::string memory_mode_text() {
  return memory_mode() +
         ", the default on the CPU: it starts and reads at least as fast as flip there";
}

std::string shared_huge_pages_text(const Checkup& checkup) {
  const std::string& chosen = checkup.shared_huge_pages;
  std::string text = chosen.empty() ? "unknown" : chosen;
  if (!flip_is_slow(checkup)) return text;
  return text +
         ": --memory-mode flip reads slower than remap; as root: echo advise > "
         "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
}

}  // namespace

std::string checkup_text(const Checkup& checkup) {
  Table table = {.columns = {{}, {}}, .rows = {}};
  const auto add = [&](const std::string& what, const std::string& text) {
    table.rows.push_back({what, sanitized_line(text)});
  };
  add("version", checkup.version);
  add("processor", checkup.cpu);
  add("instructions", isa_text(checkup.isa));
  add("threads", fmt::format("{} of {} processors{}", checkup.threads, checkup.cpus,
                             checkup.quota_binds ? "; a control group's quota binds" : ""));
  add("memory", fmt::format("{}, {} available", bytes_text(checkup.memory),
                            bytes_text(checkup.memory_available)));
  add("memory limits", limits_text(checkup));
  add("huge pages", checkup.huge_pages.empty() ? "unknown" : checkup.huge_pages);
  add("shared huge pages", shared_huge_pages_text(checkup));
  add("memory mode", memory_mode_text());
  for (const auto& [what, text] : cuda_rows(checkup.cuda)) add(what, text);
  for (const auto& [what, text] : link_rows(checkup.links)) add(what, text);
  add("terminal", fmt::format("stdout is {}; TERM={}, {}",
                              checkup.output_is_terminal ? "a terminal" : "not a terminal",
                              checkup.term.empty() ? "(unset)" : checkup.term,
                              checkup.utf8 ? "UTF-8" : "the locale is not UTF-8"));
  add("history", checkup.state_folder ? checkup.state_folder->string() : "none: HOME is unset");
  add("settings", checkup.settings.text);
  add("models", "demo, inside this binary");
  add("hugging face", hub_text(checkup));
  for (const HubModel& model : checkup.hub_models) add("  " + model.name, model.status);
  return plain_text(table);
}

Json checkup_json(const Checkup& checkup) {
  Json models = Json::array();
  for (const HubModel& model : checkup.hub_models) {
    models.push_back({{"name", model.name}, {"runs", model.runs}, {"status", model.status}});
  }
  return {{"version", checkup.version},
          {"cpu", checkup.cpu},
          {"isa", name_of(checkup.isa)},
          {"cpus", checkup.cpus},
          {"threads", checkup.threads},
          {"quota_binds", checkup.quota_binds},
          {"memory_bytes", checkup.memory},
          {"memory_available_bytes", checkup.memory_available},
          {"memory_limits", limits_json(checkup)},
          {"huge_pages", checkup.huge_pages},
          {"shared_huge_pages", checkup.shared_huge_pages},
          {"flip_is_slow", flip_is_slow(checkup)},
          {"memory_mode", memory_mode()},
          {"cuda", cuda_json(checkup.cuda)},
          {"links", links_json(checkup.links)},
          {"stdout_is_terminal", checkup.output_is_terminal},
          {"term", checkup.term},
          {"utf8", checkup.utf8},
          {"state_folder", checkup.state_folder ? Json(checkup.state_folder->string()) : Json()},
          {"settings", checkup.settings.json},
          {"hub_folder", checkup.hub_folder.string()},
          {"hub_folder_exists", checkup.has_hub_folder},
          {"hub_models", models}};
}

}  // namespace hyb::app
