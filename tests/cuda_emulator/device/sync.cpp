#include "tests/cuda_emulator/device/sync.h"

#include <bit>
#include <cstdint>
#include <string>

#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/device/fault.h"

namespace emulator {
namespace {

void wait(Waiting waiting, const char* what, const Where& where) {
  DeviceThread& thread = *current_thread;
  thread.waiting = waiting;
  thread.what = what;
  thread.where = where;
  thread.fibre.leave();
}

/// Lets others go first; it can continue.
void step_back() {
  DeviceThread& thread = *current_thread;
  thread.block->make_ready(thread);
  thread.fibre.leave();
}

bool is_same_place(const Where& a, const Where& b) {
  return a.line() == b.line() && a.file_name() == b.file_name();
}

std::string lane_name(unsigned lane) { return "lane " + std::to_string(lane); }

void check_lanes(const Collective& collective, std::uint32_t mask, const Where& where) {
  const DeviceThread& self = *current_thread;
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const DeviceThread& other = self.warp->lane(static_cast<unsigned>(std::countr_zero(left)));
    if (&other == &self) continue;
    if (other.action != collective.action || other.mask != mask ||
        (collective.aligned && !is_same_place(other.where, where))) {
      fault(std::string(collective.name) + " meets " + other.what + " of " + lane_name(other.lane) +
                " at " + to_text(other.where) + ": the lanes of a mask do not do the same",
            where);
    }
  }
}

/// Opens a barrier that enough threads have reached.
void open_if_complete(Block& block, int number) {
  Barrier& barrier = block.barriers[static_cast<std::size_t>(number)];
  const unsigned expected = number == 0 ? block.live : barrier.expected;
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  const DeviceThread* before = nullptr;
  std::vector<std::uint16_t> waiting;
  for (DeviceThread& thread : block.all()) {
    if (thread.waiting != Waiting::barrier || thread.barrier != number) continue;
    if (before != nullptr && before->warp == thread.warp &&
        !is_same_place(before->where, thread.where)) {
      fault(std::string(thread.what) + " meets one at " + to_text(before->where) +
                " within a warp: its lanes are at different places",
            thread.where);
    }
    before = &thread;
    waiting.push_back(static_cast<std::uint16_t>(&thread - block.threads.get()));
    block.make_ready(thread);
  }
  if (is_instrumented) {
    if (number == 0) block.accesses->sync_block();
    if (number != 0) block.accesses->open_barrier(number, waiting);
  }
  barrier = {.outcome = barrier.votes};
}

void check_barrier(int barrier, int threads, const Where& where) {
  if (barrier < 1 || barrier >= Block::barriers_max) {
    fault("barrier " + std::to_string(barrier) + " is none of 1 to 15", where);
  }
  if (threads <= 0 || threads % static_cast<int>(lanes_per_warp) != 0) {
    fault("a barrier of " + std::to_string(threads) + " threads: whole warps only", where);
  }
}

void arrive(int number, int threads, const Where& where) {
  check_barrier(number, threads, where);
  Barrier& barrier = current_thread->block->barriers[static_cast<std::size_t>(number)];
  const auto expected = static_cast<unsigned>(threads);
  if (barrier.expected != 0 && barrier.expected != expected) {
    fault("barrier " + std::to_string(number) + " of " + std::to_string(threads) +
              " threads, where others came to one of " + std::to_string(barrier.expected),
          where);
  }
  barrier.expected = expected;
  ++barrier.arrived;
  if (is_instrumented) {
    Block& block = *current_thread->block;
    block.accesses->arrive(number,
                           static_cast<std::uint16_t>(current_thread - block.threads.get()));
  }
}

}  // namespace

void meet(const Collective& collective, std::uint32_t mask, const void* in, void* out,
          Where where) {
  DeviceThread& thread = *current_thread;
  Warp& warp = *thread.warp;
  const std::uint32_t self = 1U << thread.lane;
  if ((mask & self) == 0) {
    fault(std::string(collective.name) + ": the mask does not name " + lane_name(thread.lane) +
              ", which calls it",
          where);
  }
  if ((mask & ~warp.live) != 0) {
    fault(std::string(collective.name) + ": the mask names " +
              lane_name(static_cast<unsigned>(std::countr_zero(mask & ~warp.live))) +
              ", which has left the kernel or never was",
          where);
  }
  warp.slots[thread.lane] = {in, out};
  if ((mask & ~(warp.meeting | self)) != 0) {
    warp.meeting |= self;
    thread.mask = mask;
    thread.action = collective.action;
    wait(Waiting::warp, collective.name, where);
    return;
  }
  check_lanes(collective, mask, where);
  collective.action(mask, warp.slots);
  for (std::uint32_t left = mask & ~self; left != 0; left &= left - 1) {
    thread.block->make_ready(warp.lane(static_cast<unsigned>(std::countr_zero(left))));
  }
  step_back();
}

void sync_warp(std::uint32_t mask, Where where) {
  const auto action = [](std::uint32_t lanes, const LaneSlots&) {
    if (!is_instrumented) return;
    const Warp& warp = *current_thread->warp;
    current_thread->block->accesses->sync_warp(warp.number, lanes, lanes == warp.live);
  };
  meet({"sync_warp", action}, mask, nullptr, nullptr, where);
}

unsigned sync_block(bool vote, const char* name, Where where) {
  DeviceThread& thread = *current_thread;
  Block& block = *thread.block;
  Barrier& barrier = block.barriers[0];
  ++barrier.arrived;
  if (vote) ++barrier.votes;
  thread.barrier = 0;
  thread.waiting = Waiting::barrier;
  thread.what = name;
  thread.where = where;
  open_if_complete(block, 0);
  thread.fibre.leave();
  return barrier.outcome;
}

