#include "tests/cuda_emulator/device/worker.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "tests/cuda_emulator/device/builtins.h"
#include "tests/cuda_emulator/device/fault.h"
#include "tests/cuda_emulator/device/sync.h"

namespace emulator {
namespace {

constexpr std::size_t resident_threads_max = 2048;  ///< of a grid that needs blocks side by side
constexpr std::size_t random_blocks = 3;
constexpr unsigned idle_rounds_max = 20000;

void run_kernel(void* grid) {
  try {
    static_cast<Grid*>(grid)->body();
    leave_kernel();
  } catch (const Fault& fault) {
    fault_log().report(fault.text + describe_current_thread());
    current_thread->waiting = Waiting::gone;
  }
  current_thread->fibre.leave_for_good();
}

/// The order in which the blocks of a grid start: a step that shares no factor with their count
/// visits every one.
unsigned nth_block(const Schedule& schedule, unsigned n, unsigned count) {
  if (schedule.order == Order::first_warp_ahead) return n;
  if (schedule.order == Order::last_warp_ahead) return count - 1 - n;
  auto step = static_cast<unsigned>(schedule.seed * 2654435761U % count) | 1U;
  while (std::gcd(step, count) != 1) ++step;
  return static_cast<unsigned>((static_cast<std::uint64_t>(n) * step + schedule.seed) % count);
}

unsigned lowest(std::uint32_t bits) { return static_cast<unsigned>(std::countr_zero(bits)); }
unsigned highest(std::uint32_t bits) { return 31U - static_cast<unsigned>(std::countl_zero(bits)); }

/// Kernels keep denormals and round to nearest, whatever the thread that launches them does.
class RoundToNearest {
 public:
  RoundToNearest() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~RoundToNearest() { _mm_setcsr(saved_); }
  RoundToNearest(const RoundToNearest&) = delete;
  RoundToNearest& operator=(const RoundToNearest&) = delete;

