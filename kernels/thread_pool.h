#pragma once

#include <xmmintrin.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <type_traits>

namespace hyb::kernels {

/// CPUs' worth of time that the control groups of a process grant it, the least over the group and
/// its parents; none where nothing is limited. Knows cpu.max (v2, also in a hybrid hierarchy) and
/// cpu.cfs_quota_us (v1). `root` as in control_groups.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// While it lives, this thread reads denormals as zero and writes zero for them: a recurrent state
/// that fades away would otherwise cost a hundred times more per element.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | flush_and_zero); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned flush_and_zero = 0x8040;
  unsigned saved_;
};

/// Number of CPUs that this process may use: affinity mask, then cgroup cpu.max rounded down, at
/// least 1. `quota_binds` when cpu.max leaves less than the mask: then nothing is pinned, since a
/// spinning pinned thread would burn the quota.
struct UsableCpus {
  int count;
  bool quota_binds;
};
UsableCpus usable_cpus();

/// The part of 0..count-1 that a thread owns when `count` items are split into contiguous runs,
/// each but the last a multiple of `grain`.
struct Slice {
  std::int64_t begin, end;
};
Slice slice_of(std::int64_t count, std::int64_t grain, int thread, int threads);

/// Threads of other pools that compute at the same time as a pool's own: of the usable CPUs those
/// before its own are theirs, and those after.
struct PoolNeighbours {
  int before = 0, after = 0;
};

/// Threads for one op after another. The caller is thread 0. A worker spins for some tens of
/// microseconds after an op, then sleeps on a futex, so that an idle chat burns no CPU. Denormals
/// are flushed to zero in every thread while it computes.
class ThreadPool {
 public:
  /// Pins worker i to the i-th usable CPU that is not a neighbour's only where the threads of all
  /// are usable_cpus().count and no quota binds. Throws as start_thread().
  explicit ThreadPool(int threads, const PoolNeighbours& neighbours = {});
  ~ThreadPool();

  int threads() const;

  /// Calls body(thread, threads) on every thread; returns when all are done, or throws then what
  /// the first of them threw. The body must not call run() again.
  template <typename Body>
  void run(Body&& body) {
    run_erased(
        [](void* erased, int thread, int threads) {
          (*static_cast<std::remove_reference_t<Body>*>(erased))(thread, threads);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  /// Before a run: lays out items 0..count-1 for next_run, which hands every thread runs of at most
  /// `grain` items of its own slice, then of the others' slices, then empty ones.
  void distribute(std::int64_t count, std::int64_t grain);
  Slice next_run(int thread);

 private:
  using Call = void (*)(void* body, int thread, int threads);
  void run_erased(Call call, void* body);

  struct OwnSlice;
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace hyb::kernels
