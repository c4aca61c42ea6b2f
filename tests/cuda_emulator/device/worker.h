#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "tests/cuda_emulator/device/grid.h"
#include "tests/cuda_emulator/device/schedule.h"

namespace emulator {

/// Runs blocks on one thread of the operating system, each of its CUDA threads as a fibre.
class Worker {
 public:
  /// Runs blocks of a chain of grids, each of which may start before the one in front of it has
  /// ended, until no block is left to start and all that were started have ended. Several workers
  /// may share a chain of one grid that is not cooperative. Faults are in fault_log().
  void run(const Schedule& schedule, std::span<Grid* const> chain);

 private:
  struct Resident {
    std::unique_ptr<Block> block;
    std::size_t grid = 0;  ///< its index in the chain
  };

  bool admit_blocks();
  bool admit_block(std::size_t grid);
  std::unique_ptr<Block> take_spare(unsigned threads);
  void place(Block& block, Grid& grid, unsigned number);
  std::size_t room_for(const Grid& grid) const;
  Resident* choose();
  void run_for_a_while(Block& block);
  bool resume(DeviceThread& thread);
  void run_warps_in_order(Block& block, bool last_first);
  void take_turns(Block& block);
  void run_one_at_random(Block& block);
  bool wake_waiting();
  void retire_ended();
  void report_deadlock() const;

  Schedule schedule_;
  std::span<Grid* const> chain_;
  std::vector<Resident> resident_;
  std::vector<std::unique_ptr<Block>> spare_;
  std::mt19937_64 random_;
  bool reconsider_ = false;  ///< another block may now go before the one that runs
  unsigned idle_rounds_ = 0;
};

/// Runs kernels: the blocks of one are distributed to all workers. The first fault ends everything.
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
