#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "tests/cuda_emulator/device/grid.h"
#include "tests/cuda_emulator/device/schedule.h"
#include "tests/cuda_emulator/device/worker.h"

namespace emulator {

/// Runs kernels: the blocks of one are dealt to all workers. The first fault ends everything.
class Launcher {
 public:
  static constexpr unsigned cooperative_threads_max = 8192;

  Launcher() = default;
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Kernels of one stream, in order; those that start early overlap with the ones before them.
  void run(const Schedule& schedule, std::span<const std::unique_ptr<Grid>> grids);

 private:
  void run_chain(const Schedule& schedule, std::span<Grid* const> chain);
  void help(std::size_t worker);

  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> helpers_;  // helper i runs worker i+1

  std::mutex mutex_;
  std::condition_variable work_or_end_, done_;
  std::uint64_t round_ = 0;
  std::size_t helpers_wanted_ = 0, helpers_busy_ = 0;
  Schedule schedule_;
  std::span<Grid* const> chain_;
  bool end_ = false;
};

}  // namespace emulator