void sync_barrier(int barrier, int threads, Where where) {
  DeviceThread& thread = *current_thread;
  arrive(barrier, threads, where);
  thread.barrier = barrier;
  thread.waiting = Waiting::barrier;
  thread.what = "barrier_sync";
  thread.where = where;
  open_if_complete(*thread.block, barrier);
  thread.fibre.leave();
}

void arrive_at_barrier(int barrier, int threads, Where where) {
  arrive(barrier, threads, where);
  open_if_complete(*current_thread->block, barrier);
  step_back();
}

void sync_grid(Where where) {
  Grid& grid = *current_thread->block->grid;
  if (!grid.cooperative) fault("sync_grid in a launch that is not cooperative", where);
  ++grid.at_grid_barrier;
  if (is_instrumented) current_thread->block->accesses->fence(*current_thread);
  wait(Waiting::grid, "sync_grid", where);
}

void wait_for_previous_kernel(Where where) {
  const Grid* const previous = current_thread->block->grid->previous;
  if (previous == nullptr || previous->has_ended()) return;
  wait(Waiting::previous_kernel, "wait_for_previous_kernel", where);
}

void let_next_kernel_start() {
  Block& block = *current_thread->block;
  if (block.has_triggered) return;
  block.has_triggered = true;
  block.grid->triggered.fetch_add(1, std::memory_order_relaxed);
  step_back();
}

void spin_pause(Where where) { wait(Waiting::others, "spin_pause", where); }

void leave_kernel() {
  DeviceThread& thread = *current_thread;
  Block& block = *thread.block;
  Warp& warp = *thread.warp;
  for (std::uint32_t left = warp.meeting; left != 0; left &= left - 1) {
    const DeviceThread& other = warp.lane(static_cast<unsigned>(std::countr_zero(left)));
    if ((other.mask & (1U << thread.lane)) == 0) continue;
    fault(lane_name(thread.lane) + " has left the kernel while " + lane_name(other.lane) +
              " waits for it in " + other.what,
          other.where);
  }
  thread.waiting = Waiting::gone;
  warp.live &= ~(1U << thread.lane);
  --block.live;
  open_if_complete(block, 0);
}

std::string describe_waiting(const Block& block) {
  std::string text;
  const DeviceThread* group = nullptr;
  unsigned count = 0;
  const auto end_group = [&] {
    if (group == nullptr) return;
    text += "\n  warp " + std::to_string(group->warp->number) + ": " + std::to_string(count) +
            (count == 1 ? " lane" : " lanes") + " from " + std::to_string(group->lane) + " in " +
            group->what + " at " + to_text(group->where);
    group = nullptr;
  };
  for (const DeviceThread& thread : block.all()) {
    if (thread.waiting == Waiting::gone) continue;
    if (group == nullptr || group->warp != thread.warp || group->what != thread.what ||
        !is_same_place(group->where, thread.where)) {
      end_group();
      group = &thread;
      count = 0;
    }
    ++count;
  }
  end_group();
  return text;
}

void check_alignment(const char* what, const void* at, std::size_t bytes, Where where) {
  if (reinterpret_cast<std::uintptr_t>(at) % bytes == 0) return;
  fault(std::string(what) + ": misaligned, the address is no multiple of " + std::to_string(bytes),
        where);
}

void check_shared(const char* what, const void* at, std::size_t bytes, Where where) {
  if (current_thread->block->shared.contains(at, bytes)) return;
  fault(std::string(what) + ": " + std::to_string(bytes) + " bytes that are not shared memory",
        where);
}

void check_global(const char* what, const void* at, std::size_t bytes, Where where) {
  const std::string obstacle =
      device_memory().obstacle(current_thread->block->grid->card, at, bytes);
  if (obstacle.empty()) return;
  fault(std::string(what) + ": " + std::to_string(bytes) + " bytes " + obstacle, where);
}

void check_index(int i, int count, Where where) {
  if (i >= 0 && i < count) return;
  fault("index " + std::to_string(i) + " of a shared array of " + std::to_string(count), where);
}

void* dynamic_shared(std::size_t bytes, std::size_t alignment, Where where) {
  const SharedMemory& shared = current_thread->block->shared;
  if (shared.dynamic_bytes() < bytes || alignment > 128) {
    fault("dynamic_shared: " + std::to_string(bytes) + " bytes aligned to " +
              std::to_string(alignment) + ", the launch gave " +
              std::to_string(shared.dynamic_bytes()) + " aligned to 128",
          where);
  }
  return shared.dynamic();
}

void* shared_object(const void* key, std::size_t bytes, std::size_t alignment, Where where) {
  void* const at = current_thread->block->shared.object(key, bytes, alignment);
  if (at == nullptr) fault("shared_object: no shared memory is left", where);
  return at;
}

void copy_async(void* to, const void* from, std::size_t bytes, bool is_there, Where where) {
  check_alignment("cp_async to", to, bytes, where);
  check_shared("cp_async to", to, bytes, where);
  if (is_there) {
    check_alignment("cp_async from", from, bytes, where);
    check_global("cp_async from", from, bytes, where);
  }
  note_access(to, bytes, Access::write, __builtin_return_address(0));
  current_thread->copies.issue(to, from, bytes, is_there ? bytes : 0);
}

}  // namespace emulator
