#include "tests/sim/lane_runner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tests/sim/named_units.h"

namespace hyb::sim {

const char* name_of(LaneBug bug) {
  static const char* const names[] = {
      "none",       "waited early", "orders late", "failure spreads",
      "page freed", "page moved",   "slot early"};
  return names[static_cast<int>(bug)];
}

namespace {

bool overlap(const std::set<NamedUnit>& some, const std::set<NamedUnit>& others) {
  return std::any_of(some.begin(), some.end(),
                     [&](const NamedUnit& unit) { return others.contains(unit); });
}

}  // namespace

void SharedRunner::check_beside(const Step& step) const {
  const MemoryLayout& layout = capacity().memory;
  const NamedUnits mine = named_by(layout, step), theirs = named_by(layout, *beside_);
  if (overlap(mine.written, theirs.written) || overlap(mine.written, theirs.read)) {
    throw Violation("a step writes what the other lane's step names");
  }
  if (overlap(mine.read, theirs.written)) {
    throw Violation("a step reads what the other lane's step writes");
  }
  for (const std::set<NamedUnit>* units : {&theirs.read, &theirs.written}) {
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
  return {.orders = {}, .spans = {step_->step.spans[span]}};
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
