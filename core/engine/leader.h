#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/engine/sequence.h"

namespace hyb {

/// The running sequence that `newcomer`, which can resume at `resumable` without it, had better
/// wait for: an older one that is yet to run a prefix that both begin with, at least `tokens_min`
/// longer than what can be resumed. The length is one at which the leader wants a snapshot already
/// where that costs the newcomer fewer than tokens_min. nullopt: there is none. Only an older one,
/// so nobody waits for someone who waits for him.
std::optional<Leader> leader_for(const Sequence& newcomer, std::int32_t resumable,
                                 std::int32_t tokens_min, std::span<Sequence* const> running);

/// Whether the leader still runs and has not come to the end of the prefix.
bool is_awaited(const Leader& leader, std::span<Sequence* const> running);

}  // namespace hyb
