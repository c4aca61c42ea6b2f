#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/emulator.h"

namespace emulator {

struct DeviceThread;

/// Are kernels compiled with instrumented loads and stores (-fsanitize=thread, whose calls
/// instrumented.cpp answers)? Then each of these goes through the checks below.
inline bool is_instrumented = false;

enum class Access : std::uint8_t { read, write, atomic };

/// Stores to global memory that other blocks do not see yet. While the block runs, memory holds
/// what it wrote; while others run, what was there before.
class HeldStores {
 public:
  struct Store {
    std::byte* at;
    std::uint8_t size;
    std::uint16_t thread;
    std::uint32_t tick;
    std::array<std::byte, 16> other;  ///< what memory does not hold now: the old bytes, or the new
  };

  void add(void* at, std::size_t size, std::uint16_t thread, std::uint32_t tick);
  void show();  ///< of a block that runs next
  void hide();  ///< of a block that ran
  template <typename Predicate>
  void publish_if(Predicate predicate) {  ///< of a block that runs
    std::erase_if(stores_, predicate);
  }
  std::vector<Store> take() { return std::exchange(stores_, {}); }

 private:
  std::vector<Store> stores_;
  bool is_hidden_ = false;
};

/// What the loads and stores of one resident block are checked for, where kernels are
/// instrumented: alignment, bounds in global memory, races in shared memory, reads by load16_once
/// of what a kernel in flight writes, stores that other blocks read without a fence. A race: two
/// threads of a block access one byte of shared memory, at least one writes, and neither a barrier
/// of both nor, within a warp, sync_warp is between. Atomics do not race with atomics.
class BlockAccesses {
 public:
  BlockAccesses();
  ~BlockAccesses();
  BlockAccesses(const BlockAccesses&) = delete;
  BlockAccesses& operator=(const BlockAccesses&) = delete;

  void start();
  void end(const void* kernel);  ///< all threads have left

  /// `place`: the address of the code.
  void check(const DeviceThread& thread, const void* at, std::size_t size, Access access,
             const void* place);
  /// The second moment at which an asynchronous copy writes; check() had the first.
  void check_copied(const DeviceThread& thread, void* to, std::size_t size, const void* place);
  void check_read_only(const DeviceThread& thread, const void* at, std::size_t size,
                       const void* place);

  void sync_block();
  void sync_warp(unsigned warp, std::uint32_t mask, bool is_whole);
  void arrive(int barrier, std::uint16_t thread);
  void open_barrier(int barrier, std::span<const std::uint16_t> waiting);
  /// Stores that are ordered before this thread's fence are seen by all blocks.
  void fence(const DeviceThread& thread);

  HeldStores stores;

 private:
  struct Stamp {
    std::uint32_t tick = 0;
    std::uint32_t place = 0;
    std::uint16_t thread = 0;
    bool is_atomic = false;
  };
  /// Of one byte: its last write, and the last reads of two different threads.
  struct Shadow {
    Stamp write, read, other_read;
  };
  using Ticks = std::array<std::uint32_t, 1024>;
  /// Accesses of one instruction by the lanes of a warp, its n-th time in each.
  struct Turn {
    std::uint32_t lanes = 0;
    std::array<std::uint32_t, 32> offsets{};
  };
  struct Instruction {
    std::array<std::uint32_t, 32> turns{};  ///< of each lane
    std::uint32_t first = 0;                ///< the turn at the front of `open`
    std::size_t size = 0;
    std::vector<Turn> open;
  };

  bool is_ordered(const Stamp& before, std::uint16_t thread) const;
  void check_race(std::size_t offset, std::size_t size, Access access, const Stamp& now);
  void count_banks(const DeviceThread& thread, std::size_t offset, std::size_t size,
                   std::uint32_t place);
  void count_turn(const Turn& turn, std::size_t size);

  Shadow* shadows_ = nullptr;  ///< of the bytes of shared memory
  std::uint32_t tick_ = 1;     ///< of this object's life: it counts synchronisations
  std::uint32_t block_synced_ = 1;
  std::array<std::uint32_t, 32> warp_synced_{};
  /// By warp, where it has passed a named barrier: before which tick it knows of every thread.
  std::array<std::unique_ptr<Ticks>, 32> known_;
  /// By thread, where its warp has synchronised in parts: the same of the warp's lanes.
  std::unordered_map<std::uint16_t, std::array<std::uint32_t, 32>> lanes_synced_;
  std::array<std::vector<std::pair<std::uint16_t, std::uint32_t>>, 16> arrivals_;
  std::unordered_map<std::uint64_t, Instruction> instructions_;
  BankCounts banks_;
};

/// An access of the thread that runs; null: of the code that calls this.
void note_access(const void* at, std::size_t size, Access access, const void* place = nullptr);
void note_read_only(const void* at, std::size_t size);
/// An access of `size` bytes, and then the copy.
void load_bytes(void* to, const void* from, std::size_t size);
void store_bytes(void* to, const void* from, std::size_t size);

/// "kernels/ops/x.cu:12", as far as the program's debug information has it.
std::string place_of_code(const void* place);
/// The kernel's name with its template arguments, as kernels/cuda/ptxas.tsv has it.
const std::string& kernel_name(const void* kernel);

void add_bank_counts(const void* kernel, const BankCounts& counts);

}  // namespace emulator
