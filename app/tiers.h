#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "app/environment.h"
#include "core/engine/engine.h"

namespace hyb::app {

/// Where snapshots go that the pools have no room for.
struct TierFlags {
  std::string disk_tier;         ///< a size; empty: nowhere
  std::string disk_tier_folder;  ///< empty: hyb's cache folder
  std::string host_tier;         ///< refused on the CPU: it would be the pools' own memory
};

/// Adds --disk-tier, --disk-tier-folder and --host-tier. The flags outlive `cli`.
void add_tier_options(CLI::App& cli, TierFlags& flags);

/// Throws Error(usage) for what is no size, and for --host-tier.
void check_tiers(const TierFlags& flags);

/// Gives the engine the tiers that the flags ask for. The file has no name and is gone with the
/// process. Where none can be made there is a warning and no tier. Throws as check_tiers() does.
void add_tiers(Engine& engine, const TierFlags& flags, const Environment& environment);

}  // namespace hyb::app
