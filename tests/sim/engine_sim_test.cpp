#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/engine/drafter.h"
#include "core/workers/remote_runner.h"
#include "tests/sim/lane_runner.h"
#include "tests/sim/late_runner.h"
#include "tests/sim/listener.h"
#include "tests/sim/random.h"
#include "tests/sim/setting.h"
#include "tests/sim/side_runner.h"
#include "tests/sim/toy_model.h"
#include "tests/sim/toy_runner.h"
#include "tests/sim/toy_worker.h"
#include "tests/support/quiet_log.h"

namespace hyb::sim::engine_sim {

struct EngineCounts {
  std::int64_t steps = 0, answers = 0, preempted_tokens = 0, reused = 0, cancelled = 0,
               failed_steps = 0, sink_failures = 0, spans_max = 0;
  std::int64_t hits = 0, evicted = 0, prefix_waits = 0, owner_changes = 0;
  std::int64_t steps_ahead = 0, dropped = 0;  ///< begun early; prepared, but never begun
  std::int64_t refused = 0;                   ///< could not be prepared
  std::int64_t overlapping = 0;               ///< begun while another step was running
  std::int64_t ahead_beside = 0;              ///< begun early while one of prompts was running
  DraftCounts drafts;
  std::int64_t branch_drafts = 0, branches_taken = 0;
  std::int64_t advanced = 0;                       ///< states, by order
  std::int64_t drafted = 0;                        ///< tokens, by the model
  std::int64_t lane_steps = 0, lane_failures = 0;  ///< of the prefill lane
  std::int64_t kept = 0;                           ///< failed steps that left snapshots
  std::int64_t lane_done = 0;                      ///< before the other lane had to wait for it
  std::int64_t steps_beside = 0;  ///< of the other lane, while one of the prefill lane ran
  std::int64_t died = 0, hung = 0, lost = 0, late = 0;  ///< of ToyWorkers
  std::int64_t replaced = 0;
  HandoverStats handovers;
  std::int64_t units = 0, failed_copies = 0;  ///< of a link
  /// Steps of prompts while pages of theirs were copied, and such with changes of owners.
  std::int64_t steps_beside_copies = 0, changes_beside_copies = 0;
  std::int64_t side_steps = 0, side_failures = 0, preemptions = 0;
  std::int64_t whole = 0;  ///< answers that came to the end of a rule
};

/// A random life of one engine: random pools, chunks and limits; prompts that begin like earlier
/// ones; requests submitted and cancelled at any time, also from inside a sink; steps and sinks
/// that throw. Every answer is compared with that of the naive model alone, the pool is audited
/// after every step, and at the end only snapshots are held. Throws Violation at the first fault.
EngineCounts run_engine_scenario(std::uint64_t seed, Bug bug = Bug::none, bool checks_rules = true);

/// The same on an asynchronous runner whose slots hold nothing but the state
/// after the last token that was run. No token of a cancelled request is drawn after the call that
/// cancels it.
EngineCounts run_late_scenario(std::uint64_t seed, LateBug bug = LateBug::none);

/// The same with drafts, most of which are right, on a runner with rings where that has a recurrent
/// half; half of the time on an asynchronous one.
EngineCounts run_draft_scenario(std::uint64_t seed, Bug bug = Bug::none, bool checks_rules = true);

/// The same with a lane for prompts, whose steps are done at any pace beside those of the other
/// lane: half of the time that has asynchronous steps, half of the time drafts.
EngineCounts run_lane_scenario(std::uint64_t seed, LaneBug bug = LaneBug::none);

/// The same with that lane's steps in workers, which die.
EngineCounts run_worker_scenario(std::uint64_t seed, WorkerBug bug = WorkerBug::none);
/// The same with memory of its own for prompts. Copies go on at any pace beside the steps of both
/// sides, or fail.
EngineCounts run_side_scenario(std::uint64_t seed, LinkBug bug = LinkBug::none);

/// The same with requests that say which tokens may be drawn: alone, with asynchronous steps,
/// drafts, lanes, workers, or two memories.
EngineCounts run_mask_scenario(std::uint64_t seed, Bug bug = Bug::none);

namespace {

constexpr std::int64_t steps_max = 100'000;
constexpr std::int32_t requests_max = 14;

/// Drafts what the naive model would draw, with some tokens wrong.
class ToyDrafter final : public Drafter {
 public:
  using Requests = std::vector<std::pair<RequestId, Request>>;
  ToyDrafter(const ToyModel& model, const Requests& requests, std::uint64_t seed)
      : model_(model), requests_(&requests), random_(seed), takes_time_(seed % 2 != 0) {}

  void prepare(std::span<const DraftJob> jobs) override {
    for (const DraftJob& job : jobs) prepared_.insert(job.sequence);
  }
  bool takes_time() const override { return takes_time_; }

