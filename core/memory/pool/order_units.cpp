#include "core/memory/pool/order_units.h"

#include <variant>

namespace hyb {

OrderUnits units_of(const Order& order, const MemoryLayout& layout) {
  const ViewId slots = layout.slot_view();
  if (const auto* copy = std::get_if<UnitCopy>(&order)) {
    return {.from = {{copy->view, copy->from}}, .to = ViewUnit(copy->view, copy->to)};
  }
  if (const auto* pack = std::get_if<PackSlot>(&order)) {
    return {.from = {{slots, index(pack->from)}},
            .to = ViewUnit(layout.packed_view(), index(pack->to))};
  }
  if (const auto* unpack = std::get_if<UnpackSlot>(&order)) {
    return {.from = {{layout.packed_view(), index(unpack->from)}},
            .to = ViewUnit(slots, index(unpack->to))};
  }
  if (const auto* advanced = std::get_if<AdvanceSlot>(&order)) {
    return {.from = {{slots, index(advanced->from)}, {layout.ring_view(), index(advanced->ring)}},
            .to = ViewUnit(slots, index(advanced->to))};
  }
  return {};
}

}  // namespace hyb
