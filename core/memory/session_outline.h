#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/memory/fingerprint.h"
#include "core/memory/layout.h"

namespace hyb {

/// How many sections of each kind follow in a session file, and for which layout they are.
struct SessionOutline {
  Fingerprint layout;
  std::size_t sequences = 0, snapshots = 0, units = 0;
  std::vector<std::uint32_t> logits;  ///< snapshots that have theirs, ascending
};

/// What of a layout decides whether the bytes of a unit mean the same: page size, kinds, sizes of
/// units. The number of superblocks does not.
Fingerprint layout_facts(const MemoryLayout& layout);

Json to_json(const SessionOutline& outline);

/// Throws Error(model) that begins with `source` for what is none.
SessionOutline session_outline_from(const Json& json, const std::string& source);

}  // namespace hyb
