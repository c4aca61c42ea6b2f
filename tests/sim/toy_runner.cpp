#include "tests/sim/toy_runner.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace hyb::sim {

namespace {

std::size_t toy_units(const MemoryLayout& memory, ViewId view) {
  return static_cast<std::size_t>(memory.superblocks) *
         static_cast<std::size_t>(memory.units_per_superblock(view));
}

}  // namespace

ToyRunner::ToyRunner(const Capacity& capacity, const ToyModel& model, Bug bug, bool checks_rules)
    : capacity_(capacity),
      model_(model),
      bug_(bug),
      checks_rules_(checks_rules),
      slots_(toy_units(capacity.memory, capacity.memory.slot_view())),
      packed_(toy_units(capacity.memory, capacity.memory.packed_view())),
      rings_(toy_units(capacity.memory, capacity.memory.ring_view())) {
  const MemoryLayout& memory = capacity.memory;
  if (model.attention) {
    rows_.resize(toy_units(memory, ViewId{0}) * static_cast<std::size_t>(memory.page_tokens));
  }
  if (memory.fixed_superblocks.empty()) {
    owners_.assign(static_cast<std::size_t>(memory.superblocks), no_view);
  }
}

void ToyRunner::rule(bool holds, const std::string& text) const {
  if (checks_rules_ && !holds) throw Violation("rule of the runner: " + text);
}

StepResult ToyRunner::run(const Step& step) {
  on_step(step);
  ++steps;
  orders += static_cast<std::int64_t>(step.orders.size());
  spans_max = std::max(spans_max, static_cast<std::int64_t>(step.spans.size()));
  if (fails()) {
    spoil(step);
    throw StepFailure();
  }
  if (bug_ != Bug::orders_after_spans) carry_out(step.orders);
  check(step);
  StepResult result;
  for (const Span& span : step.spans) {
    check(span);  // one that goes on finds what the one before has written
    for (const SampleRow& row : span.samples) check(span, row);
    run_span(step, span, result);
  }
  fill_rings(step);
  if (bug_ == Bug::orders_after_spans) carry_out(step.orders);
  if (bug_ == Bug::answers_swapped && result.sampled.size() > 1) {
    std::swap(result.sampled.front(), result.sampled.back());
  }
  return result;
}

void ToyRunner::check(const Step& step) const {
  std::size_t tokens = 0, samples = 0;
  for (const Span& span : step.spans) {
    tokens += span.tokens.size();
    samples += span.samples.size();
  }
  rule(!step.spans.empty() || !step.orders.empty(), "a step has spans or orders");
  rule(tokens <= static_cast<std::size_t>(capacity_.step_tokens), "at most step_tokens tokens");
  rule(samples <=
           static_cast<std::size_t>(std::max(capacity_.step_samples, capacity_.sequences_max)),
       "at most step_samples samples");
  const auto branches = std::count_if(step.spans.begin(), step.spans.end(), is_branch);
  const std::int32_t spans = std::max(capacity_.step_spans, capacity_.sequences_max);
  rule(std::ssize(step.spans) - branches <= spans, "at most step_spans spans");
  rule(branches <= capacity_.step_branches, "at most step_branches branches");
  for (const Span& span : step.spans) check_branch(step, span);
  const char* const broken = broken_rule(step, page_tokens());
  rule(broken == nullptr, broken == nullptr ? "" : broken);
}

void ToyRunner::check_branch(const Step& step, const Span& span) const {
  if (!is_branch(span)) return;
  const std::int32_t written = model_.attention ? span.position / page_tokens() : 0;
  const auto is_beside = [&](const Span& other) {
    if (&other >= &span || is_branch(other) || other.position != span.position) return false;
    if (other.tokens[0] != span.tokens[0] || other.read_slot != span.read_slot) return false;
    if (other.ring_entries != span.ring_entries || other.ring != span.ring) return false;
    return !model_.attention || std::equal(pages_of(span).begin(), pages_of(span).begin() + written,
                                           pages_of(other).begin());
  };
  rule(std::any_of(step.spans.begin(), step.spans.end(), is_beside),
       "a branch is beside a span of its sequence");
  rule(span.write_slot == no_slot, "a branch writes no slot");
}

