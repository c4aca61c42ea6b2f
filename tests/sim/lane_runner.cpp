#include "tests/sim/lane_runner.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>
#include <vector>

namespace hyb::sim {

const char* name_of(LaneBug bug) {
  static const char* const names[] = {
      "none",       "waited early", "orders late", "failure spreads",
      "page freed", "page moved",   "slot early"};
  return names[static_cast<int>(bug)];
}

namespace {

using Unit = std::pair<ViewId, std::int32_t>;

/// What a step reads and writes.
struct Named {
  std::set<Unit> read, written;
  std::set<SuperblockId> owners_changed;
};

void add(std::set<Unit>& units, ViewId view, std::int32_t unit) {
  if (unit >= 0) units.emplace(view, unit);
}

void add(Named& named, const MemoryLayout& layout, const Span& span) {
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

void add(Named& named, const MemoryLayout& layout, const Order& order) {
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

Named named_by(const MemoryLayout& layout, const Step& step) {
  Named named;
  for (const Order& order : step.orders) add(named, layout, order);
  for (const Span& span : step.spans) add(named, layout, span);
  return named;
}

bool overlap(const std::set<Unit>& some, const std::set<Unit>& others) {
  return std::any_of(some.begin(), some.end(),
                     [&](const Unit& unit) { return others.contains(unit); });
}

}  // namespace

void SharedRunner::check_beside(const Step& step) const {
  const MemoryLayout& layout = capacity().memory;
  const Named mine = named_by(layout, step), theirs = named_by(layout, *beside_);
  if (overlap(mine.written, theirs.written) || overlap(mine.written, theirs.read)) {
    throw Violation("a step writes what the other lane's step names");
  }
  if (overlap(mine.read, theirs.written)) {
    throw Violation("a step reads what the other lane's step writes");
  }
  for (const std::set<Unit>* units : {&theirs.read, &theirs.written}) {
    for (const auto& [view, unit] : *units) {
      const SuperblockId superblock{unit / layout.units_per_superblock(view)};
      if (mine.owners_changed.contains(superblock)) {
        throw Violation("what the other lane's step names changes its owner");
      }
    }
  }
}

std::vector<std::vector<SampledToken>> SharedRunner::draft(const Step& step) {
  if (beside_ != nullptr && lane_bug_ == LaneBug::none) check_beside(step);
  return ToyRunner::draft(step);
}

StepResult SharedRunner::run(const Step& step) {
  if (beside_ != nullptr) {
    ++steps_beside;
    if (lane_bug_ == LaneBug::none) check_beside(step);
  }
  Step run = step;
  if (lane_bug_ == LaneBug::orders_late) {
    run.orders.insert(run.orders.begin(), orders_kept_.begin(), orders_kept_.end());
    orders_kept_.clear();
    if (run.spans.empty()) {
      orders_kept_ = run.orders;
      return {};
    }
  }
  try {
    return ToyRunner::run(run);
  } catch (const StepFailure&) {
    if (lane_bug_ == LaneBug::failure_spreads && beside_ != nullptr) spoil(*beside_);
    throw;
  }
}

StepResult SharedRunner::run_beside_stateless(const Step& step) {
  const SlotId slot = step.spans.front().write_slot;
  if (slot == no_slot) return run_beside(step);
  const Slot before = slot_at(slot);
  StepResult result = run_beside(step);
  slot_at(slot) = before;
  return result;
}

StepResult LaneRunner::run(const Step& step) {
  launch(step);
  return wait();
}

void LaneRunner::launch(const Step& step) {
  do_forgotten();
  if (step_) throw Violation("a lane has one step under way");
  if (!step.orders.empty()) throw Violation("orders come before the step of the prefill lane");
  const char* const broken = broken_rule(step, capacity().memory.page_tokens);
  if (broken != nullptr) throw Violation(broken);
  step_.emplace(step);
  runner_->set_beside(&step_->step);
  ++launched;
  done_ = 0;
  failure_ = nullptr;
  result_ = {};
  while (random_.chance(20) && done_ < step_->step.spans.size()) do_span();
}

Step LaneRunner::piece(std::size_t span) const {
  return {.orders = {}, .spans = {step_->step.spans[span]}, .keep_logits = step_->step.keep_logits};
}

StepResult LaneRunner::do_last_span(const Step& step) {
  if (bug_ == LaneBug::waited_early || bug_ == LaneBug::page_moved) {
    SharedRunner elsewhere = *runner_;
    StepResult result = elsewhere.run_beside(step);
    if (bug_ == LaneBug::waited_early) forgotten_.emplace(step);
    return result;
  }
  if (bug_ == LaneBug::slot_early) return runner_->run_beside_stateless(step);
  if (bug_ == LaneBug::page_freed) freed_.emplace(step);
  return runner_->run_beside(step);
}

/// After a failure there is nothing to do.
void LaneRunner::do_span() {
  const std::size_t at = done_++;
  if (failure_ != nullptr) return;
  try {
    const bool is_last = done_ == step_->step.spans.size();
    StepResult result = is_last ? do_last_span(piece(at)) : runner_->run_beside(piece(at));
    result_.sampled.insert(result_.sampled.end(), result.sampled.begin(), result.sampled.end());
    result_.logits.insert(result_.logits.end(), result.logits.begin(), result.logits.end());
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void LaneRunner::do_forgotten() {
  if (forgotten_) runner_->run_beside(std::exchange(forgotten_, std::nullopt)->step);
}

bool LaneRunner::is_done() {
  if (!step_) throw Violation("only what is under way is done");
  if (done_ < step_->step.spans.size() && random_.chance(50)) do_span();
  const bool is_done = done_ == step_->step.spans.size();
  if (is_done) ++found_done;
  return is_done;
}

StepResult LaneRunner::wait() {
  if (!step_) throw Violation("only what is under way is waited for");
  while (done_ < step_->step.spans.size()) do_span();
  runner_->set_beside(nullptr);
  step_.reset();
  if (freed_) runner_->overwrite(std::exchange(freed_, std::nullopt)->step);
  if (failure_ != nullptr) {
    ++failed;
    std::rethrow_exception(failure_);
  }
  return std::exchange(result_, {});
}

void LaneRunner::die() {
  if (!step_) return;
  while (done_ < step_->step.spans.size() && random_.chance(50)) do_span();
  if (done_ < step_->step.spans.size()) {
    Step left = step_->step;
    left.spans.erase(left.spans.begin(), left.spans.begin() + static_cast<std::ptrdiff_t>(done_));
    runner_->overwrite(left);
  }
  runner_->set_beside(nullptr);
  step_.reset();
}

void LaneRunner::read(ViewId, std::int32_t, std::span<std::byte>) {
  throw Violation("units are read by the other lane's runner");
}

void LaneRunner::write(ViewId, std::int32_t, std::span<const std::byte>) {
  throw Violation("units are written by the other lane's runner");
}

}  // namespace hyb::sim
