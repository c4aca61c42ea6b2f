#include "tests/sim/layered_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/sim/toy_runner.h"

namespace hyb::sim {

bool SinkWindow::needs(PositionRange positions, std::int32_t length) const {
  const auto meets = [&](std::int32_t first, std::int32_t last) {
    return std::max(positions.first, first) < std::min(positions.last, last);
  };
  return meets(0, std::min(sinks_, length)) || meets(length - window_ + 1, length);
}

LayeredModel::LayeredModel(Random& random) {
  draws_.vocab = random.between(2, 12);
  static constexpr LayerKind paged[] = {LayerKind::full, LayerKind::window, LayerKind::chunked,
                                        LayerKind::sink};
  // All kinds at once, one kind alone, or any number of them.
  const std::int32_t mixture = random.between(0, 5);
  if (mixture == 0) {
    add(random, paged[random.below(std::size(paged))]);
  } else if (mixture == 1) {
    add(random, LayerKind::recurrent);
  } else {
    for (const LayerKind kind : paged) {
      if (mixture == 2 || random.chance(50)) add(random, kind);
    }
    if (mixture == 2 || random.chance(75) || layers_.empty()) add(random, LayerKind::recurrent);
    if (random.chance(40) && layers_.front().kind != LayerKind::recurrent) {
      add(random, layers_.front().kind);
    }
  }
  if (layers_.front().kind != LayerKind::recurrent && (mixture == 2 || random.chance(30))) {
    add(random, LayerKind::shared);
  }
}

void LayeredModel::add(Random& random, LayerKind kind) {
  const std::size_t at = layers_.size();
  LayerSpec layer{.kind = kind, .reach = random.between(1, 12), .keys_of = at};
  group_of_.push_back(0);
  ordinal_of_.push_back(0);
  if (kind == LayerKind::shared) {
    layer.keys_of = 0;
  } else if (kind == LayerKind::recurrent) {
    is_recurrent_ = true;
  } else {
    // A second layer of the first one's kind joins its group.
    const bool joins = at > 0 && kind == layers_.front().kind;
    if (joins) {
      layer.reach = layers_.front().reach;
      ordinal_of_[at] = 1;
    } else {
      group_of_[at] = group_kinds_.size();
      switch (kind) {
        case LayerKind::window:
          group_kinds_.push_back(std::make_unique<SlidingWindow>(layer.reach));
          break;
        case LayerKind::chunked:
          group_kinds_.push_back(std::make_unique<ChunkedAttention>(layer.reach));
          break;
        case LayerKind::sink:
          group_kinds_.push_back(std::make_unique<SinkWindow>(2, layer.reach));
          break;
        default:
          group_kinds_.push_back(std::make_unique<FullAttention>());
      }
    }
  }
  layers_.push_back(layer);
}

std::int32_t LayeredModel::first_read(const LayerSpec& layer, std::int32_t position) const {
  switch (layer.kind) {
    case LayerKind::window:
    case LayerKind::sink:
      return std::max(0, position - layer.reach + 1);
    case LayerKind::chunked:
      return position / layer.reach * layer.reach;
    default:
      return 0;
  }
}

void NaiveLayered::push(TokenId token) {
  output_ = model_->run(
      token, position_, recurrence_,
      [&](std::size_t layer, std::int32_t p) { return keys_[layer][static_cast<std::size_t>(p)]; },
      [&](std::size_t layer, std::uint64_t key) { keys_[layer].push_back(key); });
  ++position_;
}

namespace {

std::size_t units_of(const MemoryLayout& memory, ViewId view) {
  return static_cast<std::size_t>(memory.superblocks) *
         static_cast<std::size_t>(memory.units_per_superblock(view));
}

template <typename Value>
void copy_in(Value& value, std::span<const std::byte> bytes, std::size_t at) {
  std::memcpy(&value, bytes.data() + at, sizeof value);
}

template <typename Value>
void copy_out(const Value& value, std::span<std::byte> bytes, std::size_t at) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

}  // namespace

const char* name_of(Fault fault) {
  static const char* const names[] = {"none",
                                      "partial page shared",
                                      "slot not cleared",
                                      "state of the wrong chunk published",
                                      "conv window cut short",
                                      "rejected token kept",
                                      "snapshot written after publishing",
                                      "owner changed too early",
                                      "copies of one group lost",
                                      "buffer reused before it was written",
                                      "state restored without its pages",
                                      "piece starts again",
                                      "unit copied too late",
                                      "unit used before it was written"};
  return names[static_cast<int>(fault)];
}

LayeredRunner::LayeredRunner(const Capacity& capacity, const LayeredModel& model, Fault fault,
                             bool checks_rules)
    : capacity_(capacity), model_(&model), fault_(fault), checks_rules_(checks_rules) {
  const MemoryLayout& memory = capacity_.memory;
  for (std::int32_t group = 0; group < static_cast<std::int32_t>(memory.groups.size()); ++group) {
    rows_.emplace_back(units_of(memory, ViewId{group}) *
                       static_cast<std::size_t>(memory.page_tokens));
  }
  slots_.resize(units_of(memory, memory.slot_view()));
  packed_.resize(units_of(memory, memory.packed_view()));
  if (memory.fixed_superblocks.empty()) {
    owners_.assign(static_cast<std::size_t>(memory.superblocks), no_view);
  }
}

std::size_t LayeredRunner::page_bytes(const LayeredModel&, std::size_t, std::int32_t page_tokens) {
  return sizeof(Row) * static_cast<std::size_t>(page_tokens);
}

std::size_t LayeredRunner::slot_bytes() { return sizeof(SlotImage); }

void LayeredRunner::rule(bool holds, const char* text) const {
  if (checks_rules_ && !holds) throw Violation(std::string("rule of the runner: ") + text);
}

StepResult LayeredRunner::run(const Step& step) {
  on_step(step);
  ++steps;
  if (fails()) throw StepFailure();
  carry_out(step.orders);
  check(step);
  StepResult result;
  // From the last to the first: no span may count on what another one of the step writes, but for
  // the one that it goes on from.
  const std::vector<std::size_t> first = first_spans(step);
  for (std::size_t i = 0; i < first.size(); ++i) chained_spans += first[i] != i ? 1 : 0;
  std::vector<StepResult> results(step.spans.size());
  for (std::size_t end = step.spans.size(); end > 0;) {
    const std::size_t begin = first[end - 1];
    for (std::size_t i = begin; i < end; ++i) {
      if (checks_rules_) check(step.spans[i]);
      Span span = step.spans[i];
      if (fault_ == Fault::piece_starts_anew && i > begin) span.read_slot = span.write_slot;
      run_span(span, results[i]);
    }
    end = begin;
  }
  for (StepResult& one : results) {
    result.sampled.insert(result.sampled.end(), one.sampled.begin(), one.sampled.end());
  }
  return result;
}

void LayeredRunner::carry_out(std::span<const Order> orders) {
  const MemoryLayout& memory = capacity_.memory;
  if (fault_ == Fault::owner_changed_too_early) {
    for (const Order& order : orders) {
      if (const auto* change = std::get_if<ChangeOwner>(&order)) change_owner(*change);
    }
  }
  for (const Order& order : orders) {
    if (const auto* copy = std::get_if<UnitCopy>(&order)) {
      copy_unit(*copy);
    } else if (const auto* change = std::get_if<ChangeOwner>(&order)) {
      if (fails()) throw StepFailure();
      if (fault_ != Fault::owner_changed_too_early) change_owner(*change);
    } else if (const auto* pack = std::get_if<PackSlot>(&order)) {
      check_owner(memory.slot_view(), index(pack->from));
      check_owner(memory.packed_view(), index(pack->to));
      const Slot& from = slot(pack->from);
      rule(from.position >= 0, "what is packed was written");
      packed_.at(static_cast<std::size_t>(index(pack->to))) = from;
      ++packed;
    } else {
      const auto& unpack = std::get<UnpackSlot>(order);
      check_owner(memory.packed_view(), index(unpack.from));
      check_owner(memory.slot_view(), index(unpack.to));
      slot(unpack.to) = packed_.at(static_cast<std::size_t>(index(unpack.from)));
    }
  }
}

void LayeredRunner::copy_unit(const UnitCopy& copy) {
  check_owner(copy.view, copy.from);
  check_owner(copy.view, copy.to);
  if (copy.view == capacity_.memory.slot_view()) {
    slot(SlotId{copy.to}) = slot(SlotId{copy.from});
    return;
  }
  if (copy.view == capacity_.memory.packed_view()) {
    packed_.at(static_cast<std::size_t>(copy.to)) = packed_.at(static_cast<std::size_t>(copy.from));
    return;
  }
  ++page_copies;
  rule(copy.from != copy.to, "a copy names two pages");
  const auto group = static_cast<std::size_t>(index(copy.view));
  if (fault_ == Fault::copies_of_one_group_lost && group == 1) return;
  if (fault_ == Fault::partial_page_shared) {
    aliases_[{group, PageId{copy.to}}] = PageId{copy.from};
    return;
  }
  auto& rows = rows_.at(group);
  const auto at = [&](std::int32_t page) { return rows.begin() + page * page_tokens(); };
  std::copy_n(at(copy.from), page_tokens(), at(copy.to));
}

bool LayeredRunner::commit(SuperblockId superblock, bool may_create) {
  if (backed_.empty()) return true;
  const auto at = static_cast<std::size_t>(index(superblock));
  if (!backed_.at(at) && may_create) backed_.at(at) = has_memory();
  return backed_.at(at);
}

/// Nothing is left of the superblock's bytes, seen from anywhere.
void LayeredRunner::change_owner(const ChangeOwner& change) {
  rule(!owners_.empty(), "fixed superblocks do not change");
  if (owners_.empty()) return;
  if (!backed_.empty()) {
    const auto at = static_cast<std::size_t>(index(change.superblock));
    rule(change.to == no_view || backed_.at(at), "an owned superblock has memory");
    if (change.to == no_view) backed_.at(at) = false;
  }
  ++owner_changes;
  owners_.at(static_cast<std::size_t>(index(change.superblock))) = change.to;
  const auto lose = [&](auto& units, std::int32_t count) {
    const auto first =
        units.begin() + static_cast<std::ptrdiff_t>(index(change.superblock)) * count;
    std::fill_n(first, count, typename std::decay_t<decltype(units)>::value_type{});
  };
  const MemoryLayout& memory = capacity_.memory;
  for (std::size_t group = 0; group < rows_.size(); ++group) {
    lose(rows_[group], memory.groups[group].pages_per_superblock * page_tokens());
  }
  lose(slots_, memory.slots.per_superblock);
  lose(packed_, memory.packed.per_superblock);
}

void LayeredRunner::check_owner(ViewId view, std::int32_t unit) const {
  if (!checks_rules_) return;
  const std::int32_t units = capacity_.memory.units_per_superblock(view);
  rule(unit >= 0 && units > 0 && unit < units * capacity_.memory.superblocks, "a unit exists");
  if (owners_.empty()) return;
  rule(owners_[static_cast<std::size_t>(unit / units)] == view, "a unit is its view's own");
}

void LayeredRunner::check(const Step& step) const {
  if (!checks_rules_) return;
  std::size_t tokens = 0, samples = 0;
  for (const Span& span : step.spans) {
    tokens += span.tokens.size();
    samples += span.samples.size();
  }
  rule(tokens <= static_cast<std::size_t>(capacity_.step_tokens), "at most step_tokens tokens");
  const std::int32_t spans = std::max(capacity_.step_spans, capacity_.sequences_max);
  rule(samples <= static_cast<std::size_t>(capacity_.sequences_max) &&
           step.spans.size() <= static_cast<std::size_t>(spans),
       "at most sequences_max samples and step_spans spans");
  const char* const broken = broken_rule(step, page_tokens());
  rule(broken == nullptr, broken);
}

/// Every page that a layer may read is there and holds its positions; what is gone is not needed.
void LayeredRunner::check(const Span& span) const {
  const auto count = static_cast<std::int32_t>(span.tokens.size());
  rule(count > 0, "a span has tokens");
  rule(span.tables.size() == rows_.size(), "a page table per group");
  for (std::size_t group = 0; group < rows_.size(); ++group) {
    const PageTable& table = span.tables[group];
    const MemoryKind& kind = model_->kind_of(group);
    const auto pages = static_cast<std::int32_t>(table.size());
    rule(pages * page_tokens() >= span.position + count, "room for the span");
    for (std::int32_t i = 0; i * page_tokens() < span.position + count; ++i) {
      const PageId page = table[static_cast<std::size_t>(i)];
      const std::int32_t first = i * page_tokens();
      const bool written_now = first + page_tokens() > span.position;
      const bool needed = written_now || kind.needs({first, first + page_tokens()}, span.position);
      rule(!needed || page != no_page, "a page that is needed is there");
      if (page == no_page) continue;
      check_owner(ViewId{static_cast<std::int32_t>(group)}, index(page));
      for (std::int32_t p = first; p < std::min(first + page_tokens(), span.position); ++p) {
        if (kind.needs({p, p + 1}, span.position)) {
          rule(row(group, page, p).position == p, "a page holds the positions it is read for");
        }
      }
    }
  }
  if (!model_->is_recurrent()) return;
  const ViewId slots = capacity_.memory.slot_view();
  check_owner(slots, index(span.write_slot));
  rule((span.read_slot == no_slot) == (span.position == 0), "only the start reads no slot");
  if (span.read_slot == no_slot) return;
  check_owner(slots, index(span.read_slot));
  const Slot& read = slot(span.read_slot);
  const std::int32_t offset = span.position - read.position;
  rule(read.position >= 0 && offset >= 0 && offset < static_cast<std::int32_t>(read.states.size()),
       "the slot is at the span's position");
}

Recurrence LayeredRunner::recurrence_before(const Span& span) const {
  if (span.read_slot == no_slot) {
    if (fault_ != Fault::slot_not_cleared) return {};
    const Slot& left = slot(span.write_slot);
    return left.states.empty() ? Recurrence{} : left.states.back();
  }
  const Slot& read = slot(span.read_slot);
  if (read.states.empty()) return {};
  const auto last = static_cast<std::int32_t>(read.states.size()) - 1;
  std::int32_t offset = std::clamp(span.position - read.position, 0, last);
  if (fault_ == Fault::rejected_token_kept) offset = last;
  const bool from_snapshot = span.read_slot != span.write_slot;
  if (fault_ == Fault::wrong_chunk_published && from_snapshot) offset = 0;
  Recurrence state = read.states[static_cast<std::size_t>(offset)];
  if (fault_ == Fault::conv_window_cut_short && from_snapshot) state.window[0] = 0;
  return state;
}

void LayeredRunner::run_span(const Span& span, StepResult& result) {
  Recurrence recurrence = model_->is_recurrent() ? recurrence_before(span) : Recurrence{};
  std::vector<Recurrence> states{recurrence};
  std::size_t next_sample = 0;
  for (std::size_t i = 0; i < span.tokens.size(); ++i) {
    const auto position = span.position + static_cast<std::int32_t>(i);
    const auto at = [&](std::size_t layer, std::int32_t p) -> Row* {
      const std::size_t group = model_->group_of(layer);
      const PageId page = span.tables[group][static_cast<std::size_t>(p / page_tokens())];
      return page == no_page ? nullptr : &row(group, page, p);
    };
    const std::uint64_t output = model_->run(
        span.tokens[i], position, recurrence,
        [&](std::size_t layer, std::int32_t p) {
          const Row* found = at(layer, p);
          return found == nullptr ? 0 : found->keys[model_->ordinal_of(layer)];
        },
        [&](std::size_t layer, std::uint64_t key) {
          Row& own = *at(layer, position);
          own.position = position;
          own.keys[model_->ordinal_of(layer)] = key;
        });
    states.push_back(recurrence);
    if (next_sample < span.samples.size() &&
        span.samples[next_sample].token == static_cast<std::int32_t>(i)) {
      const SampleRow& sample = span.samples[next_sample++];
      result.sampled.push_back(model_->draw(output, *sample.params, sample.draw));
    }
  }
  if (!model_->is_recurrent()) return;
  if (fault_ == Fault::written_after_publishing && span.read_slot != no_slot) {
    slot(span.read_slot) = {.position = span.position, .states = {states.back()}};
  }
  slot(span.write_slot) = {.position = span.position, .states = std::move(states)};
}

LayeredRunner::Row& LayeredRunner::row(std::size_t group, PageId page, std::int32_t position) {
  if (const auto found = aliases_.find({group, page}); found != aliases_.end()) {
    page = found->second;
  }
  const auto at = static_cast<std::size_t>(index(page) * page_tokens() + position % page_tokens());
  return rows_[group].at(at);
}

const LayeredRunner::Row& LayeredRunner::row(std::size_t group, PageId page,
                                             std::int32_t position) const {
  return const_cast<LayeredRunner*>(this)->row(group, page, position);
}

LayeredRunner::Slot& LayeredRunner::slot_of(ViewId view, std::int32_t unit) {
  auto& slots = view == capacity_.memory.slot_view() ? slots_ : packed_;
  return slots.at(static_cast<std::size_t>(unit));
}

void LayeredRunner::read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) {
  if (read_fails()) throw StepFailure();
  check_owner(view, unit);
  if (index(view) >= static_cast<std::int32_t>(rows_.size())) {
    const Slot& from = slot_of(view, unit);
    rule(from.position >= 0, "what is saved was written");
    SlotImage image{};
    if (!from.states.empty()) {
      image = {from.position + static_cast<std::int32_t>(from.states.size()) - 1,
               from.states.back()};
    }
    copy_out(image, bytes, 0);
    return;
  }
  const auto& rows = rows_.at(static_cast<std::size_t>(index(view)));
  for (std::int32_t i = 0; i < page_tokens(); ++i) {
    copy_out(rows.at(static_cast<std::size_t>(unit * page_tokens() + i)), bytes,
             static_cast<std::size_t>(i) * sizeof(Row));
  }
}