void ToyRunner::check(const Span& span) const {
  const auto count = static_cast<std::int32_t>(span.tokens.size());
  rule(count > 0, "a span has tokens");
  rule(span.tables.size() == capacity_.memory.groups.size(), "a page table per group");
  rule(span.drafts >= 0 && span.drafts < count && span.drafts <= drafts_max,
       "a span has a token that is no draft");
  rule(span.drafts == 0 || !span.samples.empty(), "what follows drafts is drawn");
  const auto rows = static_cast<std::int32_t>(span.samples.size());
  for (std::int32_t i = 0; span.drafts > 0 && i < rows; ++i) {
    rule(span.samples[static_cast<std::size_t>(i)].token == count - rows + i,
         "what follows a draft is drawn, and what follows those after it");
  }
  if (model_.attention) {
    const auto room = static_cast<std::int32_t>(pages_of(span).size()) * page_tokens();
    rule(room >= span.position + count, "the page table has room for the span");
    for (const PageId page : pages_of(span)) check_owner(ViewId{0}, index(page));
    for (std::int32_t i = 0; i < span.position; ++i) {
      const Row& row = const_cast<ToyRunner*>(this)->row_at(span, i);
      rule(row.written && row.position == i, "a page holds the positions it is read for");
    }
  }
  if (!model_.recurrence) {
    rule(span.read_slot == no_slot && span.write_slot == no_slot, "no slots without recurrence");
    rule(span.ring == no_ring && span.ring_entries == 0, "no rings without recurrence");
    return;
  }
  rule(span.drafts <= capacity_.memory.ring_tokens, "drafts have room in a ring");
  rule((span.ring != no_ring) == (span.drafts > 0 || span.ring_entries > 0),
       "a span names a ring that it uses");
  if (span.ring != no_ring) {
    check_owner(capacity_.memory.ring_view(), index(span.ring));
    const Ring& ring = ring_at(span.ring);
    rule(span.ring_entries <= std::ssize(ring), "entries are written before they are read");
    for (std::int32_t i = 0; i < span.ring_entries; ++i) {
      const Entry& entry = ring[static_cast<std::size_t>(i)];
      rule(entry.position == span.position - span.ring_entries + i,
           "entries are the tokens before the span");
      const bool is_known =
          span.samples.empty() ||
          span.samples[0].history[static_cast<std::size_t>(entry.position)] == entry.token;
      rule(is_known, "entries are the history's tokens");
    }
  }
  rule((span.branch_ring != no_ring) == is_branch(span), "a branch has a ring of its own");
  if (is_branch(span)) {
    check_owner(capacity_.memory.ring_view(), index(span.branch_ring));
  } else {
    check_owner(capacity_.memory.slot_view(), index(span.write_slot));
  }
  rule((span.read_slot == no_slot) == (span.position == 0), "only the start reads no slot");
  if (span.read_slot == no_slot) return;
  check_owner(capacity_.memory.slot_view(), index(span.read_slot));
  const Slot& slot = slot_at(span.read_slot);
  rule(slot.written, "a slot is written before it is read");
  const std::int32_t offset = span.position - span.ring_entries - slot.position;
  rule(offset >= 0 && offset < static_cast<std::int32_t>(slot.states.size()),
       "the slot is at the span's position");
}

