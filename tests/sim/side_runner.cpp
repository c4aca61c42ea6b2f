#include "tests/sim/side_runner.h"

#include <algorithm>
#include <utility>

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
  static const char* const names[] = {"none", "completed early", "slot early", "hit as sent",
                                      "sides exchanged"};
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
    if (!job_.is_done() && link_->random_.chance(50)) link_->copy_one(job_);
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
  ++started;
  return std::make_unique<Copies>(*this, direction, std::move(moves));
}

bool SimLink::skips(const UnitMove& move) const {
  if (bug_ == LinkBug::slot_early) return move.view == slots_;
  return bug_ == LinkBug::hit_as_sent && move.view == ViewId{0} && move.view != slots_;
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
  if (skips(move) && (is_first || move.view == slots_)) return;
  if (bug_ == LinkBug::completed_early && is_last) {
    forgotten_.emplace_back(job.direction, move);
    return;
  }
  const bool is_to_answers =
      (job.direction == Direction::to_answers) != (bug_ == LinkBug::sides_exchanged);
  copy_(is_to_answers ? Direction::to_answers : Direction::to_prompts, move);
}

void SimLink::go_on() {
  for (const auto& [direction, move] : std::exchange(forgotten_, {})) copy_(direction, move);
  for (Job* const job : jobs_) {
    while (!job->is_done() && random_.chance(60)) copy_one(*job);
  }
}

}  // namespace hyb::sim
