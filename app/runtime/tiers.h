#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "app/machine/environment.h"
#include "app/runtime/session.h"

namespace CLI {
class App;
}

namespace hyb::app {

/// Places for snapshots that the pools have no room for.
struct TierFlags {
  std::optional<std::size_t> disk_tier;  ///< bytes; none: nowhere
  std::string disk_tier_folder;          ///< empty: hyb's cache folder
  std::optional<std::size_t> host_tier;  ///< refused on the CPU: it is the pools' own memory
};

/// Adds --disk-tier, --disk-tier-folder and --host-tier. The flags outlive `cli`.
void add_tier_options(CLI::App& cli, TierFlags& flags);

/// Throws Error(usage) for what is of no use with these settings. Returns the bytes of the host
/// tier, which the session is to be opened with; 0: there is none.
std::size_t check_tiers(const TierFlags& flags, const RunSettings& settings);

/// Gives the session's engine the tier of flags that were checked. A disk tier's file has no name
/// and is gone with the process. Where none can be made there is a warning and no tier. Throws
/// Error(memory) where the machine has no room for a host tier.
void add_tiers(Session& session, const TierFlags& flags, const Environment& environment);

}  // namespace hyb::app
