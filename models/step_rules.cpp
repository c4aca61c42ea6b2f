#include "models/step_rules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "models/steps.h"

namespace hyb::models {

namespace {

/// Slot and span of what a step writes, by slot.
using Writes = std::vector<std::pair<std::int32_t, std::size_t>>;

Writes writes_of(const Step& step) {
  Writes writes;
  writes.reserve(step.spans.size());
  for (std::size_t i = 0; i < step.spans.size(); ++i) {
    const SlotId slot = step.spans[i].write_slot;
    if (slot != no_slot) writes.emplace_back(index(slot), i);
  }
  std::ranges::sort(writes);
  return writes;
}

void check_link(const Span& before, const Span& span) {
  require(span.position == before.position + std::ssize(before.tokens),
          "runner: a chained span has the position after the one before");
  require(std::ranges::equal(span.tables, before.tables),
          "runner: chained spans have the same page tables");
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
            "runner: a span reads what another writes only where it continues it");
    if (write->second == i) continue;
    check_link(step.spans[i - 1], span);
    require(!uses_ring(span) && !uses_ring(step.spans[i - 1]),
            "runner: a span with a ring is in no chain");
  }
}

}  // namespace

bool StepRules::has_unit(ViewId view, std::int32_t unit) const {
  const MemoryLayout& memory = capacity_.memory;
  return unit >= 0 && unit < memory.superblocks * memory.units_per_superblock(view);
}

void StepRules::check(const Span& span) const {
  require(!span.tokens.empty(), "runner: a span has at least one token");
  check_pages(span);
  const MemoryLayout& memory = capacity_.memory;
  if (!memory.has_slots()) return;
  const bool is_branch = span.drafts > 0 && span.branch_ring != no_ring;
  const auto is_slot = [&](SlotId slot) { return has_unit(memory.slot_view(), index(slot)); };
  require(is_branch ? span.write_slot == no_slot : is_slot(span.write_slot),
          "runner: a span writes a slot that exists, a branch none");
  require(span.read_slot == no_slot || is_slot(span.read_slot),
          "runner: a span reads a slot that exists");
  check_ring(span);
}

void StepRules::check_pages(const Span& span) const {
  const MemoryLayout& memory = capacity_.memory;
  const std::int64_t end = span.position + std::ssize(span.tokens);
  require(end <= positions_max_, "runner: a sequence is longer than was planned for");
  require(span.tables.size() == memory.groups.size(), "runner: a page table per group");
  for (std::int32_t group = 0; group < memory.group_count(); ++group) {
    const PageTable& table = span.tables[static_cast<std::size_t>(group)];
    const MemoryKind& kind = *memory.groups[static_cast<std::size_t>(group)].kind;
    require(end <= std::ssize(table) * memory.page_tokens,
            "runner: a span's page table has room for its tokens");
    std::int32_t first = 0;
    for (const PageId page : table) {
      const PositionRange positions = {first, first + memory.page_tokens};
      const bool may_lack = page == no_page && positions.last <= span.position &&
                            !kind.needs(positions, span.position);
      require(may_lack || has_unit(ViewId{group}, index(page)),
              "runner: a page that exists, where one is read");
      first = positions.last;
    }
  }
}

void StepRules::check_ring(const Span& span) const {
  const MemoryLayout& memory = capacity_.memory;
  require(span.drafts >= 0 && span.drafts < std::ssize(span.tokens) && span.ring_entries >= 0,
          "runner: drafts come after a token");
  if (span.ring == no_ring) {
    require(span.drafts == 0 && span.ring_entries == 0, "runner: drafts are kept in a ring");
    return;
  }
  require(has_unit(memory.ring_view(), index(span.ring)) &&
              has_unit(memory.ring_view(), index(ring_of_drafts(span))) &&
              span.ring_entries <= memory.ring_tokens && span.drafts <= memory.ring_tokens,
          "runner: a ring that exists, with room for its entries");
  require(!uses_ring(span) || std::ssize(span.tokens) <= 1 + memory.ring_tokens,
          "runner: few tokens come after a ring's entries");
}

void StepRules::check(const Step& step) const {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  for (const Span& span : step.spans) {
    tokens += std::ssize(span.tokens);
    rows += std::ssize(span.samples);
    check(span);
    for (const TokenId token : span.tokens) {
      require(index(token) >= 0 && index(token) < vocab_, "runner: a token of the vocabulary");
    }
  }
  const auto with_ring = std::ranges::count_if(step.spans, uses_ring);
  require(tokens <= capacity_.step_tokens && rows <= capacity_.step_samples &&
              with_ring <= capacity_.sequences_max + capacity_.step_branches &&
              std::ssize(step.spans) <= capacity_.step_spans + capacity_.step_branches,
          "runner: a step within capacity()");
  if (capacity_.memory.has_slots()) check_chains(step);
}

void StepRules::check(const AdvanceSlot& order) const {
  const MemoryLayout& memory = capacity_.memory;
  const auto is_slot = [&](SlotId slot) { return has_unit(memory.slot_view(), index(slot)); };
  require((order.from == no_slot || is_slot(order.from)) && is_slot(order.to) &&
              has_unit(memory.ring_view(), index(order.ring)) && order.entries > 0 &&
              order.entries <= memory.ring_tokens,
          "runner: an order names slots and a ring that exist");
}

void StepRules::check_drafting(const Step& step) const {
  require(std::ssize(step.spans) <= capacity_.sequences_max, "runner: drafts within capacity()");
  for (const Span& span : step.spans) {
    require(span.tokens.size() == 1 && span.samples.size() == 1 && span.drafts > 0 &&
                span.position > 0 && span.write_slot == no_slot &&
                (!capacity_.memory.has_slots() || index(span.read_slot) >= 0),
            "runner: what is drafted for has run, but for one token");
    Span reach = span;  // as a step would run it, but for the slot that is written
    const std::vector<TokenId> tokens(static_cast<std::size_t>(span.drafts), span.tokens.front());
    reach.tokens = tokens;
    reach.drafts = 0;
    reach.write_slot = span.read_slot;
    check(reach);
  }
}

}  // namespace hyb::models