void LayeredRunner::write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) {
  check_owner(view, unit);
  if (index(view) >= static_cast<std::int32_t>(rows_.size())) {
    SlotImage image{};
    copy_in(image, bytes, 0);
    slot_of(view, unit) = {.position = image.position, .states = {image.state}};
    return;
  }
  if (fault_ == Fault::packed_without_pages) return;
  auto& rows = rows_.at(static_cast<std::size_t>(index(view)));
  for (std::int32_t i = 0; i < page_tokens(); ++i) {
    copy_in(rows.at(static_cast<std::size_t>(unit * page_tokens() + i)), bytes,
            static_cast<std::size_t>(i) * sizeof(Row));
  }
}

MemoryLayout random_layout(Random& random, const LayeredModel& model) {
  MemoryLayout layout;
  layout.superblock_bytes = 8192;
  if (model.groups() > 0) layout.page_tokens = random.between(1, 6);
  for (std::size_t group = 0; group < model.groups(); ++group) {
    layout.groups.push_back(
        {.kind = &model.kind_of(group),
         .page_bytes = LayeredRunner::page_bytes(model, group, layout.page_tokens),
         .pages_per_superblock = 0});
  }
  if (model.is_recurrent()) {
    layout.slots.bytes = LayeredRunner::slot_bytes();
    layout.packed.bytes = LayeredRunner::slot_bytes();
  }
  cut(random, layout);
  return layout;
}

void cut(Random& random, MemoryLayout& layout) {
  auto views = static_cast<std::int32_t>(layout.groups.size());
  for (PageGroup& group : layout.groups) group.pages_per_superblock = random.between(2, 8);
  if (layout.slots.bytes > 0) {
    ++views;
    layout.slots.per_superblock = random.between(1, 4);
    layout.packed.per_superblock = random.between(4, 8);
  }
  layout.superblocks = random.between(views + 1, 3 * views + 5);
}

}  // namespace hyb::sim
