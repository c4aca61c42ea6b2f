#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/engine/sequence.h"

namespace hyb {

/// The running sequence whose prefix `newcomer`, which can resume at `resumable` without it, should
/// wait for: an older one that has yet to run a prefix that both have, at least `tokens_min` longer
/// than what can be resumed. The length is one at which that sequence wants a snapshot anyway,
/// where that costs the newcomer fewer than tokens_min. nullopt: there is none. Only older ones, so
/// no two wait for each other.
std::optional<PrefixOwner> prefix_owner_for(const Sequence& newcomer, std::int32_t resumable,
                                            std::int32_t tokens_min,
                                            std::span<Sequence* const> running);

/// Whether the owner still runs and has not reached the end of the prefix.
bool is_awaited(const PrefixOwner& prefix_owner, std::span<Sequence* const> running);

}  // namespace hyb
