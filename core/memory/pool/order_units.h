#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/memory/orders.h"
#include "core/memory/pool/layout.h"

namespace hyb {

/// A unit of a view.
using ViewUnit = std::pair<ViewId, std::int32_t>;
using UnitSet = std::set<ViewUnit>;

/// Lists what an order reads and writes of units. A change of owner does neither.
struct OrderUnits {
  std::vector<ViewUnit> from;
  std::optional<ViewUnit> to;
};

OrderUnits units_of(const Order& order, const MemoryLayout& layout);

}  // namespace hyb