void ToyRunner::check(const Span& span, const SampleRow& row) const {
  rule(row.token >= 0 && row.token < static_cast<std::int32_t>(span.tokens.size()),
       "a sampled row is in its span");
  const auto known = static_cast<std::int32_t>(row.history.size());
  rule(known >= span.position + row.token + 1, "history reaches the sampled row");
  rule(row.prompt_tokens > 0 && row.prompt_tokens <= known, "the prompt is part of history");
  rule(row.draw == static_cast<std::uint64_t>(known - row.prompt_tokens), "draws are counted");
  const auto from = row.history.begin() + span.position;
  const auto count = std::min(std::ssize(span.tokens), row.history.end() - from);
  rule(std::equal(from, from + count, span.tokens.begin()), "history has the span's tokens");
  rule(span.drafts == 0 || row.history.end() - from == row.token + 1,
       "history ends where a draft is drawn");
  if (!model_.attention) return;
  for (std::int32_t i = 0; i < span.position; ++i) {
    const Row& kept = const_cast<ToyRunner*>(this)->row_at(span, i);
    rule(kept.token == row.history[static_cast<std::size_t>(i)], "pages hold the history");
  }
}

void ToyRunner::carry_out(std::vector<Order> list) {
  if (bug_ == Bug::orders_ignored) return;
  if (bug_ == Bug::orders_reversed) std::reverse(list.begin(), list.end());
  if (bug_ == Bug::last_order_lost && !list.empty()) list.pop_back();
  for (const Order& order : list) carry_out(order);
}

void ToyRunner::carry_out(const Order& order) {
  const MemoryLayout& memory = capacity_.memory;
  if (const auto* copy = std::get_if<UnitCopy>(&order)) return carry_out(*copy);
  if (const auto* change = std::get_if<ChangeOwner>(&order)) return change_owner(*change);
  if (const auto* entries = std::get_if<AdvanceSlot>(&order)) return carry_out(*entries);
  if (const auto* pack = std::get_if<PackSlot>(&order)) {
    check_owner(memory.slot_view(), index(pack->from));
    check_owner(memory.packed_view(), index(pack->to));
    packed_.at(static_cast<std::size_t>(index(pack->to))) = slot_at(pack->from);
    ++packed;
  } else {
    const auto& unpack = std::get<UnpackSlot>(order);
    check_owner(memory.packed_view(), index(unpack.from));
    check_owner(memory.slot_view(), index(unpack.to));
    slot_at(unpack.to) = packed_.at(static_cast<std::size_t>(index(unpack.from)));
  }
}

void ToyRunner::carry_out(const AdvanceSlot& order) {
  check_owner(capacity_.memory.slot_view(), index(order.from));
  check_owner(capacity_.memory.slot_view(), index(order.to));
  check_owner(capacity_.memory.ring_view(), index(order.ring));
  const Slot& from = slot_at(order.from);
  const Ring& ring = ring_at(order.ring);
  const bool are_written = from.written && order.entries > 0 && order.entries <= std::ssize(ring);
  rule(are_written, "a state and entries are written before one is applied to the other");
  if (!are_written) return;
  const std::int32_t end = from.position + static_cast<std::int32_t>(from.states.size()) - 1;
  rule(ring.front().position == end, "entries follow the state");
  ++advanced;
  if (bug_ == Bug::ring_not_applied) return;
  const std::uint64_t state = applied(from.states.back(), ring, order.entries);
  slot_at(order.to) = {true, end + order.entries, {state}};
}

std::uint64_t ToyRunner::applied(std::uint64_t state, const Ring& ring,
                                 std::int32_t entries) const {
  std::size_t first = 0, count = static_cast<std::size_t>(entries);
  if (bug_ == Bug::one_accepted_too_many) ++count;
  if (bug_ == Bug::ring_off_by_one) first = 1;
  for (std::size_t i = first; i < std::min(first + count, ring.size()); ++i) {
    state = advance(state, ring[i].token, ring[i].attended);
  }
  return state;
}

