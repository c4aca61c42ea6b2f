#include "tests/sim/named_units.h"

#include <algorithm>
#include <cstddef>
#include <variant>

namespace hyb::sim {
namespace {

void add(std::set<NamedUnit>& units, ViewId view, std::int32_t unit) {
  if (unit >= 0) units.emplace(view, unit);
}

void add(NamedUnits& named, const MemoryLayout& layout, const Span& span) {
  const std::int32_t size = std::max(layout.page_tokens, 1);
  const auto end = span.position + static_cast<std::int32_t>(span.tokens.size());
  for (std::size_t group = 0; group < span.tables.size(); ++group) {
    const ViewId view{static_cast<std::int32_t>(group)};
    for (std::int32_t page = 0; page * size < end; ++page) {
      const std::int32_t unit = index(span.tables[group][static_cast<std::size_t>(page)]);
      add((page + 1) * size > span.position ? named.written : named.read, view, unit);
    }
  }
  add(named.read, layout.slot_view(), index(span.read_slot));
  add(named.written, layout.slot_view(), index(span.write_slot));
  add(named.written, layout.ring_view(), index(span.ring));
}

void add(NamedUnits& named, const MemoryLayout& layout, const Order& order) {
  if (const auto* copy = std::get_if<UnitCopy>(&order)) {
    add(named.read, copy->view, copy->from);
    add(named.written, copy->view, copy->to);
  } else if (const auto* pack = std::get_if<PackSlot>(&order)) {
    add(named.read, layout.slot_view(), index(pack->from));
    add(named.written, layout.packed_view(), index(pack->to));
  } else if (const auto* unpack = std::get_if<UnpackSlot>(&order)) {
    add(named.read, layout.packed_view(), index(unpack->from));
    add(named.written, layout.slot_view(), index(unpack->to));
  } else if (const auto* advanced = std::get_if<AdvanceSlot>(&order)) {
    add(named.read, layout.slot_view(), index(advanced->from));
    add(named.read, layout.ring_view(), index(advanced->ring));
    add(named.written, layout.slot_view(), index(advanced->to));
  } else {
    named.owners_changed.insert(std::get<ChangeOwner>(order).superblock);
  }
}

}  // namespace

NamedUnits named_by(const MemoryLayout& layout, const Step& step) {
  NamedUnits named;
  for (const Order& order : step.orders) add(named, layout, order);
  for (const Span& span : step.spans) add(named, layout, span);
  return named;
}

}  // namespace hyb::sim