 private:
  unsigned saved_;
};

bool is_startable(const Grid& grid) {
  return grid.previous == nullptr ||
         grid.previous->triggered.load() == grid.previous->block_count();
}

}  // namespace

void Worker::run(const Schedule& schedule, std::span<Grid* const> chain) {
  schedule_ = schedule;
  chain_ = chain;
  random_.seed(schedule.seed);
  idle_rounds_ = 0;
  const SignalStack signal_stack;
  const RoundToNearest modes;
  while (!fault_log().has_fault()) {
    admit_blocks();
    if (resident_.empty()) return;
    if (Resident* const chosen = choose()) {
      if (is_instrumented) chosen->block->accesses->stores.show();
      run_for_a_while(*chosen->block);
      if (is_instrumented) chosen->block->accesses->stores.hide();
      retire_ended();
    } else if (!wake_waiting()) {
      report_deadlock();
    }
  }
  for (Resident& resident : resident_) spare_.push_back(std::move(resident.block));
  resident_.clear();
}

std::size_t Worker::room_for(const Grid& grid) const {
  if (grid.cooperative) return grid.block_count();
  if (chain_.size() > 1) return std::max<std::size_t>(1, resident_threads_max / grid.block_size());
  return schedule_.order == Order::random ? random_blocks : 1;
}

bool Worker::admit_blocks() {
  bool any = false;
  for (std::size_t i = 0; i < chain_.size() && is_startable(*chain_[i]); ++i) {
    while (admit_block(i)) any = true;
  }
  return any;
}

bool Worker::admit_block(std::size_t index) {
  Grid& grid = *chain_[index];
  const auto held = static_cast<std::size_t>(std::count_if(
      resident_.begin(), resident_.end(), [&](const Resident& r) { return r.grid == index; }));
  if (held >= room_for(grid)) return false;
  const unsigned n = grid.started.fetch_add(1, std::memory_order_relaxed);
  if (n >= grid.block_count()) {
    grid.started.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  Resident resident{.block = take_spare(grid.block_size()), .grid = index};
  place(*resident.block, grid, nth_block(schedule_, n, grid.block_count()));
  resident_.push_back(std::move(resident));
  return true;
}

/// The smallest that is large enough, else the one that has to grow least: stacks are never given
/// back, and if every block grew to the largest size the system would run out of mappings.
std::unique_ptr<Block> Worker::take_spare(unsigned threads) {
  if (spare_.empty()) return std::make_unique<Block>();
  const auto is_better = [&](const std::unique_ptr<Block>& a, const std::unique_ptr<Block>& b) {
    const bool a_fits = a->stacks >= threads, b_fits = b->stacks >= threads;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a->stacks < b->stacks : a->stacks > b->stacks;
  };
  const auto best = std::min_element(spare_.begin(), spare_.end(), is_better);
  std::unique_ptr<Block> block = std::move(*best);
  *best = std::move(spare_.back());
  spare_.pop_back();
  return block;
}

void Worker::place(Block& block, Grid& grid, unsigned number) {
  block.stacks = std::max(block.stacks, grid.block_size());
  block.grid = &grid;
  block.index = {number % grid.blocks.x, number / grid.blocks.x % grid.blocks.y,
                 number / grid.blocks.x / grid.blocks.y};
  block.size = block.live = grid.block_size();
  block.warps_used = (block.size + lanes_per_warp - 1) / lanes_per_warp;
  block.ready_warps = 0;
  block.barriers.fill({});
  block.shared.prepare(grid.shared_bytes, grid.shared_limit);
  block.has_triggered = false;
  if (is_instrumented) {
    if (block.accesses == nullptr) block.accesses = std::make_unique<BlockAccesses>();
    block.accesses->start();
  }
  for (unsigned w = 0; w < block.warps_used; ++w) {
    block.warps[w] = {.first = &block.threads[w * lanes_per_warp], .number = w};
  }
  const dim3 size = grid.threads;
  for (unsigned i = 0; i < block.size; ++i) {
    DeviceThread& thread = block.threads[i];
    thread.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    thread.lane = i % lanes_per_warp;
    thread.warp = &block.warps[i / lanes_per_warp];
    thread.block = &block;
    thread.what = "its code";
    thread.copies.clear();
    thread.warp->live |= 1U << thread.lane;
    block.make_ready(thread);
    thread.fibre.start(run_kernel, &grid);
  }
}

/// A block that can run. Of a chain, the newest kernel goes first, and blocks that have let the
/// next one start go last: so a kernel runs as early as it may against those before it.
Worker::Resident* Worker::choose() {
  if (schedule_.order == Order::random && chain_.size() == 1) {
    const std::size_t offset = random_() % resident_.size();
    for (std::size_t i = 0; i < resident_.size(); ++i) {
      Resident& resident = resident_[(i + offset) % resident_.size()];
      if (resident.block->ready_warps != 0) return &resident;
    }
    return nullptr;
  }
  Resident* best = nullptr;
  const auto rank = [](const Resident& r) { return 2 * r.grid + (r.block->has_triggered ? 0 : 1); };
  for (Resident& resident : resident_) {
    if (resident.block->ready_warps == 0) continue;
    if (best == nullptr || rank(resident) > rank(*best)) best = &resident;
  }
  return best;
}

void Worker::run_for_a_while(Block& block) {
  reconsider_ = false;
  blockIdx = block.index;
  blockDim = block.grid->threads;
  gridDim = block.grid->blocks;
  switch (schedule_.order) {
    case Order::first_warp_ahead:
      return run_warps_in_order(block, false);
    case Order::last_warp_ahead:
      return run_warps_in_order(block, true);
    case Order::permuted:
      return take_turns(block);
    case Order::random:
      return run_one_at_random(block);
  }
}

/// False when this block has to be left: a fault, or others may go first now.
bool Worker::resume(DeviceThread& thread) {
  Block& block = *thread.block;
  Warp& warp = *thread.warp;
  warp.ready &= ~(1U << thread.lane);
  const bool had_triggered = block.has_triggered;
  current_thread = &thread;
  threadIdx = thread.index;
  thread.fibre.resume();
  current_thread = nullptr;
  if (thread.waiting != Waiting::others) idle_rounds_ = 0;
  if (warp.ready == 0) block.ready_warps &= ~(1U << warp.number);
  reconsider_ = block.has_triggered != had_triggered;
  return !reconsider_ && !fault_log().has_fault();
}

void Worker::run_warps_in_order(Block& block, bool last_first) {
  while (block.ready_warps != 0) {
    Warp& warp = block.warps[last_first ? highest(block.ready_warps) : lowest(block.ready_warps)];
    while (warp.ready != 0) {
      if (!resume(warp.lane(last_first ? highest(warp.ready) : lowest(warp.ready)))) return;
    }
  }
}

void Worker::take_turns(Block& block) {
  const unsigned size = block.size;
  auto step = static_cast<unsigned>(random_() % size) | 1U;
  while (std::gcd(step, size) != 1) ++step;
  auto at = static_cast<unsigned>(random_() % size);
  for (unsigned i = 0; i < size; ++i, at = (at + step) % size) {
    DeviceThread& thread = block.threads[at];
    if ((thread.warp->ready >> thread.lane & 1U) != 0 && !resume(thread)) return;
  }
}

void Worker::run_one_at_random(Block& block) {
  std::uint32_t warps = block.ready_warps;
  for (auto skip = random_() % static_cast<unsigned>(std::popcount(warps)); skip > 0; --skip) {
    warps &= warps - 1;
  }
  Warp& warp = block.warps[lowest(warps)];
  for (auto steps = 1 + random_() % 64; steps > 0 && warp.ready != 0; --steps) {
    std::uint32_t lanes = warp.ready;
    for (auto skip = random_() % static_cast<unsigned>(std::popcount(lanes)); skip > 0; --skip) {
      lanes &= lanes - 1;
    }
    if (!resume(warp.lane(lowest(lanes)))) return;
  }
}

namespace {

/// The last block of a grid publishes what all of them still hold.
void end_block(Block& block, Grid& grid) {
  const std::lock_guard lock(grid.mutex);
  if (is_instrumented) {
    block.accesses->end(grid.kernel);
    grid.held.push_back(std::exchange(block.accesses->stores, {}));
    if (grid.ended.load() + 1 == grid.block_count()) {
      for (HeldStores& stores : grid.held) stores.show();
    }
  }
  grid.ended.fetch_add(1, std::memory_order_release);
}

}  // namespace

void Worker::retire_ended() {
  for (std::size_t i = 0; i < resident_.size();) {
    Block& block = *resident_[i].block;
    if (block.live > 0) {
      ++i;
      continue;
    }
    Grid& grid = *block.grid;
    if (const std::string damage = block.shared.damage(); !damage.empty()) {
      fault_log().report(damage + ", found when block (" + std::to_string(block.index.x) + "," +
                         std::to_string(block.index.y) + "," + std::to_string(block.index.z) +
                         ") had ended");
    }
    if (!block.has_triggered) grid.triggered.fetch_add(1, std::memory_order_relaxed);
    end_block(block, grid);
    spare_.push_back(std::move(resident_[i].block));
    resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// No thread can run: opens what has become complete, then lets those that wait for others check
/// again.
bool Worker::wake_waiting() {
  bool any = false, any_spins = false;
  for (const Resident& resident : resident_) {
    Block& block = *resident.block;
    const Grid& grid = *block.grid;
    const bool grid_meets =
        grid.at_grid_barrier == grid.block_count() * grid.block_size() && grid.cooperative;
    for (DeviceThread& thread : block.all()) {
      const bool spins = thread.waiting == Waiting::others;
      const bool wakes = (thread.waiting == Waiting::grid && grid_meets) ||
                         (thread.waiting == Waiting::previous_kernel && grid.previous->has_ended());
      if (wakes || spins) block.make_ready(thread);
      any = any || wakes;
      any_spins = any_spins || spins;
    }
  }
  for (Grid* const grid : chain_) {
    if (grid->at_grid_barrier == grid->block_count() * grid->block_size())
      grid->at_grid_barrier = 0;
  }
  if (any) return true;
  if (++idle_rounds_ % 100 == 0) sched_yield();
  return any_spins && idle_rounds_ < idle_rounds_max;
}

void Worker::report_deadlock() const {
  std::string text = "deadlock: no thread can run";
  for (const Resident& resident : resident_) {
    const Block& block = *resident.block;
    text += "; block (" + std::to_string(block.index.x) + "," + std::to_string(block.index.y) +
            "," + std::to_string(block.index.z) + ") waits" + describe_waiting(block);
  }
  fault_log().report(text);
}

namespace {

constexpr std::size_t chain_max = 4;          ///< kernels in flight at once, of those that overlap
constexpr unsigned threads_worth_help = 512;  ///< less is done before a helper has woken up

}  // namespace

Launcher::~Launcher() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  work_or_end_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Launcher::run(const Schedule& schedule, std::span<const std::unique_ptr<Grid>> grids) {
  std::vector<Grid*> chain;
  const auto run_what_came = [&] {
    if (!chain.empty() && !fault_log().has_fault()) run_chain(schedule, chain);
    chain.clear();
  };
  for (const auto& grid : grids) {
    const bool overlaps = schedule.early_start && grid->starts_early && !grid->cooperative &&
                          !chain.empty() && !chain.back()->cooperative && chain.size() < chain_max;
    if (!overlaps) run_what_came();
    if (overlaps) grid->previous = chain.back();
    chain.push_back(grid.get());
  }
  run_what_came();
}

void Launcher::run_chain(const Schedule& schedule, std::span<Grid* const> chain) {
  const Grid& grid = *chain.front();
  const bool can_be_shared = chain.size() == 1 && !grid.cooperative && grid.block_count() > 1 &&
                             grid.block_count() * grid.block_size() > threads_worth_help;
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  const unsigned wanted = schedule.workers > 0 ? static_cast<unsigned>(schedule.workers) : cores;
  const std::size_t workers = can_be_shared ? std::min(wanted, grid.block_count()) : 1;
  while (workers_.size() < workers) workers_.push_back(std::make_unique<Worker>());
  if (workers > 1) {
    const std::lock_guard lock(mutex_);
    schedule_ = schedule;
    chain_ = chain;
    helpers_wanted_ = helpers_busy_ = workers - 1;
    ++round_;
    while (helpers_.size() < workers - 1) {
      helpers_.emplace_back([this, number = helpers_.size()] { help(number); });
    }
  }
  work_or_end_.notify_all();
  workers_[0]->run(schedule, chain);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return helpers_busy_ == 0; });
}

void Launcher::help(std::size_t number) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    work_or_end_.wait(lock, [&] { return end_ || (round_ != seen && number < helpers_wanted_); });
    if (end_) return;
    seen = round_;
    Worker& worker = *workers_[number + 1];
    const Schedule schedule = schedule_;
    const auto chain = chain_;
    lock.unlock();
    worker.run(schedule, chain);
    lock.lock();
    if (--helpers_busy_ == 0) done_.notify_one();
  }
}

}  // namespace emulator