void ToyRunner::carry_out(const UnitCopy& copy) {
  auto [view, from, to] = copy;
  check_owner(view, from);
  check_owner(view, to);
  if (view == capacity_.memory.slot_view()) {
    slot_at(SlotId{to}) = slot_at(SlotId{from});
    return;
  }
  if (view == capacity_.memory.packed_view()) {
    packed_.at(static_cast<std::size_t>(to)) = packed_.at(static_cast<std::size_t>(from));
    return;
  }
  if (view == capacity_.memory.ring_view()) {
    ring_at(RingId{to}) = ring_at(RingId{from});
    return;
  }
  rule(view == ViewId{0} && from != to, "a copy names two pages");
  if (bug_ == Bug::copy_turned_round) std::swap(from, to);
  const std::int32_t rows = bug_ == Bug::copy_has_one_row ? 1 : page_tokens();
  for (std::int32_t i = 0; i < rows; ++i) {
    const auto at = [&](std::int32_t page) {
      return static_cast<std::size_t>(page * page_tokens() + i);
    };
    rows_.at(at(to)) = rows_.at(at(from));
  }
}

void ToyRunner::change_owner(const ChangeOwner& change) {
  rule(!owners_.empty(), "fixed superblocks do not change");
  ViewId& owner = owners_.at(static_cast<std::size_t>(index(change.superblock)));
  rule(change.from == no_view || change.from == owner, "a change names the owner before");
  owner = change.to;
  ++owner_changes;
  const auto lose = [&](auto& units, std::int32_t count) {
    const auto first = static_cast<std::ptrdiff_t>(index(change.superblock)) * count;
    std::fill(units.begin() + first, units.begin() + first + count,
              typename std::decay_t<decltype(units)>::value_type{});
  };
  const MemoryLayout& memory = capacity_.memory;
  if (model_.attention) lose(rows_, memory.groups[0].pages_per_superblock * page_tokens());
  lose(slots_, memory.slots.per_superblock);
  lose(packed_, memory.packed.per_superblock);
  lose(rings_, memory.rings.per_superblock);
}

/// The unit exists and its superblock is seen through this view.
void ToyRunner::check_owner(ViewId view, std::int32_t unit) const {
  const std::int32_t units = capacity_.memory.units_per_superblock(view);
  rule(unit >= 0 && units > 0 && unit < units * capacity_.memory.superblocks, "a unit exists");
  if (!owners_.empty() && checks_rules_) {
    rule(owners_[static_cast<std::size_t>(unit / units)] == view, "a unit is its view's own");
  }
}

namespace {

/// In the tables of the first span of the step that has the same sequence.
Span beside(const Step& step, const Span& span) {
  Span moved = span;
  const auto sibling = std::ranges::find_if(step.spans, [&](const Span& other) {
    return !other.samples.empty() && other.samples[0].params == span.samples[0].params;
  });
  if (!span.tables.empty() && sibling->tables[0].size() >= span.tables[0].size()) {
    moved.tables = sibling->tables;
  }
  return moved;
}

}  // namespace

/// All spans have read theirs.
void ToyRunner::fill_rings(const Step& step) {
  for (auto& [ring, entries] : filled_) ring_at(ring) = std::move(entries);
  filled_.clear();
  if (bug_ != Bug::losers_ring_taken) return;
  for (const Span& span : step.spans) {
    if (span.branch_ring != no_ring) std::swap(ring_at(span.ring), ring_at(span.branch_ring));
  }
}

