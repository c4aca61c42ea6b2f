#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/memory_relief.h"
#include "core/engine/prefill_watch.h"
#include "core/engine/scheduler.h"
#include "core/engine/sequence.h"
#include "core/engine/tier_desk.h"
#include "core/memory/snapshot_tier.h"

namespace hyb {

struct ActiveRequest {
  RequestTerms terms;
  Sink* sink;
  std::vector<std::unique_ptr<Sequence>> choices;  ///< null: ended
  std::size_t unfinished = 0;
};

/// What a sink is still to hear: text, or the end.
struct Event {
  Sink* sink;
  RequestId request;
  std::int32_t choice;
  std::string text;
  std::optional<Completion> completion;
};

/// A step that the runner was given: who runs in it, and since when.
struct StepUnderWay {
  std::span<const Assignment> plan;  ///< the scheduler's; empty: no step is under way
  Clock::time_point begin;
};

/// When a step that is done was launched, and when its tokens were there.
struct StepTimes {
  Clock::time_point begin, end;
};

/// What an engine knows, and how its steps follow each other (engine_steps.cpp).
///
/// A step goes through launch, wait and settle; then its events are delivered. On a runner whose
/// steps run beside the host, the next step is begun before the last one is settled, where it can
/// be foreseen: a step of one token for each sequence that runs, none of which ends, is cut for a
/// snapshot or makes another one start. Its tables are made while the step before runs, and its
/// tokens are already on the device when the host sees them: between the arrival of a step's tokens
/// and the launch of the next nothing is done but to look at each for an end of the answer.
/// Detokenising, telling, printing and recording wait until the device is busy again. So no token
/// is ever run that a sequence does not have, and no snapshot stands elsewhere than without this;
/// but who is cancelled while a step is under way has run its last token in it: what that drew is
/// dropped, and its memory stands at all its tokens instead of one before.
struct Engine::Books {
  Books(Runner& runner_, const Tokenizer* tokenizer_, const EngineOptions& options);

  // engine_steps.cpp
  bool run_step();
  void land(std::optional<RequestId> cancelled = std::nullopt);
  void abandon() noexcept;
  void carry_out_orders();

  // engine_books.cpp
  std::span<const Assignment> plan();
  void relieve(const Error& error);
  void settle(const Assignment& entry, const StepResult& result, std::optional<std::size_t> row,
              const StepTimes& times);
  void say(const ActiveRequest& active, const Sequence& sequence, std::string text);
  void finish(ActiveRequest& active, Sequence& sequence);
  void deliver();

  Runner* runner;
  const Tokenizer* tokenizer;
  Capacity capacity;
  std::int32_t length_asked;
  bool audits;
  MemoryPool pool;
  std::int32_t length_max;
  PrefixCache prefixes;
  std::unique_ptr<SnapshotTier> tier;
  std::vector<RequestId> newcomers;  ///< what is known of their prompts was not looked for yet
  std::map<RequestId, ActiveRequest> requests;
  Scheduler scheduler;
  std::optional<TierDesk> desk;  ///< there is one where there is a tier
  std::deque<Event> events;
  Step step;                       ///< the runner's last one
  Step next_step;                  ///< what it is to be given then
  std::vector<bool> stop_in_text;  ///< of next_step's sequences: which have stop strings
  StepUnderWay under_way;
  MemoryRelief relief;
  std::function<Clock::time_point()> now;
  std::optional<PrefillWatch> watch;  ///< none: prefill costs what it was said to cost
  TraceRecorder* recorder = nullptr;
  std::int64_t submitted = 0;
  std::int64_t steps = 0, steps_ahead = 0, failed_steps = 0;
  std::int32_t unfinished = 0;
  bool in_run = false;
  bool in_delivery = false;

 private:
  void launch(std::span<const Assignment> plan);
  void finish_step();
  void begin();
  StepResult wait();
  void fail();
  template <typename Call>
  void call_runner(const Call& call);
  template <typename Action>
  void or_fail(const Action& action);
  template <typename Wanted>
  void settle_those(std::span<const Assignment> plan, const StepResult& result,
                    const StepTimes& times, const Wanted& is_wanted);
  void launch_next_and_settle(std::span<const Assignment> plan, const StepResult& result,
                              const StepTimes& times);
  bool prepare_next();
  bool goes_on(std::span<const Assignment> plan, const StepResult& result) const;
  std::exception_ptr launch_next(std::span<const Assignment> plan);
  void learn_cost(Clock::duration elapsed);
  void receive_newcomers();
  void draw_early(ActiveRequest& active, Sequence& sequence);
  void keep_logits(Sequence& sequence, const StepResult& result, std::size_t row);
};

}  // namespace hyb