  void draft(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) {
      require(prepared_.contains(job.sequence), "sim: a sequence is prepared before it has drafts");
      if (random_.chance(20)) continue;
      const Request& request =
          std::ranges::find(*requests_, job.sequence.request, &std::pair<RequestId, Request>::first)
              ->second;
      SamplingParams sampling = request.sampling;
      sampling.seed += static_cast<std::uint64_t>(job.sequence.choice);
      NaiveToy naive(model_);
      for (const TokenId token : job.tokens) naive.push(token);
      const std::span<const TokenId> answer = job.tokens.subspan(request.prompt.size());
      for (std::int32_t guess = 0; guess < job.guesses; ++guess) {
        std::vector<TokenId>& drafts = guess == 0 ? job.drafts : job.others.emplace_back();
        drafts = guesses(naive, request, sampling, {answer.begin(), answer.end()},
                         random_.between(1, job.most));
      }
    }
  }
  bool may_draft_after_next(const ArrivalOrder&, std::span<const TokenId>) override {
    return random_.chance(60);
  }
  void forget(const ArrivalOrder& sequence) override { prepared_.erase(sequence); }

 private:
  std::vector<TokenId> guesses(NaiveToy naive, const Request& request,
                               const SamplingParams& sampling, std::vector<TokenId> answer,
                               std::int32_t most) {
    std::vector<TokenId> drafts;
    while (std::ssize(drafts) < most) {
      const std::vector<std::uint32_t> mask = naive_mask(request, answer);
      TokenId token = sim::draw(model_, naive.output(), sampling, answer.size(), mask).token;
      if (random_.chance(20)) token = TokenId{random_.between(0, model_.vocab - 1)};
      drafts.push_back(token);
      answer.push_back(token);
      naive.push(token);
    }
    return drafts;
  }

  ToyModel model_;
  const Requests* requests_;
  Random random_;
  bool takes_time_;
  std::set<ArrivalOrder> prepared_;
};

class Scenario : private Listener {
 public:
  Scenario(std::uint64_t seed, Bug bug, bool checks_rules, std::optional<LateBug> late = {},
           bool drafts = false, std::optional<LaneBug> lanes = {},
           std::optional<WorkerBug> workers = {}, std::optional<LinkBug> link = {},
           bool masks = false)
      : random_(seed),
        mask_random_(~seed + 4),
        has_masks_(masks),
        setting_(make_setting(random_)),
        drafter_(setting_.model, asked_, seed + 1),
        has_drafts_(drafts && make_room_for_drafts(seed)),
        runner_(setting_.capacity, setting_.model, bug, checks_rules),
        late_(runner_, ~seed, late.value_or(LateBug::none)),  // numbers of its own
        lane_(runner_, ~seed + 1, lanes.value_or(LaneBug::none)),
        prompt_runner_(with_more_memory(setting_.capacity, seed), setting_.model, bug,
                       checks_rules),
        side_(prompt_runner_, ~seed + 2),
        link_(
            ~seed + 3, link.value_or(LinkBug::none), prompt_runner_.capacity().memory,
            setting_.capacity.memory,
            [this](UnitLink::Direction direction, const UnitMove& move) { copy(direction, move); }),
        has_lanes_(lanes.has_value()),
        has_sides_(link.has_value()),
        workers_(lane_, ~seed + 2, workers.value_or(WorkerBug::none)),
        remote_(workers ? make_remote() : nullptr),
        is_late_(late.has_value()),
        keeps_extra_token_(late == LateBug::extra_token_kept),
        engine_(is_late_ ? static_cast<Runner&>(late_) : runner_, setting_.tokenizer,
                with_clock(setting_.options)) {
    runner_.plant(lanes.value_or(LaneBug::none));
    runner_.fails = [this] {
      const bool fails = setting_.is_rough && counts_.failed_steps < 10 && random_.chance(3);
      if (fails) ++counts_.failed_steps;
      return fails;
    };
    prompt_runner_.fails = runner_.fails;
    runner_.on_step = [this](const Step& step) {
      link_.check_beside(SimLink::Side::answers, step);
    };
    prompt_runner_.on_step = [this](const Step& step) {
      link_.check_beside(SimLink::Side::prompts, step);
    };
    late_.is_beside = [this] { return lane_.is_under_way() || side_.is_under_way(); };
    link_.fails = [this] { return setting_.is_rough && link_.failed < 10 && random_.chance(3); };
  }

