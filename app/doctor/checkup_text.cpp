#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/doctor/checkup.h"
#include "app/machine.h"
#include "app/options.h"
#include "app/session.h"
#include "app/ui/sanitizer.h"
#include "app/ui/table.h"

namespace hyb::app {
namespace {

std::string limits_text(const Checkup& checkup) {
  std::string text;
  if (checkup.group_limit) text += ", control group " + bytes_text(*checkup.group_limit);
  if (checkup.address_limit) text += ", ulimit -v " + bytes_text(*checkup.address_limit);
  return text.empty() ? "no limits" : text.substr(2);
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

/// What --memory-mode auto is on the CPU.
std::string memory_mode() {
  const bool is_remap = mapping_of({}, kernels::Device::cpu).mode == kernels::MapMode::remap;
  return is_remap ? "remap" : "flip";
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

Json optional_number(const std::optional<std::size_t>& value) {
  return value ? Json(*value) : Json(nullptr);
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
  add("terminal", fmt::format("stdout is {}; TERM={}, {}",
                              checkup.output_is_terminal ? "a terminal" : "no terminal",
                              checkup.term.empty() ? "(unset)" : checkup.term,
                              checkup.utf8 ? "UTF-8" : "the locale is not UTF-8"));
  add("history", checkup.state_folder ? checkup.state_folder->string() : "none: HOME is unset");
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
          {"memory_group_limit_bytes", optional_number(checkup.group_limit)},
          {"memory_address_limit_bytes", optional_number(checkup.address_limit)},
          {"huge_pages", checkup.huge_pages},
          {"shared_huge_pages", checkup.shared_huge_pages},
          {"flip_is_slow", flip_is_slow(checkup)},
          {"memory_mode", memory_mode()},
          {"cuda", cuda_json(checkup.cuda)},
          {"stdout_is_terminal", checkup.output_is_terminal},
          {"term", checkup.term},
          {"utf8", checkup.utf8},
          {"state_folder", checkup.state_folder ? Json(checkup.state_folder->string()) : Json()},
          {"hub_folder", checkup.hub_folder.string()},
          {"hub_folder_exists", checkup.has_hub_folder},
          {"hub_models", models}};
}

}  // namespace hyb::app
