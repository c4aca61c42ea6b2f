#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <vector>

#include "tests/cuda_emulator/device/accesses.h"
#include "tests/cuda_emulator/device/fibre.h"
#include "tests/cuda_emulator/device/shared_memory.h"
#include "tests/cuda_emulator/runtime/vector_types.h"

namespace emulator {

inline constexpr unsigned lanes_per_warp = 32;
inline constexpr unsigned threads_per_block_max = 1024;
inline constexpr std::uint32_t all_lanes = 0xffffffffU;

struct Block;
struct Grid;
struct Warp;

enum class Waiting : std::uint8_t {
  nothing,          ///< it can run, or runs
  warp,             ///< for the other lanes of a collective
  barrier,          ///< for the other threads at a barrier of its block
  grid,             ///< for all threads of the grid
  previous_kernel,  ///< for the end of the kernel before this one
  others,           ///< it looks at memory again and again, until another thread changes it
  gone,
};

/// The lanes' arguments of a collective, on the stacks of the lanes that wait in it.
struct LaneSlot {
  const void* in;
  void* out;
};
using LaneSlots = std::array<LaneSlot, lanes_per_warp>;
/// Carries a collective out for all lanes of `mask`.
using CollectiveAction = void (*)(std::uint32_t mask, const LaneSlots& lanes);

struct DeviceThread {
  uint3 index;
  unsigned lane = 0;
  Warp* warp = nullptr;
  Block* block = nullptr;

  Waiting waiting = Waiting::nothing;
  const char* what = "";  ///< what it waits in, and where that is
  std::source_location where;
  std::uint32_t mask = 0;  ///< of the collective it waits in
  CollectiveAction action = nullptr;
  int barrier = 0;  ///< it waits at

  AsyncCopies copies;
  Fibre fibre;
};

struct Warp {
  std::uint32_t live = 0, ready = 0;
  std::uint32_t meeting = 0;  ///< lanes that wait in a collective
  LaneSlots slots{};
  DeviceThread* first = nullptr;  ///< lane 0; the others follow it
  unsigned number = 0;

  DeviceThread& lane(unsigned i) const { return first[i]; }
};

/// A barrier of a block. `expected` 0: no one has arrived since it last opened.
struct Barrier {
  unsigned arrived = 0, expected = 0, votes = 0;
  unsigned outcome = 0;  ///< the votes of the round that was closed last
};

/// A resident block. Its parts are used again for the next block.
struct Block {
  static constexpr int barriers_max = 16;

  Grid* grid = nullptr;
  uint3 index{};
  std::unique_ptr<DeviceThread[]> threads = std::make_unique<DeviceThread[]>(threads_per_block_max);
  unsigned size = 0, live = 0;
  unsigned stacks = 0;  ///< threads that have one from an earlier block
  std::array<Warp, threads_per_block_max / lanes_per_warp> warps;
  unsigned warps_used = 0;
  std::uint32_t ready_warps = 0;
  std::array<Barrier, barriers_max> barriers;
  SharedMemory shared;
  bool has_triggered = false;               ///< it lets the next kernel start
  std::unique_ptr<BlockAccesses> accesses;  ///< null where kernels are not instrumented

  std::span<DeviceThread> all() const { return {threads.get(), size}; }
  void make_ready(DeviceThread& thread) {
    thread.waiting = Waiting::nothing;
    thread.warp->ready |= 1U << thread.lane;
    thread.warp->meeting &= ~(1U << thread.lane);
    ready_warps |= 1U << thread.warp->number;
  }
};

/// A launch of a kernel, as the host describes it.
struct Launch {
  const void* kernel = nullptr;
  int card = 0;
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;  ///< dynamic
  std::size_t shared_limit = 0;  ///< of static and dynamic bytes together
  bool cooperative = false;
  bool starts_early = false;   ///< its blocks may start before the kernel before it has ended
  std::function<void()> body;  ///< the kernel with its arguments

  unsigned block_count() const { return blocks.x * blocks.y * blocks.z; }
  unsigned block_size() const { return threads.x * threads.y * threads.z; }
};

/// A launch that runs.
struct Grid : Launch {
  explicit Grid(const Launch& launch) : Launch(launch) {}

  Grid* previous = nullptr;  ///< the one it may overlap with
  std::atomic<unsigned> started{0}, ended{0};
  std::atomic<unsigned> triggered{0};  ///< blocks that let the next kernel start, or have ended
  unsigned at_grid_barrier = 0;
  std::uint32_t number = next_number++;  ///< of all launches that ran
  std::mutex mutex;
  std::vector<HeldStores> held;  ///< of blocks that have ended, until the grid has

  static inline std::atomic<std::uint32_t> next_number{1};

  bool has_ended() const { return ended.load(std::memory_order_acquire) == block_count(); }
};

/// Whose code runs now on this thread of the operating system; null outside of kernels.
inline thread_local DeviceThread* current_thread = nullptr;

}  // namespace emulator
