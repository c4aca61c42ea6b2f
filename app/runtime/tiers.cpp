#include "app/runtime/tiers.h"

#include <filesystem>
#include <memory>
#include <system_error>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "app/options/options.h"
#include "app/runtime/memory_plan.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/model_folder.h"
#include "core/io/storage.h"
#include "core/memory/tier/snapshot_tier.h"

namespace hyb::app {
namespace {

/// $XDG_CACHE_HOME/hyb or ~/.cache/hyb.
std::filesystem::path cache_folder(const Environment& environment) {
  const HubEnvironment& known = environment.hub;
  if (is_set(known.xdg_cache_home)) {
    return std::filesystem::path(*known.xdg_cache_home) / "hyb";
  }
  if (is_set(known.home)) {
    return std::filesystem::path(*known.home) / ".cache" / "hyb";
  }
  throw Error(ErrorKind::usage,
              "--disk-tier: there is no home for its file; say where with --disk-tier-folder");
}

/// Returns the folder for a file of the disk tier, which it creates if it can.
std::filesystem::path disk_tier_folder(const TierFlags& flags, const Environment& environment) {
  std::filesystem::path folder = flags.disk_tier_folder.empty()
                                     ? cache_folder(environment)
                                     : std::filesystem::path(flags.disk_tier_folder);
  std::error_code ignored;  // what is wrong with the folder the file says
  std::filesystem::create_directories(folder, ignored);
  return folder;
}

/// Has `add` make a tier on a disk. False, after a warning, where there is no room for its file.
template <typename Add>
bool try_disk(Add&& add) {
  try {
    add();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::runtime) throw;
    log::warning(std::string("disk tier: off: ") + error.what());
  }
  return false;
}

void add_host_tier(Session& session, const TierFlags& flags, const Environment& environment) {
  Engine& engine = session.engine();
  const std::size_t disk_bytes = flags.disk_tier.value_or(0);
  const HostTierParts parts =
      host_tier_parts(*flags.host_tier, session.model().geometry, disk_bytes);
  TierOptions options = {.limits = {.budget_bytes = parts.snapshots,
                                    .index_bytes_max = parts.index,
                                    .cost = engine.prefixes().options().cost,
                                    .bytes_per_second = host_tier_bytes_per_second},
                         .staging_bytes = 0,  // all goes through pinned memory
                         .may_wait = false,
                         .source = SnapshotSource::host};
  const auto add_both = [&] {
    TierOptions both = options;
    both.limits.budget_bytes = disk_bytes;
    both.limits.bytes_per_second = TierLimits{}.bytes_per_second;
    both.source = SnapshotSource::disk;
    engine.add_tier(
        "host and disk tier",
        std::make_unique<LayeredStorage>(parts.snapshots, disk_tier_folder(flags, environment)),
        both);
  };
  if (disk_bytes > 0 && try_disk(add_both)) return;
  engine.add_tier("host tier", std::make_unique<MemoryStorage>(parts.snapshots), options);
}

}  // namespace

void add_tier_options(CLI::App& cli, TierFlags& flags) {
  const auto add = [&](const char* name, std::optional<std::size_t>& bytes, const char* help) {
    cli.add_option_function<std::string>(
        name,
        [name, &bytes](const std::string& text) {
          const MemoryBudget size = parse_memory(text, name);
          if (size.kind != MemoryBudget::Kind::bytes) {
            throw Error(ErrorKind::usage,
                        fmt::format("{}: '{}' is not a size like 20GB or 8GiB", name, text));
          }
          bytes = size.bytes;
        },
        help);
  };
  add("--disk-tier", flags.disk_tier,
      "move snapshots that are evicted from memory to disk, up to this size: 20GB, 8GiB");
  cli.add_option(
         "--disk-tier-folder", flags.disk_tier_folder,
         "folder of the disk tier; its file has no name and ends with the process (default: "
         "the cache folder)")
      ->type_name("FILE");
  add("--host-tier", flags.host_tier,
      "the same in the machine's memory, for a card: copied while steps run; with --disk-tier what "
      "memory has no room for goes on to disk");
}

std::size_t check_tiers(const TierFlags& flags, const RunSettings& settings) {
  if (const auto& lanes = settings.lanes;
      lanes && !lanes->share_memory && (flags.host_tier || flags.disk_tier)) {
    throw Error(ErrorKind::usage,
                "--prefill-device: a tier extends one memory, and prompts have one of their own; "
                "leave one of them out");
  }
  if (flags.host_tier) {
    if (settings.device == kernels::Device::cpu) {
      throw Error(ErrorKind::usage,
                  "--host-tier: on the CPU the pools are in the host's memory already; give them "
                  "more with --memory, or use --disk-tier");
    }
    if (settings.reuse.snapshots == Precision::int8) {
      throw Error(ErrorKind::usage,
                  "--host-tier: with --snapshots int8 answers would depend on which snapshots were "
                  "copied in time; use --disk-tier, or exact snapshots");
    }
  }
  const std::size_t host_bytes = flags.host_tier.value_or(0);
  if (flags.disk_tier) {
    if (*flags.disk_tier <= host_bytes) {
      throw Error(ErrorKind::usage,
                  "--disk-tier: with --host-tier it has all that the host's memory has, and more: "
                  "give it the larger size");
    }
  } else if (!flags.disk_tier_folder.empty()) {
    throw Error(ErrorKind::usage, "--disk-tier-folder: there is no --disk-tier");
  }
  return host_bytes;
}

void add_tiers(Session& session, const TierFlags& flags, const Environment& environment) {
  if (flags.host_tier) return add_host_tier(session, flags, environment);
  if (!flags.disk_tier) return;
  Engine& engine = session.engine();
  try_disk([&] {
    engine.add_tier(
        "disk tier", std::make_unique<FileStorage>(disk_tier_folder(flags, environment)),
        {.limits = {.budget_bytes = *flags.disk_tier, .cost = engine.prefixes().options().cost}});
  });
}

}  // namespace hyb::app
