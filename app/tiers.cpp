#include "app/tiers.h"

#include <filesystem>
#include <memory>

#include "app/options.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/storage.h"
#include "core/memory/snapshot_tier.h"

namespace hyb::app {
namespace {

/// $XDG_CACHE_HOME/hyb or ~/.cache/hyb.
std::filesystem::path cache_folder(const Environment& environment) {
  const HubEnvironment& known = environment.hub;
  if (known.xdg_cache_home && !known.xdg_cache_home->empty()) {
    return std::filesystem::path(*known.xdg_cache_home) / "hyb";
  }
  if (known.home && !known.home->empty()) {
    return std::filesystem::path(*known.home) / ".cache" / "hyb";
  }
  throw Error(ErrorKind::usage,
              "--disk-tier: there is no home for its file; say where with --disk-tier-folder");
}

std::size_t disk_bytes(const TierFlags& flags) {
  const MemoryBudget size = parse_memory(flags.disk_tier, "--disk-tier");
  if (size.kind == MemoryBudget::Kind::bytes) return size.bytes;
  throw Error(ErrorKind::usage,
              "--disk-tier: '" + flags.disk_tier + "' is not a size like 20GB or 8GiB");
}

}  // namespace

void add_tier_options(CLI::App& cli, TierFlags& flags) {
  cli.add_option("--disk-tier", flags.disk_tier,
                 "keep what memory has no room for on disk, up to this size: 20GB, 8GiB");
  cli.add_option("--disk-tier-folder", flags.disk_tier_folder,
                 "where; its file has no name and goes with the process (default: the cache "
                 "folder)");
  cli.add_option("--host-tier", flags.host_tier,
                 "the same in the host's memory: for devices with memory of their own");
}

void check_tiers(const TierFlags& flags) {
  if (!flags.host_tier.empty()) {
    throw Error(ErrorKind::usage,
                "--host-tier: on the CPU the pools are in the host's memory already; give them "
                "more with --memory, or use --disk-tier");
  }
  if (!flags.disk_tier.empty()) {
    disk_bytes(flags);
  } else if (!flags.disk_tier_folder.empty()) {
    throw Error(ErrorKind::usage, "--disk-tier-folder: there is no --disk-tier");
  }
}

void add_tiers(Engine& engine, const TierFlags& flags, const Environment& environment) {
  check_tiers(flags);
  if (flags.disk_tier.empty()) return;
  const std::filesystem::path folder = flags.disk_tier_folder.empty()
                                           ? cache_folder(environment)
                                           : std::filesystem::path(flags.disk_tier_folder);
  std::error_code ignored;  // what is wrong with the folder the file says
  std::filesystem::create_directories(folder, ignored);
  try {
    engine.add_tier("disk tier", std::make_unique<FileStorage>(folder),
                    {.budget_bytes = disk_bytes(flags), .cost = engine.prefixes().options().cost});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::runtime) throw;
    log::warning(std::string("disk tier: off: ") + error.what());
  }
}

}  // namespace hyb::app
