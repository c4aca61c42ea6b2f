#include "core/engine/prompt_side.h"

#include <utility>

#include "core/base/error.h"
#include "core/engine/engine_parts.h"

namespace hyb {

PromptSide::PromptSide(const EngineOptions& options, const SchedulerLimits& limits,
                       EngineSide answers)
    : runner_(options.prefill_lane),
      pool_(runner_->capacity().memory),
      prefixes_(pool_, options.prefixes),
      scheduler_(pool_, prefixes_, limits),
      handovers_({.pool = &pool_,
                  .prefixes = &prefixes_,
                  .scheduler = &scheduler_,
                  .io = {pool_, *runner_, prefixes_, [this] { carry_out_orders(); }}},
                 std::move(answers), *options.link, options.link_bytes_per_second, options.now) {
  pool_.set_backing([this](SuperblockId superblock, bool may_create) {
    return runner_->commit(superblock, may_create);
  });
}

void PromptSide::carry_out_orders() {
  const Step orders = {.orders = pool_.take_orders(), .spans = {}};
  try {
    runner_->run(orders);
  } catch (...) {
    fail({}, orders.orders, std::current_exception());
    throw;
  }
}

void PromptSide::fail(std::span<const Assignment> plan, std::span<const Order> orders,
                      const std::exception_ptr& error) {
  ++failed_steps_;
  has_failed_ = true;
  handovers_.lose_prompts();
  if (lacks_memory(error)) {
    scheduler_.release_all();
  } else {
    scheduler_.release_failed(plan, orders);
  }
}

bool PromptSide::recover(const Error& error) {
  if (!std::exchange(has_failed_, false)) return false;
  return recovery_.recover(pool_, *runner_, error);
}

void PromptSide::add_to(EngineUsage& usage) const {
  usage.prefixes += prefixes_.stats();
  add(usage, scheduler_.counts());
  usage.failed_steps += failed_steps_;
  usage.prompt_pool = pool_.usage();
  usage.prompt_snapshots = prefixes_.tree().size();
  usage.handovers = handovers_.stats();
}

void PromptSide::audit(bool is_idle) const {
  scheduler_.audit(handovers_.held_of_prompts());
  require(!is_idle || prefixes_.tree().size() > 0 || pool_.all_free(),
          "engine: without sequences and snapshots no memory of prompts is held");
}

}  // namespace hyb
