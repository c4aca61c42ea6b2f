#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "core/engine/runner.h"
#include "core/memory/pool/layout.h"

namespace hyb::sim {

using NamedUnit = std::pair<ViewId, std::int32_t>;

/// What a step, with its orders, reads and writes.
struct NamedUnits {
  std::set<NamedUnit> read, written;
  std::set<SuperblockId> owners_changed;
};

NamedUnits named_by(const MemoryLayout& layout, const Step& step);

}  // namespace hyb::sim
