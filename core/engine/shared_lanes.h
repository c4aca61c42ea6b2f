#pragma once

#include <map>

#include "core/engine/one_lane.h"
#include "core/engine/prompt_lane.h"

namespace hyb {

/// Prompts run beside answers, on the same memory. The prompt lane has all that is not the one next
/// token of an answer that has begun, so a first token is drawn where the last token of its prompt
/// ran, and a sequence changes its lane by being in the other one's next plan.
///
/// The prompt lane's step is launched while nothing else runs, its orders are carried out before
/// that, and it is applied between two steps of the other lane, which go on meanwhile. So either
/// lane's step may fail without the other one's noticing.
class SharedLanes final : public OneLane {
 public:
  /// All outlive this. `carry_out_orders` has the engine's runner carry out open orders.
  SharedLanes(Side& side, Runner& prompts, std::function<Clock::time_point()> now,
              Speculation* speculation, std::function<void()> carry_out_orders);

  NextStep next() override;
  bool has_news() override { return OneLane::has_news() || prompts_.is_done(); }
  std::optional<BesideStep> wait_beside() override;
  bool runs_beside(RequestId request) const override { return prompts_.has(request); }
  Side& leave(const Sequence& sequence) override;
  void add_to(EngineUsage& usage) override;

 private:
  void launch_prompts();
  void fail_prompts();
  BesideStep end_step(bool is_waited_for);

  PromptLane prompts_;
  std::function<void()> carry_out_orders_;
  /// Counts steps of a sequence that were lost with the process that ran them (StepLost).
  std::map<ArrivalOrder, int> losses_;
};

}  // namespace hyb
