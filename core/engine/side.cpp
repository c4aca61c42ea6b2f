#include "core/engine/side.h"

#include <utility>

namespace hyb {

Side::Side(Runner& its_runner, const EngineOptions& options, std::function<void()> carry_out_orders)
    : runner(&its_runner),
      pool(pool_layout(runner->capacity(), options), options.state_share.has_value()),
      prefixes(pool, options.prefixes),
      scheduler(pool, prefixes, scheduler_limits(runner->capacity(), options)),
      snapshot_io(pool, *runner, prefixes, std::move(carry_out_orders)),
      states_ahead_(options.states_ahead) {
  pool.set_backing([this](SuperblockId superblock, bool may_create) {
    return runner->commit(superblock, may_create);
  });
}

void Side::order_ahead() {
  may_order_ahead_ = false;
  pool.order_ahead(states_ahead_);
}

void Side::starts(bool lets_begin) {
  if (lets_begin) {
    may_order_ahead_ = true;
  } else if (may_order_ahead_) {
    order_ahead();
  }
}

void Side::fail(std::span<const Assignment> plan, std::span<const Order> orders, bool is_known) {
  ++failed_steps_;
  has_failed = true;
  scheduler.fail(plan, orders, is_known);
}

void Side::add_to(EngineUsage& usage) const {
  usage.prefixes += prefixes.stats();
  usage.failed_steps += failed_steps_;
  usage.preemptions += scheduler.counts().preemptions;
  usage.deferrals += scheduler.counts().deferrals;
  usage.prefix_waits += scheduler.counts().prefix_waits;
}

void Side::audit(std::span<const Checkpoint* const> others, bool is_idle) const {
  scheduler.audit(others);
  require(!is_idle || !others.empty() || prefixes.tree().size() > 0 || pool.all_free(),
          "engine: without sequences and snapshots no memory is held");
}

}  // namespace hyb