  EngineCounts run() {
    const auto planned = static_cast<std::size_t>(random_.between(1, requests_max));
    while (asked_.size() < planned || !engine_.idle()) {
      if (asked_.size() < planned && (engine_.idle() || random_.chance(20))) submit();
      if (random_.chance(2)) guarded([&] { cancel_any(); });
      link_.go_on();
      guarded([&] {
        if (!engine_.step() && !engine_.idle()) throw Violation("nothing to do, and yet not idle");
      });
      engine_.audit();
      if (++counts_.steps > steps_max) throw Violation("the engine does not come to an end");
    }
    if (engine_.running() != 0 || engine_.waiting() != 0) throw Violation("idle, and yet busy");
    for (const auto& [id, request] : asked_) {
      for (std::int32_t choice = 0; choice < request.choices; ++choice) compare(id, choice);
    }
    counts_.spans_max = runner_.spans_max;
    counts_.drafted = runner_.drafted;
    counts_.lane_steps = lane_.launched;
    counts_.lane_failures = lane_.failed;
    counts_.lane_done = lane_.found_done;
    counts_.steps_beside = runner_.steps_beside;
    counts_.died = workers_.died;
    counts_.hung = workers_.hung;
    counts_.lost = workers_.lost;
    counts_.late = workers_.late;
    counts_.replaced = workers_.started;
    counts_.side_steps = side_.launched;
    counts_.side_failures = side_.failed;
    counts_.units = link_.units;
    counts_.failed_copies = link_.failed;
    counts_.steps_beside_copies = link_.steps_beside;
    counts_.changes_beside_copies = link_.changes_beside;
    late_.check();
    link_.check();
    const EngineUsage usage = engine_.usage();
    counts_.handovers = usage.handovers;
    counts_.preemptions = usage.preemptions;
    counts_.drafts = usage.speculation.total();
    counts_.branch_drafts = usage.speculation.branch_drafts;
    counts_.branches_taken = usage.speculation.branches_taken;
    counts_.advanced = runner_.advanced;
    if (drafts_counted_ != counts_.drafts) throw Violation("drafts of answers are all drafts");
    if (!has_drafts_ && counts_.drafts.steps > 0) throw Violation("drafts without speculation");
    if (usage.steps_ahead != late_.begun_early) throw Violation("steps begun early are counted");
    counts_.steps_ahead = usage.steps_ahead;
    counts_.dropped = late_.prepared - late_.begun_early;
    counts_.refused = late_.refused;
    counts_.overlapping = late_.overlapping;
    counts_.ahead_beside = late_.beside;
    counts_.hits = usage.prefixes.hits;
    counts_.evicted = usage.prefixes.evicted;
    counts_.prefix_waits = usage.prefix_waits;
    counts_.owner_changes = usage.pool.owner_changes;
    if (usage.pool.total() != setting_.capacity.memory.bytes())
      throw Violation("bytes are missing");
    guarded([&] { engine_.pool(); });  // a step may be running that no sequence needs any more
    engine_.prefixes().clear();
    if (!engine_.pool().all_free()) throw Violation("memory is lost");
    if (has_sides_) {
      engine_.prompt_prefixes()->clear();
      engine_.audit();  // all is free
    }
    return counts_;
  }

 private:
  void submit() {
    Request request = make_request(random_, setting_, engine_.length_max(), earlier_tokens());
    request.token_times = is_late_;
    if (has_masks_ && mask_random_.chance(70)) add_masks(mask_random_, request);
    const RequestId id = engine_.submit(request, *this);
    asked_.emplace_back(id, std::move(request));
  }

  /// Half of the time the start of an earlier prompt, with its answer when there is one.
  std::vector<TokenId> earlier_tokens() {
    if (asked_.empty() || random_.chance(setting_.is_tight ? 80 : 50)) return {};
    const auto& [id, request] = asked_[random_.below(asked_.size())];
    if (random_.chance(30)) return request.prompt;
    std::vector<TokenId> tokens = request.prompt;
    const Heard* heard = find(id, 0);
    if (heard != nullptr && heard->completion && random_.chance(70)) {
      const std::vector<TokenId>& answer = heard->completion->tokens;
      tokens.insert(tokens.end(), answer.begin(), answer.end());
    }
    if (random_.chance(50)) tokens.resize(random_.below(tokens.size() + 1));
    return tokens;
  }

  /// A few times only, or everything that got stuck would be cancelled in the end.
  void cancel(RequestId id) {
    if (cancels_left_-- <= 0) return;
    cancelled_.emplace(id, now_);
    if (keeps_extra_token_) engine_.pool();  // ends the step under way, which takes what it drew
    engine_.cancel(id);
  }

  void cancel_any() {
    if (!asked_.empty()) cancel(asked_[random_.below(asked_.size())].first);
  }

  template <typename Action>
  void guarded(Action&& action) {
    try {
      action();
    } catch (const StepFailure&) {
      if (engine_.usage().snapshots > 0) ++counts_.kept;
    } catch (const Error& error) {  // one that a worker passed on
      if (remote_ == nullptr || std::string(error.what()) != StepFailure().what()) throw;
    } catch (const SinkFailure&) {
      ++counts_.sink_failures;
    }
  }

  /// The engine is called back, and sometimes let down.
  void after_event(RequestId request) override {
    if (random_.chance(1)) cancel(request);
    if (random_.chance(1)) cancel_any();
    if (random_.chance(2) && asked_.size() < requests_max) submit();
    if (setting_.is_rough && random_.chance(2)) throw SinkFailure();
  }

