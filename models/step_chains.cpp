#include "models/step_chains.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace hyb::models {
namespace {

/// Slot and span of what a step writes, by slot.
using Writes = std::vector<std::pair<std::int32_t, std::size_t>>;

Writes writes_of(const Step& step) {
  Writes writes;
  writes.reserve(step.spans.size());
  for (std::size_t i = 0; i < step.spans.size(); ++i) {
    writes.emplace_back(index(step.spans[i].write_slot), i);
  }
  std::ranges::sort(writes);
  return writes;
}

void check_link(const Span& before, const Span& span) {
  require(span.position == before.position + std::ssize(before.tokens),
          "runner: a chained span has the position behind the one before");
  require(std::ranges::equal(span.tables, before.tables),
          "runner: chained spans have the same page tables");
}

}  // namespace

bool goes_on(const Span& before, const Span& span) {
  if (index(before.write_slot) >= 0) return span.read_slot == before.write_slot;
  return !span.tables.empty() && span.tables.data() == before.tables.data();
}

bool has_chain(const Step& step) {
  return std::ranges::adjacent_find(step.spans, goes_on) != step.spans.end();
}

void check_chains(const Step& step) {
  const Writes writes = writes_of(step);
  require(std::ranges::adjacent_find(writes, {}, &Writes::value_type::first) == writes.end(),
          "runner: spans write different slots");
  for (std::size_t i = 0; i < step.spans.size(); ++i) {
    const Span& span = step.spans[i];
    const auto write =
        std::ranges::lower_bound(writes, index(span.read_slot), {}, &Writes::value_type::first);
    if (write == writes.end() || write->first != index(span.read_slot)) continue;
    require(write->second == i || write->second + 1 == i,
            "runner: a span reads what another writes only where it goes on there");
    if (write->second != i) check_link(step.spans[i - 1], span);
  }
}

}  // namespace hyb::models
