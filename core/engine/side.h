#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/base/error.h"
#include "core/engine/engine_limits.h"
#include "core/engine/engine_options.h"
#include "core/engine/engine_usage.h"
#include "core/engine/runner.h"
#include "core/engine/scheduler.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"
#include "core/memory/prefix/snapshot_io.h"

namespace hyb {

/// One memory and all that has to do with it: the runner that has its bytes, the owners of its
/// units, what is remembered there, and which sequences run. An engine has one side, or another one
/// for prompts.
class Side {
 public:
  /// The runner outlives this. `carry_out_orders` has it carry out the pool's open orders.
  Side(Runner& runner, const EngineOptions& options, std::function<void()> carry_out_orders);
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  /// Memory for states is ordered ahead of need (EngineOptions::states_ahead).
  void order_ahead();
  /// The step that is about to start lets a sequence begin, or only has some that have: the first
  /// of these after one began orders memory ahead. Not every step: memory that is then given back
  /// to the machine stays there.
  void starts(bool lets_begin);

  /// A step with this plan and these orders has failed: its sequences wait to be computed again,
  /// and what its orders were to fill is lost. Where it is not known that this is all, nothing of
  /// this memory is trusted, but for what another lane has under way. The plan's sequences may be
  /// gone.
  void fail(std::span<const Assignment> plan, std::span<const Order> orders, bool is_known);
  /// Cheap counts are added.
  void add_to(EngineUsage& usage) const;
  /// `others`: what holds memory beside sequences and snapshots. `is_idle`: there are no sequences.
  void audit(std::span<const Checkpoint* const> others, bool is_idle) const;

  Runner* runner;
  MemoryPool pool;
  PrefixCache prefixes;
  Scheduler scheduler;
  SnapshotIo snapshot_io;
  OomRecovery recovery;
  bool has_failed = false;  ///< a step, since Engine::step() began

 private:
  std::int32_t states_ahead_;
  bool may_order_ahead_ = false;  ///< sequences began since memory was last ordered ahead
  std::int64_t failed_steps_ = 0;
};

}  // namespace hyb