void ToyRunner::run_span(const Step& step, const Span& planned, StepResult& result) {
  const bool is_moved = bug_ == Bug::branch_in_siblings_page && is_branch(planned);
  const Span span = is_moved ? beside(step, planned) : planned;
  const Span& seen = bug_ == Bug::neighbours_page_table ? step.spans.front() : span;
  const auto key = [&](std::int32_t position) {
    const auto room = static_cast<std::int32_t>(pages_of(seen).size()) * page_tokens();
    const bool foreign = position >= span.position || position >= room;
    return row_at(foreign ? span : seen, position).key;
  };
  std::uint64_t state = state_before(bug_ == Bug::neighbours_state ? step.spans.front() : span);
  if (span.ring_entries > 0 && (span.drafts > 0 || bug_ != Bug::ring_forgotten)) {
    state = applied(state, ring_at(span.ring), span.ring_entries);
  }
  std::vector<std::uint64_t> states = {state};
  const std::size_t certain = span.tokens.size() - static_cast<std::size_t>(span.drafts);
  Ring ring;
  std::size_t next_sample = 0;
  for (std::size_t i = 0; i < span.tokens.size(); ++i) {
    const auto position = span.position + static_cast<std::int32_t>(i);
    const TokenId token = span.tokens[i];
    const std::uint64_t attended = model_.attention ? attend(position, key) : 0;
    if (model_.recurrence) state = advance(state, token, attended);
    const std::size_t in_state = bug_ == Bug::draft_in_state ? certain + 1 : certain;
    if (i < in_state) states.push_back(state);
    if (i >= certain) ring.push_back({token, attended, position});
    const bool is_kept = bug_ == Bug::keys_of_drafts_kept && model_.attention &&
                         row_at(span, position).position == position;
    if (model_.attention && !is_kept) {
      const bool early =
          bug_ == Bug::page_edge_off_by_one && position > 0 && position % page_tokens() == 0;
      row_at(span, early ? position - 1 : position) = {true, position, token,
                                                       make_key(token, attended, state)};
    }
    for (; next_sample < span.samples.size() &&
           span.samples[next_sample].token == static_cast<std::int32_t>(i);
         ++next_sample) {
      const SampleRow& row = span.samples[next_sample];
      const SampleRow& first = span.samples.front();
      const std::uint64_t count = bug_ == Bug::draw_counter_stuck      ? 0
                                  : bug_ == Bug::draws_of_drafts_alike ? first.draw
                                                                       : row.draw;
      const std::uint64_t output = output_of(model_, position + 1, state, key);
      auto mask = bug_ == Bug::masks_of_drafts_alike ? first.mask : row.mask;
      if (bug_ == Bug::masks_ignored && row.draw > 2) mask = {};
      result.sampled.push_back(sim::draw(model_, output, *row.params, count, mask));
    }
  }
  if (!model_.recurrence) return;
  const bool in_place = bug_ == Bug::writes_read_slot && span.read_slot != no_slot &&
                        span.read_slot != span.write_slot;
  if (is_branch(span)) {
    filled_.emplace_back(ring_of_drafts(span), std::move(ring));
    return;
  }
  if (has_rings()) {
    const auto end = span.position + static_cast<std::int32_t>(certain);
    slot_at(span.write_slot) = {true, end, {states.back()}};
  } else {
    slot_at(span.write_slot) = {true, span.position, states};
  }
  if (span.drafts > 0) filled_.emplace_back(span.ring, std::move(ring));
  if (in_place) {
    const auto end = span.position + static_cast<std::int32_t>(span.tokens.size());
    slot_at(span.read_slot) = {true, end, {state}};
  }
}

