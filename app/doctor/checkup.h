#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/doctor/card_checkup.h"
#include "app/doctor/device_links.h"
#include "app/machine/environment.h"
#include "core/base/json.h"
#include "kernels/device.h"

namespace CLI {
class App;
}

namespace hyb::app {

/// A model found in the Hugging Face cache.
struct HubModel {
  std::string name;    ///< "org/name"
  std::string status;  ///< "runs", or why it can't be read
  bool runs = false;
};

/// A person's file of settings: what it sets, or why it can't be read.
struct SettingsCheckup {
  std::string text;
  Json json;
};

/// Describes what this machine has, and how hyb uses it.
struct Checkup {
  std::string version;
  std::string cpu;
  kernels::Isa isa = kernels::Isa::plain;  ///< what ops use
  int cpus = 0;                            ///< of the machine
  int threads = 0;                         ///< that hyb will use
  bool quota_binds = false;                ///< a control group grants less than the affinity mask
  std::size_t memory = 0, memory_available = 0;
  std::vector<MemoryLimit> memory_limits;  ///< as memory_limits() says
  std::string huge_pages;                  ///< what the kernel does: "always", "madvise", ...
  std::string shared_huge_pages;           ///< the same of shared memory: "advise", "never", ...
  std::filesystem::path hub_folder;        ///< empty: nothing says where
  bool has_hub_folder = false;
  std::vector<HubModel> hub_models;
  CudaCheckup cuda;
  DeviceLinks links;
  bool output_is_terminal = false;
  std::string term;
  bool utf8 = false;
  std::optional<std::filesystem::path> state_folder;
  SettingsCheckup settings = {};
};

/// All but the settings.
Checkup examine(const Environment& environment);

/// `root` is the whole command line, whose options the settings are tried on.
SettingsCheckup examine_settings(CLI::App& root, const Environment& environment);

/// The models of a cache folder; damaged ones say why they can't be read.
std::vector<HubModel> hub_models(const std::filesystem::path& hub,
                                 const HubEnvironment& environment);

/// "[always] madvise never" -> "always"; "" for other texts.
std::string chosen_of(const std::string& choices);

/// True if --memory-mode flip reads slower than the other modes here: its memory is shared, and has
/// small pages where that of the other modes has huge ones.
bool flip_is_slow(const Checkup& checkup);

std::string checkup_text(const Checkup& checkup);
Json checkup_json(const Checkup& checkup);

}  // namespace hyb::app
