#include "core/engine/separate_lanes.h"

#include <exception>

#include "core/base/error.h"

namespace hyb {

SeparateLanes::SeparateLanes(Side& answers, const EngineOptions& options, Speculation* speculation)
    : answers_(&answers),
      prompts_(*options.prefill_lane, options, [this] { carry_out_orders(); }),
      sides_{answers_, &prompts_},
      handovers_(prompts_, answers, *options.link, options.link_bytes_per_second, options.now),
      lane_(*options.prefill_lane, prompts_, options.now, speculation),
      now_(options.now) {}

void SeparateLanes::add_tier(SnapshotTier&) {
  throw Error(ErrorKind::runtime, "engine: a tier extends one memory, and there are two");
}

void SeparateLanes::add(std::span<Sequence* const> choices) {
  sequences_ += choices.size();
  prompts_.scheduler.add(choices);
}

NextStep SeparateLanes::next() {
  // Sequences may go from one side to the other before there is a step for some of them.
  constexpr int attempts = 8;
  for (int attempt = 0; sequences_ > 0 || lane_.is_under_way(); ++attempt) {
    require(attempt < attempts, "engine: some sequence of either side can always continue");
    if (lane_.is_done()) return {.beside = end_step(false)};
    handovers_.advance(!lane_.is_under_way());
    if (!lane_.is_under_way()) launch_prompts();
    const Clock::time_point begin = now_();
    const std::span<const Assignment> plan = answers_->scheduler.plan(Lane::all, true);
    if (!plan.empty()) return {.plan = plan, .begin = begin};
    if (handovers_.is_copying()) {
      handovers_.wait();
      attempt = 0;
    } else if (lane_.is_under_way()) {
      return {.beside = end_step(true)};
    }
  }
  return {};
}

void SeparateLanes::launch_prompts() {
  const std::span<const Assignment> plan =
      prompts_.scheduler.plan(Lane::prefill, handovers_.sequences() > 0);
  if (plan.empty()) return;
  answers_->starts(true);
  try {
    lane_.launch(plan, prompts_.pool.take_orders());
  } catch (...) {
    fail_prompts();
    throw;
  }
}

void SeparateLanes::fail_prompts() { fail(lane_.failed(!lacks_memory(std::current_exception()))); }

BesideStep SeparateLanes::end_step(bool is_waited_for) {
  try {
    return {.finished = lane_.wait(), .was_waited_for = is_waited_for};
  } catch (...) {
    fail_prompts();
    throw;
  }
}

void SeparateLanes::carry_out_orders() {
  const Step orders = {.orders = prompts_.pool.take_orders(), .spans = {}};
  try {
    prompts_.runner->run(orders);
  } catch (...) {
    fail({.side = &prompts_,
          .plan = {},
          .orders = orders.orders,
          .is_known = !lacks_memory(std::current_exception())});
    throw;
  }
}

bool SeparateLanes::has_news() {
  return lane_.is_done() || handovers_.has_news(!lane_.is_under_way());
}

std::optional<BesideStep> SeparateLanes::wait_beside() {
  if (!lane_.is_under_way()) return std::nullopt;
  return end_step(true);
}

void SeparateLanes::fail(const FailedStep& failed) {
  failed.side == &prompts_ ? handovers_.lose_prompts() : handovers_.lose_answers();
  failed.side->fail(failed.plan, failed.orders, failed.is_known);
}

/// One that is on its way is removed from the side that it goes to.
Side& SeparateLanes::leave(const Sequence& sequence) {
  --sequences_;
  handovers_.leave(sequence);
  return prompts_.scheduler.has(sequence) ? prompts_ : *answers_;
}

std::int32_t SeparateLanes::running() {
  return answers_->scheduler.running() + prompts_.scheduler.running() + handovers_.sequences();
}

void SeparateLanes::add_to(EngineUsage& usage) {
  usage.prefill_steps = lane_.launched();
  usage.prompt_pool = prompts_.pool.usage();
  usage.prompt_snapshots = prompts_.prefixes.tree().size();
  usage.handovers = handovers_.stats();
}

void SeparateLanes::audit(std::size_t awaiting, bool is_idle) {
  answers_->audit(handovers_.held_of_answers(), is_idle);
  prompts_.audit(handovers_.held_of_prompts(), is_idle);
  require(awaiting == handovers_.waiting(),
          "engine: what waits for a copy is counted where it is made");
}

}  // namespace hyb
