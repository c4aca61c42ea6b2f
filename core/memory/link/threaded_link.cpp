#include "core/memory/link/threaded_link.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

#include "core/base/thread.h"

namespace hyb {

struct ThreadedLink::Job {
  enum class State : std::uint8_t { waiting, running, done };

  const End *from, *to;
  std::vector<UnitMove> moves;
  State state = State::waiting;  ///< this and what follows: under the mutex
  std::exception_ptr failure{};
};

class ThreadedLink::Copies final : public UnitCopies {
 public:
  Copies(ThreadedLink& link, const End& from, const End& to, std::vector<UnitMove> moves)
      : link_(&link), job_{.from = &from, .to = &to, .moves = std::move(moves)} {
    {
      const std::lock_guard lock(link_->mutex_);
      link_->jobs_.push_back(&job_);
    }
    link_->changed_.notify_all();
  }
  ~Copies() override { link_->end(job_); }

  bool is_done() override {
    const std::lock_guard lock(link_->mutex_);
    return job_.state == Job::State::done;
  }

  void wait() override {
    std::unique_lock lock(link_->mutex_);
    link_->changed_.wait(lock, [&] { return job_.state == Job::State::done; });
    if (job_.failure != nullptr) std::rethrow_exception(job_.failure);
  }

 private:
  ThreadedLink* link_;
  Job job_;
};

ThreadedLink::ThreadedLink(End prompts, End answers)
    : prompts_(std::move(prompts)), answers_(std::move(answers)) {
  thread_ = start_thread("link of two memories", [this] { work(); });
}

ThreadedLink::~ThreadedLink() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::unique_ptr<UnitCopies> ThreadedLink::start(Direction direction, std::vector<UnitMove> moves) {
  const bool is_to_answers = direction == Direction::to_answers;
  return std::make_unique<Copies>(*this, is_to_answers ? prompts_ : answers_,
                                  is_to_answers ? answers_ : prompts_, std::move(moves));
}

void ThreadedLink::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job* const job = jobs_.front();
    jobs_.pop_front();
    job->state = Job::State::running;
    lock.unlock();
    std::exception_ptr failure;
    try {
      copy(*job);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    job->failure = std::move(failure);
    job->state = Job::State::done;
    changed_.notify_all();
  }
}

/// A unit's used bytes come first, so what follows them is the target's own padding.
void ThreadedLink::copy(const Job& job) {
  for (const UnitMove& move : job.moves) {
    const std::size_t source = job.from->layout.unit_bytes(move.view);
    const std::size_t target = job.to->layout.unit_bytes(move.view);
    buffer_.resize(std::max({buffer_.size(), source, target}));
    job.from->bytes->read_beside(move.view, move.from, std::span(buffer_).first(source));
    job.to->bytes->write_beside(move.view, move.to, std::span(buffer_).first(target));
  }
}

/// Copies that have not begun never begin.
void ThreadedLink::end(Job& job) noexcept {
  std::unique_lock lock(mutex_);
  if (job.state == Job::State::waiting) {
    std::erase(jobs_, &job);
    return;
  }
  changed_.wait(lock, [&] { return job.state == Job::State::done; });
}

}  // namespace hyb
