#include "kernels/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/control_groups.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/io/file.h"

namespace hyb::kernels {
namespace {

namespace fs = std::filesystem;

/// "max 100000" or "150000 100000".
std::optional<double> quota_v2(const fs::path& group) {
  std::istringstream words(first_line(group / "cpu.max"));
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> quota_v1(const fs::path& group) {
  std::istringstream quota_text(first_line(group / "cpu.cfs_quota_us"));
  std::istringstream period_text(first_line(group / "cpu.cfs_period_us"));
  double quota = 0, period = 0;
  if (!(quota_text >> quota) || !(period_text >> period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return quota / period;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> least;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    const auto quota = group.is_unified ? quota_v2(group.folder) : quota_v1(group.folder);
    if (quota) least = std::min(least.value_or(*quota), *quota);
  }
  return least;
}

namespace {

using SteadyClock = std::chrono::steady_clock;

/// A futex wake costs some 20 us, a spinning hand-over 0.4 us: long enough for the serial parts of
/// a step, short enough that an idle chat burns nothing.
constexpr std::chrono::microseconds spin_time{60};
constexpr int pauses_between_clock_reads = 64;

std::vector<int> allowed_cpus() {
  for (int capacity = 1024; capacity <= 1 << 16; capacity *= 2) {  // EINVAL: a larger machine
    cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(capacity));
    if (set == nullptr) throw std::bad_alloc();
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    std::vector<int> cpus;
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < capacity; ++cpu) {
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

/// Moves this thread to `cpu` and lets it roam over `cpus` afterwards, or pins it with one CPU.
void move_to(int cpu, const std::vector<int>& cpus) {
  const auto set_affinity = [](const std::vector<int>& list) {
    const auto capacity = static_cast<std::size_t>(*std::max_element(list.begin(), list.end())) + 1;
    cpu_set_t* const set = CPU_ALLOC(capacity);
    if (set == nullptr) return;  // as a refusal, which only costs speed
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set);
    for (const int each : list) CPU_SET_S(static_cast<std::size_t>(each), bytes, set);
    sched_setaffinity(0, bytes, set);
    CPU_FREE(set);
  };
  set_affinity({cpu});
  if (cpus.size() > 1) set_affinity(cpus);
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

/// True once `done()`; false when `time` went by first.
template <typename Done>
bool spin(std::chrono::microseconds time, Done done) {
  const auto deadline = SteadyClock::now() + time;
  do {
    for (int i = 0; i < pauses_between_clock_reads; ++i) {
      if (done()) return true;
      _mm_pause();
    }
  } while (SteadyClock::now() < deadline);
  return done();
}

}  // namespace

UsableCpus usable_cpus() {
  const int allowed = static_cast<int>(allowed_cpus().size());
  const auto quota = cpu_quota();
  if (!quota || *quota >= allowed) return {allowed, false};
  return {std::max(1, static_cast<int>(*quota)), true};
}

/// Holds what is left of one thread's slice of a distribution.
struct alignas(64) ThreadPool::OwnSlice {
  std::atomic<std::int64_t> next{0};
  std::int64_t end = 0;
};

/// One call is one epoch: the caller writes call and body, then raises the epoch; every worker that
/// sees it runs the body and counts `pending` down. A thread that is about to sleep announces it,
/// so that no wake-up is paid for that is not needed. The orders of (epoch, sleepers) and (pending,
/// caller_sleeps) must be the same for all, hence sequentially consistent.
struct ThreadPool::Shared {
  int threads = 1;
  bool pinned = false;
  std::chrono::microseconds spin_limit = spin_time;
  std::vector<int> cpus;
  std::size_t first_cpu = 0;  ///< of cpus: thread 0's
  Call call = nullptr;
  void* body = nullptr;
  bool stop = false;
  alignas(64) std::atomic<std::uint32_t> epoch{0};
  std::atomic<std::uint32_t> sleepers{0};
  alignas(64) std::atomic<std::uint32_t> pending{0};
  std::atomic<bool> caller_sleeps{false};
  alignas(64) std::atomic<bool> running{false};
  std::atomic<bool> has_failed{false};
  std::exception_ptr failure;  ///< of the thread that failed first
  std::vector<std::jthread> workers;
  std::vector<OwnSlice> slices;
  std::int64_t grain = 1;

  int own_cpu() const { return cpus[first_cpu]; }  ///< the caller's, where threads are pinned

  void work(int thread) {
    if (pinned) move_to(cpus[first_cpu + static_cast<std::size_t>(thread)], {});
    const FlushDenormals flush;
    for (std::uint32_t seen = 0;; ++seen) {
      wait_for_epoch_after(seen);
      if (stop) return;
      do_part(thread);
      if (pending.fetch_sub(1) == 1 && caller_sleeps.load()) futex_wake_all(pending);
    }
  }

  /// Keeps what a body throws: other threads still use what it would unwind.
  void do_part(int thread) {
    try {
      call(body, thread, threads);
    } catch (...) {
      if (!has_failed.exchange(true)) failure = std::current_exception();
    }
  }

  void wait_for_epoch_after(std::uint32_t seen) {
    if (spin(spin_limit, [&] { return epoch.load(std::memory_order_acquire) != seen; })) return;
    sleepers.fetch_add(1);
    while (epoch.load() == seen) futex_wait(epoch, seen);
    sleepers.fetch_sub(1);
  }

  void start_epoch() {
    pending.store(static_cast<std::uint32_t>(workers.size()));
    epoch.fetch_add(1);
    if (sleepers.load() > 0) futex_wake_all(epoch);
  }

  void wait_for_workers() {
    if (spin(spin_limit, [&] { return pending.load(std::memory_order_acquire) == 0; })) return;
    caller_sleeps.store(true);
    for (std::uint32_t left = pending.load(); left != 0; left = pending.load()) {
      futex_wait(pending, left);
    }
    caller_sleeps.store(false);
  }

  void join() {
    stop = true;
    start_epoch();
    for (std::jthread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int threads, const PoolNeighbours& neighbours)
    : shared_(std::make_unique<Shared>()) {
  require(threads >= 1, "thread pool: at least one thread");
  require(neighbours.before >= 0 && neighbours.after >= 0, "thread pool: neighbours have threads");
  const UsableCpus usable = usable_cpus();
  const int all = neighbours.before + threads + neighbours.after;
  shared_->threads = threads;
  shared_->slices = std::vector<OwnSlice>(static_cast<std::size_t>(threads));
  shared_->cpus = allowed_cpus();
  shared_->first_cpu = static_cast<std::size_t>(neighbours.before);
  shared_->pinned = threads > 1 && all == usable.count && !usable.quota_binds;
  // Spinning on time that is rationed, or on a core that another thread needs, only does harm.
  if (usable.quota_binds || all > usable.count) shared_->spin_limit = {};

  try {
    for (int thread = 1; thread < threads; ++thread) {
      shared_->workers.push_back(start_thread(
          "thread pool of " + std::to_string(threads) + " threads (a smaller --threads needs less)",
          [shared = shared_.get(), thread] { shared->work(thread); }));
    }
  } catch (...) {
    shared_->join();
    throw;
  }
}

ThreadPool::~ThreadPool() { shared_->join(); }

int ThreadPool::threads() const { return shared_->threads; }

void ThreadPool::run_erased(Call call, void* body) {
  require(!shared_->running.exchange(true, std::memory_order_acquire),
          "thread pool: a run inside a run, or from two threads");
  const FlushDenormals flush;
  // A caller that sits on a sleeping worker's CPU would share it for many milliseconds.
  if (shared_->pinned && shared_->sleepers.load() > 0 && sched_getcpu() != shared_->own_cpu()) {
    move_to(shared_->own_cpu(), shared_->cpus);
  }
  shared_->call = call;
  shared_->body = body;
  if (shared_->threads > 1) shared_->start_epoch();
  shared_->do_part(0);
  if (shared_->threads > 1) shared_->wait_for_workers();
  const std::exception_ptr failure =
      shared_->has_failed.exchange(false) ? std::exchange(shared_->failure, nullptr) : nullptr;
  shared_->running.store(false, std::memory_order_release);
  if (failure != nullptr) std::rethrow_exception(failure);
}

void ThreadPool::distribute(std::int64_t count, std::int64_t grain) {
  require(!shared_->running.load(), "thread pool: distribute() inside of run()");
  shared_->grain = grain;
  for (int thread = 0; thread < shared_->threads; ++thread) {
    const Slice slice = slice_of(count, grain, thread, shared_->threads);
    OwnSlice& own = shared_->slices[static_cast<std::size_t>(thread)];
    own.next.store(slice.begin, std::memory_order_relaxed);
    own.end = slice.end;
  }
}

Slice ThreadPool::next_run(int thread) {
  for (int i = 0; i < shared_->threads; ++i) {
    const int owner = (thread + i) % shared_->threads;
    OwnSlice& own = shared_->slices[static_cast<std::size_t>(owner)];
    if (own.next.load(std::memory_order_relaxed) >= own.end) continue;
    const std::int64_t begin = own.next.fetch_add(shared_->grain, std::memory_order_relaxed);
    if (begin < own.end) return {begin, std::min(begin + shared_->grain, own.end)};
  }
  return {0, 0};
}

Slice slice_of(std::int64_t count, std::int64_t grain, int thread, int threads) {
  const std::int64_t units = (count + grain - 1) / grain;
  const std::int64_t share = units / threads;
  const std::int64_t larger = units % threads;  // the first `larger` threads have one unit more
  const std::int64_t begin = thread * share + std::min<std::int64_t>(thread, larger);
  const std::int64_t end = begin + share + (thread < larger ? 1 : 0);
  return {std::min(begin * grain, count), std::min(end * grain, count)};
}

}  // namespace hyb::kernels