  void compare(RequestId id, std::int32_t choice) {
    const auto same = [&](const auto& entry) { return entry.first == id; };
    const Request& request = std::find_if(asked_.begin(), asked_.end(), same)->second;
    const Heard* heard = find(id, choice);
    if (heard == nullptr || !heard->completion) throw Violation("a choice was never ended");
    const Completion& got = *heard->completion;
    const ToyAnswer expected =
        answer_of(setting_.model, setting_.tokenizer, engine_.length_max(), request, choice);
    ++counts_.answers;
    if (request.prefill_only) {
      if (!got.tokens.empty() || !got.text.empty()) throw Violation("tokens of an empty request");
      const auto prompt = static_cast<std::int32_t>(request.prompt.size());
      const std::int32_t known = got.usage.reused_tokens + got.usage.prefilled_tokens;
      if (got.reason == FinishReason::stop ? known != prompt : !cancelled_.contains(id)) {
        throw Violation("a prompt was not prefilled");
      }
      return;
    }
    if (!setting_.is_rough) counts_.preempted_tokens += got.usage.recomputed_tokens;
    counts_.reused += got.usage.reused_tokens;
    drafts_counted_ += got.usage.drafts;
    check_usage(request, got);
    if (got.reason == FinishReason::cancelled) {
      ++counts_.cancelled;
      if (!cancelled_.contains(id)) throw Violation("cancelled without a cancel()");
      for (const std::chrono::steady_clock::time_point time : got.token_times) {
        if (time > cancelled_.at(id)) throw Violation("a token was drawn after its request's end");
      }
      if (got.tokens.size() > expected.tokens.size() ||
          !std::equal(got.tokens.begin(), got.tokens.end(), expected.tokens.begin())) {
        throw Violation("a cancelled answer is not a prefix of the naive one");
      }
      if (got.text != text_of(setting_.tokenizer, request, got.tokens)) {
        throw Violation("a cancelled answer has another text");
      }
      return;
    }
    if (got.tokens != expected.tokens) throw Violation("other tokens than the naive model's");
    if (got.text != expected.text) throw Violation("another text than the naive one");
    if (got.reason != expected.reason) throw Violation("another reason than the naive one");
    if (request.rule.get() != nullptr && got.reason == FinishReason::stop) {
      ++counts_.whole;
      std::string bytes;
      for (const TokenId token : got.tokens) {
        if (token != toy_end) bytes += toy_tokenizer().bytes_of(token);
      }
      GrammarMatcher matcher(*request.rule.get());
      const bool is_right = matcher.accept_bytes(bytes) && matcher.is_complete();
      if (!is_right) throw Violation("a token outside of its mask was given");
    }
    if (got.error.empty() != (got.reason != FinishReason::error)) throw Violation("error text");
  }

  static void check_usage(const Request& request, const Completion& got) {
    const Usage& usage = got.usage;
    const auto prompt = static_cast<std::int32_t>(request.prompt.size());
    if (usage.prompt_tokens != prompt) throw Violation("usage: prompt");
    if (usage.completion_tokens != static_cast<std::int32_t>(got.tokens.size())) {
      throw Violation("usage: completion");
    }
    const std::int32_t known = usage.reused_tokens + usage.prefilled_tokens;
    if (known > prompt || (!got.tokens.empty() && known != prompt)) {
      throw Violation("usage: reused and prefilled tokens are not the prompt");
    }
    if (usage.queued.count() < 0 || usage.prefill.count() < 0 || usage.decode.count() < 0) {
      throw Violation("usage: time runs backwards");
    }
    const std::size_t events = request.sampling.logprobs < 0 ? 0 : got.tokens.size();
    if (got.events.size() != events) throw Violation("one event per token on request");
  }

  /// Every look at the clock finds it later.
  EngineOptions with_clock(EngineOptions options) {
    if (is_late_) options.now = [this] { return now_ += std::chrono::nanoseconds(1); };
    if (has_lanes_) options.prefill_lane = &lane_;
    if (remote_) options.prefill_lane = remote_.get();
    if (has_sides_) {
      options.prefill_lane = &side_;
      options.link = &link_;
      static constexpr double speeds[] = {1e2, 1e5, 1e9};
      options.link_bytes_per_second = speeds[setting_.options.length_max % 3];
    }
    return options;
  }

  /// However many workers end in a row: how that ends is tested elsewhere.
  std::unique_ptr<RemoteRunner> make_remote() {
    return std::make_unique<RemoteRunner>(
        [this] { return workers_.start(); }, runner_.capacity(), ToyWorkers::identity(),
        WorkerLimits{.deaths_in_a_row = 1000}, [this] { return workers_.now(); });
  }

  static Capacity with_more_memory(Capacity capacity, std::uint64_t seed) {
    if (!capacity.memory.fixed_superblocks.empty()) return capacity;
    capacity.memory.superblocks += static_cast<std::int32_t>(seed % 4);
    return capacity;
  }

  void copy(UnitLink::Direction direction, const UnitMove& move) {
    if (direction == UnitLink::Direction::to_answers) {
      runner_.receive(prompt_runner_, move.view, move.from, move.to);
    } else {
      prompt_runner_.receive(runner_, move.view, move.from, move.to);
    }
  }

  bool make_room_for_drafts(std::uint64_t seed) {
    Random random(~seed);
    add_drafts(setting_, random);
    if (random.chance(40)) {
      setting_.options.speculation.by_model = true;
    } else {
      setting_.options.speculation.drafter = &drafter_;
    }
    return true;
  }

  Random random_, mask_random_;
  bool has_masks_;
  Setting setting_;
  std::vector<std::pair<RequestId, Request>> asked_;
  ToyDrafter drafter_;
  bool has_drafts_;
  DraftCounts drafts_counted_;
  SharedRunner runner_;
  LateRunner late_;
  LaneRunner lane_;
  ToyRunner prompt_runner_;
  SideRunner side_;
  SimLink link_;
  bool has_lanes_, has_sides_;
  ToyWorkers workers_;
  std::unique_ptr<RemoteRunner> remote_;  ///< null: no workers
  bool is_late_, keeps_extra_token_;
  std::chrono::steady_clock::time_point now_{std::chrono::hours(1)};
  Engine engine_;
  std::map<RequestId, std::chrono::steady_clock::time_point>
      cancelled_;  ///< and when for the first time
  std::int32_t cancels_left_ = random_.between(0, 4);
  EngineCounts counts_;
};

}  // namespace

