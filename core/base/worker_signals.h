#pragma once

#include <csignal>

namespace hyb {

/// Threads that are started during its life receive no signals: Ctrl-C belongs to the threads that
/// the application made. Faults are left to the thread that makes them: blocked, they would end the
/// process without a word, also where a mapped file shrank.
class WorkerSignals {
 public:
  WorkerSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~WorkerSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WorkerSignals(const WorkerSignals&) = delete;
  WorkerSignals& operator=(const WorkerSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace hyb