std::vector<std::vector<SampledToken>> ToyRunner::draft(const Step& step) {
  on_step(step);
  ++steps;
  orders += static_cast<std::int64_t>(step.orders.size());
  const bool is_failing = fails();
  if (bug_ != Bug::orders_before_drafts_lost) carry_out(step.orders);
  std::vector<std::vector<SampledToken>> drafts;
  for (const Span& span : step.spans) {
    rule(span.drafts > 0 && span.tokens.size() == 1 && span.samples.size() == 1 &&
             span.write_slot == no_slot,
         "drafts come after one token");
    Span plain = span;
    plain.drafts = 0;
    plain.write_slot = span.read_slot;
    check(plain);
    check(plain, span.samples.front());
    if (model_.attention) {
      const auto room = static_cast<std::int32_t>(pages_of(span).size()) * page_tokens();
      rule(room > span.position + span.drafts, "the page table has room for the drafts");
    }
    std::uint64_t state = state_before(span);
    if (span.ring_entries > 0) state = applied(state, ring_at(span.ring), span.ring_entries);
    std::vector<std::uint64_t> keys;  // of its own positions
    const auto key = [&](std::int32_t position) {
      const std::int32_t own = position - span.position;
      return own < 0 ? row_at(span, position).key : keys.at(static_cast<std::size_t>(own));
    };
    TokenId token = span.tokens.front();
    std::vector<SampledToken>& own = drafts.emplace_back();
    for (std::int32_t i = 0; i < span.drafts; ++i) {
      const std::int32_t position = span.position + i;
      const std::uint64_t attended = model_.attention ? attend(position, key) : 0;
      if (model_.recurrence) state = advance(state, token, attended);
      if (i == 0 && bug_ == Bug::drafting_moves_state && model_.recurrence) {
        slot_at(span.read_slot).states.back() = state;
      }
      keys.push_back(make_key(token, attended, state));
      const std::int32_t written =
          bug_ == Bug::drafting_writes_back ? std::max(position - 1, 0) : position;
      if (model_.attention) row_at(span, written) = {true, position, TokenId{0}, 777};
      const SampleRow row = span.samples.front().later(static_cast<std::uint64_t>(i));
      SampledToken drawn = sim::draw(model_, output_of(model_, position + 1, state, key),
                                     *row.params, row.draw, row.mask);
      if (!drawn.finite) break;
      drawn.logprob = -0.5F;
      if (row.params->logprobs > 0) drawn.top = {{drawn.token, -0.5F}, {TokenId{3}, -1.5F}};
      if (++drafted % 5 == 0) drawn.token = TokenId{(index(drawn.token) + 1) % model_.vocab};
      token = drawn.token;
      own.push_back(drawn);
    }
  }
  if (is_failing) throw StepFailure();
  return drafts;
}

std::uint64_t ToyRunner::state_before(const Span& span) const {
  if (!model_.recurrence) return 0;
  SlotId from = span.read_slot;
  if (bug_ == Bug::reads_write_slot) from = span.write_slot;
  if (bug_ == Bug::fresh_state_not_zero && from == no_slot) from = span.write_slot;
  if (from == no_slot || !slot_at(from).written) return 0;
  const Slot& slot = slot_at(from);
  if (bug_ == Bug::chunk_forgets_state && slot.states.size() > 2) return 0;
  const std::int32_t last = static_cast<std::int32_t>(slot.states.size()) - 1;
  std::int32_t offset = std::clamp(span.position - span.ring_entries - slot.position, 0, last);
  if (bug_ == Bug::rejected_tokens_kept || bug_ == Bug::fresh_state_not_zero) offset = last;
  if (bug_ == Bug::state_one_span_old && span.read_slot == span.write_slot) offset = 0;
  return slot.states[static_cast<std::size_t>(offset)];
}

ToyRunner::Row& ToyRunner::row_at(const Span& span, std::int32_t position) {
  const PageTable& pages = pages_of(span);
  auto page = static_cast<std::size_t>(position / page_tokens());
  if (bug_ == Bug::last_page_of_table_stale && page > 0 && page + 1 == pages.size()) --page;
  const std::int32_t row = index(pages[page]) * page_tokens() + position % page_tokens();
  return rows_.at(static_cast<std::size_t>(row));
}

void ToyRunner::receive(const ToyRunner& other, ViewId view, std::int32_t from, std::int32_t to) {
  const MemoryLayout& memory = capacity_.memory;
  other.check_owner(view, from);
  check_owner(view, to);
  const auto source = static_cast<std::size_t>(from), target = static_cast<std::size_t>(to);
  if (view == memory.slot_view()) {
    slots_.at(target) = other.slots_.at(source);
  } else if (view == memory.packed_view()) {
    packed_.at(target) = other.packed_.at(source);
  } else {
    const auto rows = static_cast<std::ptrdiff_t>(memory.page_tokens);
    std::copy_n(other.rows_.begin() + from * rows, rows, rows_.begin() + to * rows);
  }
}

void ToyRunner::read(ViewId, std::int32_t, std::span<std::byte>) {
  throw Violation("a toy's units are not read");
}