EngineCounts run_engine_scenario(std::uint64_t seed, Bug bug, bool checks_rules) {
  return Scenario(seed, bug, checks_rules).run();
}

EngineCounts run_late_scenario(std::uint64_t seed, LateBug bug) {
  // No bug where nothing is drafted: a slot holds the state at its span's end alone, as a real one
  // does, so a token too many in it is seen.
  return Scenario(seed, Bug::rejected_tokens_kept, true, bug).run();
}

EngineCounts run_draft_scenario(std::uint64_t seed, Bug bug, bool checks_rules) {
  const std::optional<LateBug> late =
      seed % 2 == 0 ? std::optional<LateBug>() : std::optional(LateBug::none);
  return Scenario(seed, bug, checks_rules, late, true).run();
}

/// Half of the lives have asynchronous steps, and half have drafts.
EngineCounts run_beside(std::uint64_t seed, std::optional<LaneBug> lanes,
                        std::optional<WorkerBug> workers = {}, std::optional<LinkBug> link = {}) {
  const std::optional<LateBug> late =
      seed % 2 == 0 ? std::optional<LateBug>() : std::optional(LateBug::none);
  const bool drafts = seed % 4 >= 2;
  const Bug slots = drafts ? Bug::none : Bug::rejected_tokens_kept;
  return Scenario(seed, slots, true, late, drafts, lanes, workers, link).run();
}

EngineCounts run_lane_scenario(std::uint64_t seed, LaneBug bug) { return run_beside(seed, bug); }

EngineCounts run_worker_scenario(std::uint64_t seed, WorkerBug bug) {
  return run_beside(seed, LaneBug::none, bug);
}

EngineCounts run_side_scenario(std::uint64_t seed, LinkBug bug) {
  return run_beside(seed, {}, {}, bug);
}

EngineCounts run_mask_scenario(std::uint64_t seed, Bug bug) {
  const std::uint64_t kind = seed % 5;
  const bool drafts = seed % 2 == 0;
  if (bug == Bug::none && !drafts) bug = Bug::rejected_tokens_kept;
  return Scenario(seed, bug, true, seed % 3 == 0 ? std::optional(LateBug::none) : std::nullopt,
                  drafts, kind == 2 || kind == 3 ? std::optional(LaneBug::none) : std::nullopt,
                  kind == 3 ? std::optional(WorkerBug::none) : std::nullopt,
                  kind == 4 ? std::optional(LinkBug::none) : std::nullopt, true)
      .run();
}

using namespace hyb;
using namespace hyb::sim;

namespace {

bool is_found(Bug bug, bool checks_rules) {
  return any_seed_fails(100,
                        [&](std::uint64_t seed) { run_engine_scenario(seed, bug, checks_rules); });
}

}  // namespace

