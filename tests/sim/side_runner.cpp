#include "tests/sim/side_runner.h"

#include <algorithm>
#include <utility>

#include "tests/sim/named_units.h"
#include "tests/sim/toy_runner.h"

namespace hyb::sim {

StepResult SideRunner::run(const Step& step) {
  launch(step);
  return wait();
}

void SideRunner::launch(const Step& step) {
  if (step_ != nullptr) throw Violation("a side has one step under way");
  step_ = &step;
  is_run_ = false;
  ++launched;
  if (random_.chance(20)) do_step();
}

void SideRunner::do_step() {
  is_run_ = true;
  try {
    result_ = runner_->run(*step_);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

bool SideRunner::is_done() {
  if (step_ == nullptr) throw Violation("only what is under way is done");
  if (!is_run_ && random_.chance(40)) do_step();
  return is_run_;
}

StepResult SideRunner::wait() {
  if (step_ == nullptr) throw Violation("only what is under way is waited for");
  if (!is_run_) do_step();
  step_ = nullptr;
  if (failure_ != nullptr) {
    ++failed;
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  return std::exchange(result_, {});
}

const char* name_of(LinkBug bug) {
  static const char* const names[] = {"none",        "completed early", "slot early",
                                      "hit as sent", "sides exchanged", "group lost"};
  return names[static_cast<int>(bug)];
}

class SimLink::Copies final : public UnitCopies {
 public:
  Copies(SimLink& link, Direction direction, std::vector<UnitMove> moves)
      : link_(&link), job_{.direction = direction, .moves = std::move(moves)} {
    link_->jobs_.push_back(&job_);
  }
  ~Copies() override {
    std::erase(link_->jobs_, &job_);
    if (!job_.is_done()) ++link_->dropped;
  }
  bool is_done() override {
    if (!job_.is_done() && link_->random_.chance(link_->pace_)) link_->copy_one(job_);
    return job_.is_done();
  }
  void wait() override {
    while (!job_.is_done()) link_->copy_one(job_);
    if (job_.failure != nullptr) std::rethrow_exception(job_.failure);
  }

 private:
  SimLink* link_;
  Job job_;
};

std::unique_ptr<UnitCopies> SimLink::start(Direction direction, std::vector<UnitMove> moves) {
  check_start(direction, moves);
  if (fails()) {
    ++failed;
    throw StepFailure();
  }
  ++started;
  return std::make_unique<Copies>(*this, direction, std::move(moves));
}

/// What one copy writes no other one names.
void SimLink::check_start(Direction direction, const std::vector<UnitMove>& moves) {
  for (const Job* const job : jobs_) {
    for (const Side side : {Side::prompts, Side::answers}) {
      const bool is_read = reads(direction, side), is_read_there = reads(job->direction, side);
      if (job->is_done() || (is_read && is_read_there)) continue;
      for (const UnitMove& move : moves) {
        const std::int32_t unit = is_read ? move.from : move.to;
        const bool is_named = std::ranges::any_of(job->moves, [&](const UnitMove& other) {
          return other.view == move.view && (is_read_there ? other.from : other.to) == unit;
        });
        if (is_named) refuse("a copy writes what another one names");
      }
    }
  }
}

void SimLink::check_beside(Side side, const Step& step) {
  if (std::ranges::all_of(jobs_, [](const Job* job) { return job->is_done(); })) return;
  const MemoryLayout& layout = layouts_[static_cast<std::size_t>(side)];
  const NamedUnits named = named_by(layout, step);
  bool is_beside = false;
  for (const Job* const job : jobs_) {
    if (job->is_done()) continue;
    const bool is_read = reads(job->direction, side);
    is_beside = is_beside || (is_read && side == Side::prompts);
    for (const UnitMove& move : job->moves) {
      const NamedUnit unit = {move.view, is_read ? move.from : move.to};
      if (named.written.contains(unit)) refuse("a step writes what is copied");
      if (!is_read && named.read.contains(unit)) refuse("a step reads where copies go");
      const SuperblockId superblock{unit.second / layout.units_per_superblock(move.view)};
      if (named.owners_changed.contains(superblock)) {
        refuse("the superblock of what is copied changes its owner");
      }
    }
  }
  if (!is_beside) return;
  ++steps_beside;
  if (!named.owners_changed.empty()) ++changes_beside;
}

bool SimLink::skips(const UnitMove& move, bool is_first) const {
  const ViewId slots = layouts_.front().slot_view();  // the same on both sides
  const bool is_page = index(move.view) < index(slots);
  switch (bug_) {
    case LinkBug::slot_early:
      return move.view == slots;
    case LinkBug::hit_as_sent:
      return is_first && is_page && move.view == ViewId{0};
    case LinkBug::group_lost:
      return is_page && move.view != ViewId{0};
    default:
      return false;
  }
}

void SimLink::copy_one(Job& job) {
  if (fails()) {
    ++failed;
    job.failure = std::make_exception_ptr(StepFailure());
    return;
  }
  const UnitMove move = job.moves[job.done++];
  ++units;
  const bool is_first = job.done == 1, is_last = job.done == job.moves.size();
  if (skips(move, is_first)) return;
  if (bug_ == LinkBug::completed_early && is_last) {
    forgotten_.emplace_back(job.direction, move);
    return;
  }
  const bool is_to_answers =
      (job.direction == Direction::to_answers) != (bug_ == LinkBug::sides_exchanged);
  try {
    copy_(is_to_answers ? Direction::to_answers : Direction::to_prompts, move);
  } catch (const Violation&) {
    violation_ = violation_ ? violation_ : std::current_exception();
    job.failure = std::current_exception();
  } catch (...) {
    ++failed;
    job.failure = std::current_exception();
  }
}

void SimLink::refuse(const char* text) {
  Violation violation(text);
  if (!violation_) violation_ = std::make_exception_ptr(violation);
  throw violation;
}

void SimLink::check() const {
  if (violation_) std::rethrow_exception(violation_);
}

void SimLink::go_on() {
  check();
  for (const auto& [direction, move] : std::exchange(forgotten_, {})) copy_(direction, move);
  for (Job* const job : jobs_) {
    while (!job->is_done() && random_.chance(pace_)) copy_one(*job);
  }
}

}  // namespace hyb::sim