void ToyRunner::write(ViewId, std::int32_t, std::span<const std::byte>) {
  throw Violation("a toy's units are not written");
}

/// Every second span is not run at all, the others are run on rubbish: the possible state after
/// a step that fails half way. The last orders are not executed.
void ToyRunner::spoil(const Step& step) {
  const std::size_t first = static_cast<std::size_t>(steps % 2);
  const std::size_t done = static_cast<std::size_t>(steps) % (step.orders.size() + 1);
  for (std::size_t i = 0; i < done; ++i) carry_out(step.orders[i]);
  for (std::size_t i = first; i < step.spans.size(); i += 2) {
    const Span& span = step.spans[i];
    for (std::size_t j = 0; model_.attention && j < span.tokens.size(); ++j) {
      const auto position = span.position + static_cast<std::int32_t>(j);
      row_at(span, position) = {true, position, TokenId{0}, 666};
    }
    if (model_.recurrence && !is_branch(span)) {
      slot_at(span.write_slot) = {true, span.position, {666, 666}};
    }
    if (span.ring != no_ring) ring_at(ring_of_drafts(span)) = {{TokenId{0}, 666, span.position}};
  }
}

namespace {

bool goes_on(const Span& before, const Span& span) {
  const auto end = before.position + static_cast<std::int32_t>(before.tokens.size());
  return span.position == end && span.read_slot == before.write_slot &&
         std::equal(span.tables.begin(), span.tables.end(), before.tables.begin(),
                    before.tables.end());
}

using Page = std::pair<std::size_t, PageId>;  // group, page

std::vector<Page> pages_of(const Span& span, std::int32_t from, std::int32_t end) {
  std::vector<Page> pages;
  for (std::size_t group = 0; group < span.tables.size(); ++group) {
    for (std::int32_t i = from; i < end; ++i) {
      const PageId page = span.tables[group][static_cast<std::size_t>(i)];
      if (page != no_page) pages.emplace_back(group, page);
    }
  }
  return pages;
}

}  // namespace

bool is_branch(const Span& span) {
  return span.drafts > 0 && std::ssize(span.samples) < 1 + span.drafts;
}

std::vector<std::size_t> first_spans(const Step& step) {
  std::vector<std::size_t> first;
  for (std::size_t i = 0; i < step.spans.size(); ++i) {
    first.push_back(i > 0 && goes_on(step.spans[i - 1], step.spans[i]) ? first.back() : i);
  }
  return first;
}

const char* broken_rule(const Step& step, std::int32_t page_tokens) {
  const std::vector<std::size_t> first = first_spans(step);
  const std::int32_t size = std::max(page_tokens, 1);
  std::set<SlotId> slots;
  std::set<RingId> rings;
  std::map<Page, std::size_t> pages;  // by whose first span
  for (std::size_t i = 0; i < step.spans.size(); ++i) {
    const Span& span = step.spans[i];
    if (span.write_slot != no_slot && !slots.insert(span.write_slot).second) {
      return "write slots are distinct";
    }
    if (span.ring != no_ring && !rings.insert(ring_of_drafts(span)).second) {
      return "rings are distinct";
    }
    const auto last = span.position + static_cast<std::int32_t>(span.tokens.size()) - 1;
    for (const Page& page : pages_of(span, span.position / size, last / size + 1)) {
      if (pages.emplace(page, first[i]).first->second != first[i]) {
        return "written pages are distinct";
      }
    }
  }
  for (std::size_t i = 0; i < step.spans.size(); ++i) {
    const Span& span = step.spans[i];
    if (span.read_slot != span.write_slot && first[i] == i && slots.contains(span.read_slot)) {
      return "a slot that one span reads no other writes";
    }
    // A partly filled page may be shared with its writer, which writes after what this one reads.
    for (const Page& page : pages_of(span, 0, span.position / size)) {
      const auto found = pages.find(page);
      if (found != pages.end() && found->second != first[i]) return "a full page is not written";
    }
  }
  return nullptr;
}

}  // namespace hyb::sim
