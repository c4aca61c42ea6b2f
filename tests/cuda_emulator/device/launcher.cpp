#include "tests/cuda_emulator/device/launcher.h"

#include <algorithm>

#include "tests/cuda_emulator/device/fault.h"

namespace emulator {
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
