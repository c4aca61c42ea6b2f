#include "app/ui/background_work.h"

#include <signal.h>

#include <utility>

namespace hyb::app {
namespace {

/// Threads begun during its life get no signals but those of their own faults.
class SignalsElsewhere {
 public:
  SignalsElsewhere() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~SignalsElsewhere() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsElsewhere(const SignalsElsewhere&) = delete;
  SignalsElsewhere& operator=(const SignalsElsewhere&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

BackgroundWork::BackgroundWork(std::function<bool()> work) : work_(std::move(work)) {
  if (!work_) return;
  const SignalsElsewhere not_here;
  thread_ = std::thread([this] { run(); });
}

BackgroundWork::~BackgroundWork() {
  is_stopped_ = true;
  if (thread_.joinable()) thread_.join();
}

void BackgroundWork::run() {
  try {
    while (!is_stopped_ && work_()) {
    }
  } catch (...) {
    error_ = std::current_exception();
  }
}

void BackgroundWork::stop() {
  is_stopped_ = true;
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace hyb::app