TEST_SUITE("sim/engine") {
  TEST_CASE("every answer is the one that the request would get alone") {
    EngineCounts sum;
    const bool are_all = run_seeds(1500, [&](std::uint64_t seed) {
      const EngineCounts counts = run_engine_scenario(seed);
      sum.steps += counts.steps;
      sum.answers += counts.answers;
      sum.preempted_tokens += counts.preempted_tokens;
      sum.reused += counts.reused;
      sum.cancelled += counts.cancelled;
      sum.failed_steps += counts.failed_steps;
      sum.kept += counts.kept;
      sum.sink_failures += counts.sink_failures;
      sum.hits += counts.hits;
      sum.evicted += counts.evicted;
      sum.prefix_waits += counts.prefix_waits;
      sum.owner_changes += counts.owner_changes;
    });
    MESSAGE("steps " << sum.steps << ", answers " << sum.answers << ", preempted tokens "
                     << sum.preempted_tokens << ", reused " << sum.reused << ", cancelled "
                     << sum.cancelled << ", failed steps " << sum.failed_steps << ", failed sinks "
                     << sum.sink_failures << ", hits " << sum.hits << ", evicted " << sum.evicted
                     << ", waits for a prefix " << sum.prefix_waits << ", owner changes "
                     << sum.owner_changes);
    if (!are_all) return;
    CHECK(sum.preempted_tokens > 10'000);
    CHECK(sum.reused > 10'000);
    CHECK(sum.hits > 1'000);
    CHECK(sum.evicted > 1'000);
    CHECK(sum.prefix_waits > 1'000);
    CHECK(sum.owner_changes > 1'000);
    CHECK(sum.cancelled > 500);
    CHECK(sum.failed_steps > 500);
    CHECK(sum.kept > 200);
    CHECK(sum.sink_failures > 100);
  }

  TEST_CASE("planted bugs are found, by the rules and by the answers alone") {
    // Not here: rejected drafts, which these scenarios do not have.
    for (const Bug bug :
         {Bug::orders_ignored, Bug::orders_after_spans, Bug::last_order_lost,
          Bug::copy_turned_round, Bug::copy_has_one_row, Bug::reads_write_slot,
          Bug::writes_read_slot, Bug::fresh_state_not_zero, Bug::chunk_forgets_state,
          Bug::page_edge_off_by_one, Bug::neighbours_page_table, Bug::neighbours_state,
          Bug::answers_swapped, Bug::draw_counter_stuck, Bug::state_one_span_old,
          Bug::last_page_of_table_stale, Bug::orders_reversed}) {
      CAPTURE(name_of(bug));
      CHECK(is_found(bug, true));
      CHECK(is_found(bug, false));
    }
  }
}

TEST_SUITE("sim/drafts") {
  TEST_CASE("drafts change no answer") {
    EngineCounts sum;
    const bool are_all = run_seeds(1500, [&](std::uint64_t seed) {
      const EngineCounts counts = run_draft_scenario(seed);
      sum.steps += counts.steps;
      sum.answers += counts.answers;
      sum.drafts += counts.drafts;
      sum.branch_drafts += counts.branch_drafts;
      sum.branches_taken += counts.branches_taken;
      sum.advanced += counts.advanced;
      sum.drafted += counts.drafted;
      sum.steps_ahead += counts.steps_ahead;
      sum.failed_steps += counts.failed_steps;
      sum.preempted_tokens += counts.preempted_tokens;
      sum.cancelled += counts.cancelled;
    });
    MESSAGE("steps " << sum.steps << ", answers " << sum.answers << ", verify steps "
                     << sum.drafts.steps << ", drafts accepted " << sum.drafts.accepted
                     << ", rejected " << sum.drafts.rejected << ", in branches "
                     << sum.branch_drafts << ", branches taken " << sum.branches_taken
                     << ", rings applied by order " << sum.advanced << ", drafted by the model "
                     << sum.drafted << ", begun early " << sum.steps_ahead << ", failed steps "
                     << sum.failed_steps << ", preempted tokens " << sum.preempted_tokens
                     << ", cancelled " << sum.cancelled);
    if (!are_all) return;
    CHECK(sum.drafts.steps > 5'000);
    CHECK(sum.drafts.accepted > 5'000);
    CHECK(sum.drafts.rejected > 5'000);
    CHECK(sum.branch_drafts > 3'000);
    CHECK(sum.branches_taken > 500);
    CHECK(sum.advanced > 500);
    CHECK(sum.drafted > 5'000);
    CHECK(sum.steps_ahead > 500);
    CHECK(sum.failed_steps > 300);
    CHECK(sum.preempted_tokens > 1'000);
    CHECK(sum.cancelled > 100);
  }

  TEST_CASE("planted bugs are found, by the rules and by the answers alone") {
    for (const Bug bug :
         {Bug::one_accepted_too_many, Bug::ring_off_by_one, Bug::ring_not_applied,
          Bug::ring_forgotten, Bug::draft_in_state, Bug::keys_of_drafts_kept,
          Bug::draws_of_drafts_alike, Bug::orders_before_drafts_lost, Bug::drafting_writes_back,
          Bug::drafting_moves_state, Bug::branch_in_siblings_page, Bug::losers_ring_taken}) {
      CAPTURE(name_of(bug));
      for (const bool checks_rules : {true, false}) {
        CAPTURE(checks_rules);
        CHECK(any_seed_fails(
            1500, [&](std::uint64_t seed) { run_draft_scenario(seed, bug, checks_rules); }));
      }
    }
  }
}

TEST_SUITE("sim/lanes") {
  TEST_CASE("prompts beside answers, at any pace, change no answer") {
    EngineCounts sum;
    const bool are_all = run_seeds(schedules(5000), [&](std::uint64_t seed) {
      const EngineCounts counts = run_lane_scenario(seed);
      sum.steps += counts.steps;
      sum.lane_steps += counts.lane_steps;
      sum.lane_failures += counts.lane_failures;
      sum.kept += counts.kept;
      sum.lane_done += counts.lane_done;
      sum.steps_beside += counts.steps_beside;
      sum.steps_ahead += counts.steps_ahead;
      sum.ahead_beside += counts.ahead_beside;
      sum.answers += counts.answers;
      sum.cancelled += counts.cancelled;
      sum.failed_steps += counts.failed_steps;
      sum.reused += counts.reused;
      sum.preempted_tokens += counts.preempted_tokens;
      sum.hits += counts.hits;
      sum.evicted += counts.evicted;
      sum.owner_changes += counts.owner_changes;
      sum.drafts += counts.drafts;
    });
    MESSAGE("steps " << sum.steps << ", of prompts " << sum.lane_steps << ", done in time "
                     << sum.lane_done << ", failed " << sum.lane_failures << ", beside them "
                     << sum.steps_beside << ", begun early " << sum.steps_ahead
                     << ", of those beside them " << sum.ahead_beside << ", answers " << sum.answers
                     << ", cancelled " << sum.cancelled << ", failed steps " << sum.failed_steps
                     << ", reused " << sum.reused << ", preempted tokens " << sum.preempted_tokens
                     << ", hits " << sum.hits << ", evicted " << sum.evicted << ", owner changes "
                     << sum.owner_changes << ", drafts accepted " << sum.drafts.accepted);
    if (!are_all) return;
    CHECK(sum.lane_steps > 20'000);
    CHECK(sum.lane_done > 3'000);
    CHECK(sum.steps_beside > 10'000);
    CHECK(sum.lane_failures > 300);
    CHECK(sum.failed_steps - sum.lane_failures > 300);
    CHECK(sum.kept > 300);
    CHECK(sum.ahead_beside > 1'000);
    CHECK(sum.preempted_tokens > 10'000);
    CHECK(sum.cancelled > 500);
    CHECK(sum.hits > 1'000);
    CHECK(sum.evicted > 1'000);
    CHECK(sum.owner_changes > 1'000);
    CHECK(sum.drafts.accepted > 1'000);
  }

  TEST_CASE("planted bugs are found") {
    for (const LaneBug bug : {LaneBug::waited_early, LaneBug::orders_late, LaneBug::failure_spreads,
                              LaneBug::page_freed, LaneBug::page_moved, LaneBug::slot_early}) {
      CAPTURE(name_of(bug));
      CHECK(any_seed_fails(1500, [&](std::uint64_t seed) { run_lane_scenario(seed, bug); }));
    }
  }
}

TEST_SUITE("sim/workers") {
  TEST_CASE("workers that die, hang and speak late change no answer") {
    const testing::QuietLog quiet;
    EngineCounts sum;
    const bool are_all = run_seeds(schedules(3000), [&](std::uint64_t seed) {
      const EngineCounts counts = run_worker_scenario(seed);
      sum.lane_steps += counts.lane_steps;
      sum.steps_beside += counts.steps_beside;
      sum.died += counts.died;
      sum.hung += counts.hung;
      sum.lost += counts.lost;
      sum.late += counts.late;
      sum.replaced += counts.replaced - 1;
      sum.answers += counts.answers;
      sum.cancelled += counts.cancelled;
      sum.failed_steps += counts.failed_steps;
      sum.drafts += counts.drafts;
    });
    MESSAGE("steps of prompts " << sum.lane_steps << ", beside them " << sum.steps_beside
                                << ", workers died " << sum.died << ", hung " << sum.hung
                                << ", answers lost " << sum.lost << ", late " << sum.late
                                << ", replaced " << sum.replaced << ", answers " << sum.answers
                                << ", cancelled " << sum.cancelled << ", failed steps "
                                << sum.failed_steps << ", drafts accepted " << sum.drafts.accepted);
    if (!are_all) return;
    CHECK(sum.lane_steps > 10'000);
    CHECK(sum.steps_beside > 5'000);
    CHECK(sum.died > 1'000);
    CHECK(sum.hung > 500);
    CHECK(sum.lost > 500);
    CHECK(sum.late > 500);
    CHECK(sum.replaced > 2'000);
    CHECK(sum.failed_steps > 300);
    CHECK(sum.cancelled > 300);
  }

  TEST_CASE("planted bugs are found") {
    const testing::QuietLog quiet;
    for (const WorkerBug bug :
         {WorkerBug::stale_epoch, WorkerBug::outlives_end, WorkerBug::answered_lost}) {
      CAPTURE(name_of(bug));
      CHECK(any_seed_fails(1000, [&](std::uint64_t seed) { run_worker_scenario(seed, bug); }));
    }
  }
}

TEST_SUITE("sim/sides") {
  TEST_CASE("prompts in memory of their own change no answer") {
    EngineCounts sum;
    const bool are_all = run_seeds(schedules(4000), [&](std::uint64_t seed) {
      const EngineCounts counts = run_side_scenario(seed);
      sum.steps += counts.steps;
      sum.side_steps += counts.side_steps;
      sum.side_failures += counts.side_failures;
      sum.steps_beside_copies += counts.steps_beside_copies;
      sum.changes_beside_copies += counts.changes_beside_copies;
      sum.steps_ahead += counts.steps_ahead;
      sum.ahead_beside += counts.ahead_beside;
      sum.answers += counts.answers;
      sum.cancelled += counts.cancelled;
      sum.failed_steps += counts.failed_steps;
      sum.failed_copies += counts.failed_copies;
      sum.units += counts.units;
      sum.preemptions += counts.preemptions;
      sum.hits += counts.hits;
      sum.evicted += counts.evicted;
      sum.drafts += counts.drafts;
      sum.handovers.sequences += counts.handovers.sequences;
      sum.handovers.fetches += counts.handovers.fetches;
      sum.handovers.stayed += counts.handovers.stayed;
      sum.handovers.restarts += counts.handovers.restarts;
    });
    MESSAGE("steps " << sum.steps << ", of prompts " << sum.side_steps << ", of these failed "
                     << sum.side_failures << ", beside copies from there "
                     << sum.steps_beside_copies << ", with changes of owners "
                     << sum.changes_beside_copies << ", begun early " << sum.steps_ahead
                     << ", of those beside prompts " << sum.ahead_beside << ", answers "
                     << sum.answers << ", handed over " << sum.handovers.sequences << ", fetched "
                     << sum.handovers.fetches << ", prompts beside answers " << sum.handovers.stayed
                     << ", room given up " << sum.handovers.restarts << ", units copied "
                     << sum.units << ", failed copies " << sum.failed_copies << ", cancelled "
                     << sum.cancelled << ", failed steps " << sum.failed_steps << ", preemptions "
                     << sum.preemptions << ", hits " << sum.hits << ", evicted " << sum.evicted
                     << ", drafts accepted " << sum.drafts.accepted);
    if (!are_all) return;
    CHECK(sum.side_steps > 20'000);
    CHECK(sum.side_failures > 300);
    CHECK(sum.failed_steps - sum.side_failures > 300);
    CHECK(sum.failed_copies > 300);
    CHECK(sum.handovers.sequences > 10'000);
    CHECK(sum.handovers.fetches > 60);
    CHECK(sum.handovers.stayed > 80);
    CHECK(sum.handovers.restarts > 500);
    CHECK(sum.steps_beside_copies > 5'000);
    CHECK(sum.changes_beside_copies > 500);
    CHECK(sum.ahead_beside > 5'000);
    CHECK(sum.cancelled > 500);
    CHECK(sum.preemptions > 1'000);
    CHECK(sum.hits > 1'000);
    CHECK(sum.evicted > 1'000);
    CHECK(sum.drafts.accepted > 1'000);
  }

  TEST_CASE("planted bugs are found") {
    for (const LinkBug bug : {LinkBug::completed_early, LinkBug::slot_early, LinkBug::hit_as_sent,
                              LinkBug::sides_exchanged}) {
      CAPTURE(name_of(bug));
      CHECK(any_seed_fails(1500, [&](std::uint64_t seed) { run_side_scenario(seed, bug); }));
    }
  }
}

TEST_SUITE("sim/masks") {
  TEST_CASE("no token outside of its mask is given, on any way, and answers are the naive ones") {
    const testing::QuietLog quiet;
    EngineCounts sum;
    const bool are_all = run_seeds(schedules(2000), [&](std::uint64_t seed) {
      const EngineCounts counts = run_mask_scenario(seed);
      sum.answers += counts.answers;
      sum.whole += counts.whole;
      sum.drafts += counts.drafts;
      sum.branches_taken += counts.branches_taken;
      sum.steps_ahead += counts.steps_ahead;
      sum.lane_steps += counts.lane_steps;
      sum.side_steps += counts.side_steps;
      sum.preempted_tokens += counts.preempted_tokens;
      sum.reused += counts.reused;
    });
    MESSAGE("answers " << sum.answers << ", of them whole by a rule " << sum.whole
                       << ", drafts accepted " << sum.drafts.accepted << ", rejected "
                       << sum.drafts.rejected << ", branches taken " << sum.branches_taken
                       << ", begun early " << sum.steps_ahead << ", steps of a prompt lane "
                       << sum.lane_steps << ", of a side " << sum.side_steps
                       << ", preempted tokens " << sum.preempted_tokens << ", reused "
                       << sum.reused);
    if (!are_all) return;
    CHECK(sum.whole > 1'000);
    CHECK(sum.drafts.accepted > 1'000);
    CHECK(sum.branches_taken > 50);
    CHECK(sum.lane_steps > 1'000);
    CHECK(sum.side_steps > 1'000);
    CHECK(sum.preempted_tokens > 1'000);
    CHECK(sum.reused > 1'000);
  }

  TEST_CASE("planted bugs are found") {
    const testing::QuietLog quiet;
    for (const Bug bug : {Bug::masks_ignored, Bug::masks_of_drafts_alike}) {
      CAPTURE(name_of(bug));
      CHECK(any_seed_fails(300, [&](std::uint64_t seed) { run_mask_scenario(seed, bug); }));
    }
  }
}

TEST_SUITE("sim/late") {
  TEST_CASE("asynchronous steps, at any pace, change no answer") {
    EngineCounts sum;
    const bool are_all = run_seeds(1500, [&](std::uint64_t seed) {
      const EngineCounts counts = run_late_scenario(seed);
      sum.steps += counts.steps;
      sum.steps_ahead += counts.steps_ahead;
      sum.dropped += counts.dropped;
      sum.refused += counts.refused;
      sum.overlapping += counts.overlapping;
      sum.answers += counts.answers;
      sum.cancelled += counts.cancelled;
      sum.failed_steps += counts.failed_steps;
      sum.sink_failures += counts.sink_failures;
      sum.reused += counts.reused;
      sum.preempted_tokens += counts.preempted_tokens;
      sum.hits += counts.hits;
    });
    MESSAGE("steps " << sum.steps << ", begun early " << sum.steps_ahead << ", of those "
                     << sum.overlapping << " while another ran, prepared in vain " << sum.dropped
                     << ", not prepared " << sum.refused << ", answers " << sum.answers
                     << ", cancelled " << sum.cancelled << ", failed steps " << sum.failed_steps
                     << ", failed sinks " << sum.sink_failures << ", reused " << sum.reused
                     << ", preempted tokens " << sum.preempted_tokens << ", hits " << sum.hits);
    if (!are_all) return;
    CHECK(sum.steps_ahead > 10'000);
    CHECK(sum.overlapping > 5'000);
    CHECK(sum.steps_ahead - sum.overlapping > 500);
    CHECK(sum.dropped > 300);
    CHECK(sum.refused > 300);
    CHECK(sum.cancelled > 300);
    CHECK(sum.failed_steps > 500);
    CHECK(sum.sink_failures > 100);
    CHECK(sum.reused > 10'000);
    CHECK(sum.hits > 1'000);
  }

  TEST_CASE("planted bugs are found") {
    for (const LateBug bug : {LateBug::delivered_twice, LateBug::token_lost, LateBug::overtaken,
                              LateBug::rows_exchanged, LateBug::runs_unasked, LateBug::step_lost,
                              LateBug::extra_token_kept}) {
      CAPTURE(name_of(bug));
      CHECK(any_seed_fails(300, [&](std::uint64_t seed) { run_late_scenario(seed, bug); }));
    }
  }
}

}  // namespace hyb::sim::engine_sim
