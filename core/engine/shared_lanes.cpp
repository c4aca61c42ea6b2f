#include "core/engine/shared_lanes.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb {

SharedLanes::SharedLanes(Side& side, Runner& prompts, std::function<Clock::time_point()> now,
                         Speculation* speculation, std::function<void()> carry_out_orders)
    : OneLane(side, now),
      prompts_(prompts, side, now, speculation),
      carry_out_orders_(std::move(carry_out_orders)) {}

/// The prompt lane's step is waited for only when there is nothing else to do.
NextStep SharedLanes::next() {
  if (prompts_.is_done()) return {.beside = end_step(false)};
  // Where the sequences of either lane wait for the others' memory, all are preempted and one
  // starts.
  constexpr int attempts = 3;
  for (int attempt = 0; attempt < attempts;) {
    if (!prompts_.is_under_way()) launch_prompts();
    const Clock::time_point begin = now_();
    const std::span<const Assignment> plan = side_->scheduler.plan(Lane::decode);
    if (!plan.empty()) return {.plan = plan, .begin = begin};
    if (prompts_.is_under_way()) return {.beside = end_step(true)};
    is_tier_awaited() ? waiter_->wait() : static_cast<void>(++attempt);
  }
  return {};
}

/// Tiers are looked at while neither lane has anything under way. Orders are carried out before
/// the launch: nothing else runs now, and while the step does no order is open that it waits for.
void SharedLanes::launch_prompts() {
  if (waiter_) waiter_->poll();
  const std::span<const Assignment> plan = side_->scheduler.plan(Lane::prefill);
  if (plan.empty()) return;
  carry_out_orders_();
  side_->starts(true);
  try {
    prompts_.launch(plan, {});
  } catch (...) {
    fail_prompts();
    throw;
  }
}

/// Fails the sequences of the step alone: without orders, it was to write no other memory.
void SharedLanes::fail_prompts() { side_->fail(prompts_.failed(true).plan, {}, true); }

BesideStep SharedLanes::end_step(bool is_waited_for) {
  // What a lost step had is run again; but one that is in many of them may be why they are lost.
  constexpr int losses_max = 16;
  BesideStep ended = {.was_waited_for = is_waited_for};
  try {
    ended.finished = prompts_.wait();
  } catch (const StepLost&) {
    fail_prompts();
    for (const Assignment& entry : prompts_.failed(true).plan) {
      if (entry.cuts > 0 || ++losses_[entry.sequence->age()] < losses_max) continue;
      ended.hopeless.emplace_back(
          entry.sequence,
          fmt::format("prefill lane: {} processes ended amid steps of this request; leave "
                      "--disaggregate out",
                      losses_max));
    }
  } catch (...) {
    fail_prompts();
    throw;
  }
  return ended;
}

std::optional<BesideStep> SharedLanes::wait_beside() {
  if (!prompts_.is_under_way()) return std::nullopt;
  return end_step(true);
}

Side& SharedLanes::leave(const Sequence& sequence) {
  losses_.erase(sequence.age());
  return OneLane::leave(sequence);
}

void SharedLanes::add_to(EngineUsage& usage) {
  OneLane::add_to(usage);
  usage.prefill_steps = prompts_.launched();
}

}  // namespace hyb
