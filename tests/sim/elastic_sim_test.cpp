#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/memory/tier/snapshot_tier.h"
#include "tests/sim/late_runner.h"
#include "tests/sim/layered_runner.h"
#include "tests/sim/listener.h"
#include "tests/sim/random.h"
#include "tests/sim/side_runner.h"

namespace hyb::sim::elastic_sim {

/// Where prompts run.
enum class Prompts : std::uint8_t { with_answers, in_lane, in_own_memory };

struct ElasticCounts {
  std::int64_t schedules = 0, steps = 0, lane_steps = 0, answers = 0, requests = 0;
  // Schedules in which it happened.
  std::int64_t hits = 0, evictions = 0, owner_changes = 0, preemptions = 0, deferrals = 0,
               prefix_waits = 0, spills = 0, fetches = 0, tier_waits = 0, dropped_fetches = 0,
               merges = 0, failed_steps = 0, failed_reads = 0, failed_disks = 0, cancelled = 0,
               packed = 0, moved = 0, uncommitted = 0, shrunk = 0, short_of_memory = 0, chained = 0,
               copies = 0, refused_copies = 0, lost_copies = 0, staged_writes = 0,
               refused_writes = 0, steps_beside_writes = 0;
  std::int64_t handovers = 0, handed_over = 0, fetched = 0, stayed = 0, restarts = 0,
               failed_copies = 0, prompts_moved = 0, ahead_beside_prompts = 0, windows = 0,
               without_slots = 0;
  /// Steps of prompts while pages of theirs were copied, and such with changes of owners.
  std::int64_t steps_beside_copies = 0, changes_beside_copies = 0;
};

/// A random life of the real engine, scheduler, prefix tree, pool and disk tier over a model with
/// all kinds of layer memory: requests that begin like earlier ones, several choices, cancels,
/// pools that are dry, steps and disks that fail at any call, a device with less memory than the
/// pools were promised. Every answer is compared with what the naive model says alone, and at the
/// end every byte is back. Throws Violation at the first fault.
ElasticCounts run_elastic_scenario(std::uint64_t seed, Fault fault = Fault::none,
                                   bool checks_rules = true,
                                   Prompts prompts = Prompts::with_answers);

/// The same with memory of its own for prompts, cut in another way, and without tiers; half of the
/// time steps of answers are asynchronous, too.
ElasticCounts run_own_memory_scenario(std::uint64_t seed, LinkBug bug = LinkBug::none);

namespace {

using Tokens = std::vector<TokenId>;

/// Bytes by offset; fails at the call that was chosen, and from then on.
class FailingDisk final : public Storage {
 public:
  FailingDisk(std::int32_t calls, std::int64_t& failures) : calls_(calls), failures_(&failures) {}

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    count();
    const auto end = static_cast<std::size_t>(offset) + bytes.size();
    if (bytes_.size() < end) bytes_.resize(end);
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void read(std::uint64_t offset, std::span<std::byte> bytes) override {
    count();
    if (offset + bytes.size() > bytes_.size()) throw Violation("read what was never written");
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
  }

 private:
  void count() const {
    if (--calls_ >= 0) return;
    ++*failures_;
    throw Error(ErrorKind::runtime, "disk: fails, as planned");
  }

  mutable std::int32_t calls_;
  std::int64_t* failures_;
  std::vector<std::byte> bytes_;
};

/// Writes what is in the buffer one call later, when other bytes are in it.
class LateDisk final : public Storage {
 public:
  explicit LateDisk(std::unique_ptr<Storage> disk) : disk_(std::move(disk)) {}

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (late_) disk_->write(*late_, bytes.first(std::min(bytes.size(), size_)));
    disk_->write(offset, bytes);
    late_ = offset;
    size_ = bytes.size();
  }
  void read(std::uint64_t offset, std::span<std::byte> bytes) override {
    disk_->read(offset, bytes);
  }

 private:
  std::unique_ptr<Storage> disk_;
  std::optional<std::uint64_t> late_;
  std::size_t size_ = 0;
};

/// The runner of a prefill lane on the bytes of another one: each span of a step is run at some
/// moment between launch() and the end of wait(), or fails then.
class Lane final : public Runner {
 public:
  Lane(LayeredRunner& runner, std::uint64_t seed) : runner_(&runner), random_(seed) {}

  Capacity capacity() const override { return runner_->capacity(); }
  bool is_async() const override { return true; }
  StepResult run(const Step& step) override {
    launch(step);
    return wait();
  }
  void launch(const Step& step) override {
    if (step_ || !step.orders.empty()) throw Violation("one step without orders at a time");
    step_.emplace(step);
    done_ = 0;
    failure_ = nullptr;
    result_ = {};
    ++launched;
  }
  bool is_done() override {
    if (done_ < spans() && random_.chance(50)) do_span();
    return done_ == spans();
  }
  StepResult wait() override {
    while (done_ < spans()) do_span();
    step_.reset();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return std::exchange(result_, {});
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override { refuse(); }
  void write(ViewId, std::int32_t, std::span<const std::byte>) override { refuse(); }

  std::int64_t launched = 0;

 private:
  std::size_t spans() const { return step_.value().step.spans.size(); }
  [[noreturn]] static void refuse() { throw Violation("the other lane's runner has the units"); }
  void do_span() {
    const Step& step = step_->step;
    const Step piece = {.orders = {}, .spans = {step.spans[done_++]}};
    if (failure_ != nullptr) return;
    try {
      const StepResult result = runner_->run(piece);
      result_.sampled.insert(result_.sampled.end(), result.sampled.begin(), result.sampled.end());
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  LayeredRunner* runner_;
  Random random_;
  std::optional<LateRunner::Kept> step_;
  std::size_t done_ = 0;
  std::exception_ptr failure_;
  StepResult result_;
};

/// Memory of its own for prompts, and the link to that of answers.
struct OwnMemory {
  OwnMemory(std::uint64_t seed, const Capacity& capacity, const LayeredModel& model, Fault fault,
            bool checks_rules, LinkBug bug, LayeredRunner& answers_)
      : runner(cut_again(seed, capacity), model, fault, checks_rules),
        lane(runner, ~seed),
        link(~seed + 1, bug, runner.capacity().memory, capacity.memory,
             [this](UnitLink::Direction direction, const UnitMove& move) {
               const bool is_to_answers = direction == UnitLink::Direction::to_answers;
               is_to_answers ? copy(runner, *answers, move) : copy(*answers, runner, move);
             }),
        late(answers_, ~seed + 2, LateBug::none),
        answers(&answers_) {
    using Side = SimLink::Side;
    runner.on_step = [this](const Step& step) { link.check_beside(Side::prompts, step); };
    answers->on_step = [this](const Step& step) { link.check_beside(Side::answers, step); };
    late.is_beside = [this] { return lane.is_under_way(); };
  }

  static Capacity cut_again(std::uint64_t seed, Capacity capacity) {
    Random random(~seed + 3);
    cut(random, capacity.memory);
    if (random.chance(50)) {
      const auto groups = static_cast<std::int32_t>(capacity.memory.groups.size());
      capacity.memory.superblocks = std::min(capacity.memory.superblocks, groups + 3);
    }
    return capacity;
  }

  static void copy(LayeredRunner& from, LayeredRunner& to, const UnitMove& move) {
    std::vector<std::byte> bytes(from.capacity().memory.unit_bytes(move.view));
    from.read(move.view, move.from, bytes);
    to.write(move.view, move.to, bytes);
  }

  LayeredRunner runner;
  SideRunner lane;
  SimLink link;
  LateRunner late;  ///< of answers
  LayeredRunner* answers;
};

class Scenario : private Listener {
 public:
  Scenario(std::uint64_t seed, Fault fault, bool checks_rules, Prompts prompts,
           LinkBug bug = LinkBug::none)
      : random_(seed),
        model_(random_),
        capacity_{.memory = random_layout(random_, model_),
                  .step_tokens = random_.between(8, 30),
                  .sequences_max = random_.between(2, 8),
                  .vocab = model_.vocab(),
                  .step_spans = random_.between(2, 12)},
        fault_(fault),
        runner_(capacity_, model_, fault, checks_rules),
        lane_(runner_, ~seed),
        own_(prompts == Prompts::in_own_memory
                 ? std::make_unique<OwnMemory>(seed, capacity_, model_, fault, checks_rules, bug,
                                               runner_)
                 : nullptr),
        engine_(own_ && seed % 2 != 0 ? static_cast<Runner&>(own_->late) : runner_, nullptr,
                with_prompts(make_options(), prompts)) {
    if (random_.chance(30)) steps_to_fail_ = random_.between(1, 120);
    fails_for_memory_ = random_.chance(50);
    runner_.fails = [this] { return fails_now(); };
    if (random_.chance(30))
      runner_.read_fails = [this] { return random_.chance(3) && ++failed_reads_ > 0; };
    is_scarce_ = random_.chance(30);
    if (is_scarce_) runner_.start_without_memory();
    runner_.has_memory = [this] { return runner_.superblocks_backed() < device_superblocks_; };
    if (own_) {
      set_up_own_memory();
    } else if (random_.chance(60)) {
      add_tier();
    }
  }

  ElasticCounts run() {
    const std::int32_t planned = random_.between(4, own_ ? 14 : 9);
    while (requests_.size() < static_cast<std::size_t>(planned) || !engine_.idle()) {
      if (++steps_ > 4000) throw Violation("the engine does not come to an end");
      const bool more = requests_.size() < static_cast<std::size_t>(planned);
      if (more && (engine_.idle() || random_.chance(own_ ? 30 : 15))) submit();
      if (random_.chance(1) && !requests_.empty()) cancel(any_request());
      if (is_scarce_ && random_.chance(4)) {
        device_superblocks_ = random_.between(0, superblocks());
      }
      if (own_) own_->link.go_on();
      if (engine_.tier()) engine_.tier()->run_transfers(disk_pace());
      if (engine_.tier() && engine_.tier()->pending() > 0 && random_.chance(40)) {
        cancel(std::prev(requests_.end())->first);
      }
      step();
      if (random_.chance(5)) engine_.audit();
    }
    for (const auto& [id, request] : requests_) {
      for (std::int32_t choice = 0; choice < request.choices; ++choice) compare(id, choice);
    }
    runner_.read_fails = [] { return false; };
    if (engine_.tier()) end_tier();
    if (own_) end_own_memory();
    const EngineUsage usage = engine_.usage();
    if (usage.pool.total() != capacity_.memory.bytes()) throw Violation("bytes are missing");
    while (engine_.prefixes().evict()) {
    }
    engine_.audit();
    if (!engine_.pool().all_free()) throw Violation("not every byte is back");
    return counts(usage);
  }

 private:
  EngineOptions with_prompts(EngineOptions options, Prompts prompts) {
    if (prompts == Prompts::in_lane) options.prefill_lane = &lane_;
    if (own_ == nullptr) return options;
    options.prefill_lane = &own_->lane;
    options.link = &own_->link;
    if (random_.chance(60)) options.chunk_tokens = random_.between(1, 4);  // many steps of a prompt
    static constexpr double speeds[] = {1e2, 1e5, 1e9};
    options.link_bytes_per_second = speeds[options.length_max % 3];
    return options;
  }

  void set_up_own_memory() {
    own_->runner.fails = runner_.fails;
    own_->runner.has_memory = [this] {
      return own_->runner.superblocks_backed() < device_superblocks_;
    };
    if (is_scarce_) own_->runner.start_without_memory();
    if (random_.chance(30)) own_->link.fails = [this] { return random_.chance(3); };
  }

  void end_own_memory() {
    guarded([&] { engine_.pool(); });  // a step may be running that no sequence needs any more
    own_->link.check();
    own_->late.check();
    if (engine_.usage().prompt_pool.total() != own_->runner.capacity().memory.bytes()) {
      throw Violation("bytes of prompts are missing");
    }
    while (engine_.prompt_prefixes()->evict()) {
    }
  }

  /// Of the memory that has more.
  std::int32_t superblocks() const {
    const std::int32_t answers = capacity_.memory.superblocks;
    return own_ ? std::max(answers, own_->runner.capacity().memory.superblocks) : answers;
  }

  EngineOptions make_options() {
    EngineOptions options{.length_max = random_.between(20, 60),
                          .sequences_max = random_.between(1, 8),
                          .chunk_tokens = random_.between(1, 16)};
    options.prefixes.enabled = random_.chance(95);
    if (model_.is_recurrent() && random_.chance(30)) options.prefixes.precision = Precision::int8;
    if (random_.chance(30)) options.prefixes.eviction = EvictionRule::lru;
    options.prefixes.branch_tokens_min = random_.between(1, 6);
    options.shared_tokens_min = random_.between(1, 12);
    options.states_ahead = options.length_max % 4;
    return options;
  }

  void add_tier() {
    const std::int32_t calls = random_.chance(45) ? random_.between(0, 120) : 1 << 30;
    std::unique_ptr<Storage> disk = std::make_unique<FailingDisk>(calls, disk_failures_);
    if (fault_ == Fault::buffer_reused_too_early)
      disk = std::make_unique<LateDisk>(std::move(disk));
    disk_is_slow_ = random_.chance(60);
    runner_.copies.reads_late = fault_ == Fault::unit_copied_too_late;
    if (random_.chance(50)) runner_.copies.room = random_.between(1, 40);
    const bool loses_copies = random_.chance(30);
    runner_.copies.fails = [this, loses_copies] { return loses_copies && random_.chance(10); };
    if (random_.chance(60)) runner_.writes.room = random_.between(1, 12);
    runner_.writes.ends = [this] { return random_.chance(40); };
    runner_.writes.ends_too_early = fault_ == Fault::unit_used_too_early;
    engine_.add_tier(
        "disk tier", std::move(disk),
        TierOptions{.limits = {.budget_bytes = random_.chance(50) ? 200'000U : 1U << 30,
                               .bytes_per_second = 1e30},
                    .staging_bytes = static_cast<std::size_t>(random_.between(0, 4000)),
                    .worker = TransferWorker::caller,
                    .may_wait = random_.chance(50)});
  }

  /// Transfers that the disk carries out before the next step.
  std::size_t disk_pace() {
    if (!disk_is_slow_) return 1000;
    return random_.chance(60) ? 0 : static_cast<std::size_t>(random_.between(1, 4));
  }

  void end_tier() {
    SnapshotTier& tier = *engine_.tier();
    tier.drain();
    tier.audit();
    const TierStats stats = tier.stats();
    if (runner_.copies.under_way > 0) throw Violation("a copy has no end");
    if (runner_.writes.under_way > 0) throw Violation("a copy to the pool has no end");
    if (stats.damaged > 0) throw Violation("the disk gives back what it was given");
    if (stats.fetched == 0 && was_reused_from_disk_)
      throw Violation("from a disk, but nothing was");
  }

  Tokens make_prompt() {
    Tokens prompt;
    const bool is_short = own_ && random_.chance(30);  // beside long ones
    if (!is_short && !seen_.empty() && random_.chance(75)) {
      prompt = seen_[random_.below(seen_.size())];
      if (random_.chance(50)) prompt.resize(random_.below(prompt.size()) + 1);
    }
    const auto room = static_cast<std::size_t>(engine_.length_max() - 1);
    prompt.resize(std::min(prompt.size(), room));
    const std::int32_t most = is_short ? 4 : 20;
    for (int i = random_.between(prompt.empty() ? 1 : 0, most); i > 0 && prompt.size() < room;
         --i) {
      prompt.push_back(TokenId{random_.between(0, model_.vocab() - 1)});
    }
    return prompt;
  }

  void submit() {
    Request request;
    request.prompt = make_prompt();
    request.max_tokens = random_.between(1, 16);
    request.choices = random_.chance(80) ? 1 : random_.between(2, 4);
    request.sampling.temperature = random_.chance(50) ? 0.0F : 1.0F;
    request.sampling.seed = random_.bits();
    if (random_.chance(30)) {
      request.message_ends = {random_.between(1, static_cast<std::int32_t>(request.prompt.size()))};
    }
    try {
      const RequestId id = engine_.submit(request, *this);
      requests_.emplace(id, request);
      seen_.push_back(request.prompt);
    } catch (const Error& error) {
      // More than all memory would hold: refused at once.
      if (error.kind() != ErrorKind::memory) throw;
      Request refused;
      refused.choices = 0;
      const auto number = static_cast<std::int64_t>(requests_.size());
      requests_.emplace(RequestId{-1 - number}, refused);
    }
  }

  RequestId any_request() {
    return std::next(requests_.begin(),
                     static_cast<std::ptrdiff_t>(random_.below(requests_.size())))
        ->first;
  }

  void cancel(RequestId id) {
    cancelled_.insert(id);
    try {
      engine_.cancel(id);
    } catch (const StepFailure&) {  // what it leaves could not be read
    }
  }

  void step() {
    const std::int64_t steps = runner_.steps;
    guarded([&] {
      if (!engine_.step() && !engine_.idle()) throw Violation("nothing to do, and yet not idle");
    });
    if (runner_.writes.under_way > 0 && runner_.steps > steps) ++steps_beside_writes_;
  }

  template <typename Action>
  void guarded(Action&& action) {
    try {
      action();
    } catch (const StepFailure&) {
      ++failed_steps_;
      if (random_.chance(50)) steps_to_fail_ = random_.between(1, 60);
    } catch (const Error& error) {
      const bool is_short = failed_for_memory_ > 0 || superblocks_uncommitted() > 0;
      if (error.kind() != ErrorKind::memory || !is_short) throw;
      ++short_of_memory_;
      device_superblocks_ = superblocks();
      // What was given back for good may be what one of them cannot do without.
      for (const auto& [id, request] : requests_) {
        if (failed_for_memory_ > 0) cancel(id);
      }
    }
    if (superblocks_uncommitted() > 0) ++uncommitted_;
  }

  /// Without an end of what is under way.
  std::int32_t superblocks_uncommitted() const {
    const EngineUsage usage = engine_.usage();
    return usage.pool.superblocks_uncommitted + usage.prompt_pool.superblocks_uncommitted;
  }

  /// Called at every call of the runner that may fail.
  bool fails_now() {
    if (--steps_to_fail_ != 0) return false;
    if (!fails_for_memory_) return true;
    ++failed_for_memory_;
    steps_to_fail_ = random_.between(1, 120);
    throw Error(ErrorKind::memory, "device: too little, as planned");
  }

  void after_event(RequestId request) override {
    const auto found = requests_.find(request);
    const Heard* heard = find(request, 0);
    if (found == requests_.end() || heard == nullptr || !heard->completion) return;
    Tokens whole = found->second.prompt;
    whole.insert(whole.end(), heard->completion->tokens.begin(), heard->completion->tokens.end());
    if (seen_.size() > 8) seen_.erase(seen_.begin());
    seen_.push_back(std::move(whole));
  }

  void compare(RequestId id, std::int32_t choice) {
    const Request& request = requests_.at(id);
    const Heard* heard = find(id, choice);
    if (heard == nullptr || !heard->completion) throw Violation("a choice was never ended");
    const Completion& got = *heard->completion;
    ++answers_;
    const bool was_cancelled = got.reason == FinishReason::cancelled;
    if (was_cancelled && !cancelled_.contains(id)) throw Violation("cancelled without a cancel()");
    const auto room = length_max_ - static_cast<std::int32_t>(request.prompt.size());
    const auto most = static_cast<std::size_t>(std::min(request.max_tokens, room));
    // Memory that went back to the device may have made it shorter.
    const bool was_cut = engine_.length_max() < length_max_ && got.tokens.size() < most;
    if (!was_cancelled && !was_cut && got.tokens.size() != most) {
      throw Violation("an answer of another length");
    }
    SamplingParams sampling = request.sampling;
    sampling.seed += static_cast<std::uint64_t>(choice);
    NaiveLayered naive(model_);
    for (const TokenId token : request.prompt) naive.push(token);
    for (std::size_t i = 0; i < got.tokens.size(); ++i) {
      const SampledToken expected = model_.draw(naive.output(), sampling, i);
      if (got.tokens[i] != expected.token) throw Violation("other tokens than the naive model's");
      naive.push(expected.token);
    }
    const Usage& usage = got.usage;
    if (usage.reused_from == SnapshotSource::disk) was_reused_from_disk_ = true;
    if (usage.reused_from.has_value() != (usage.reused_tokens > 0)) {
      throw Violation("what is reused comes from somewhere");
    }
    const std::int32_t known = usage.reused_tokens + usage.prefilled_tokens;
    if (!got.tokens.empty() && known != static_cast<std::int32_t>(request.prompt.size())) {
      throw Violation("reused and prefilled tokens are not the prompt");
    }
  }

  ElasticCounts counts(const EngineUsage& usage) {
    const auto any = [](std::int64_t count) { return std::int64_t{count > 0}; };
    const TierStats tier = engine_.tier() ? engine_.tier()->stats() : TierStats{};
    ElasticCounts counts = {.schedules = 1,
                            .steps = usage.steps,
                            .lane_steps = usage.prefill_steps,
                            .answers = answers_,
                            .requests = static_cast<std::int64_t>(requests_.size()),
                            .hits = any(usage.prefixes.hits),
                            .evictions = any(usage.prefixes.evicted),
                            .owner_changes = any(usage.pool.owner_changes),
                            .preemptions = any(usage.preemptions),
                            .deferrals = any(usage.deferrals),
                            .prefix_waits = any(usage.prefix_waits),
                            .spills = any(tier.spilled),
                            .fetches = any(tier.fetched),
                            .tier_waits = any(usage.tier_waits),
                            .dropped_fetches = any(tier.dropped),
                            .merges = any(usage.prefixes.pages_merged),
                            .failed_steps = any(failed_steps_),
                            .failed_reads = any(failed_reads_),
                            .failed_disks = any(disk_failures_),
                            .cancelled = any(static_cast<std::int64_t>(cancelled_.size())),
                            .packed = any(runner_.packed),
                            .moved = any(engine_compacted()),
                            .uncommitted = any(uncommitted_),
                            .shrunk = any(failed_for_memory_),
                            .short_of_memory = any(short_of_memory_),
                            .chained = any(runner_.chained_spans),
                            .copies = any(runner_.copies.started),
                            .refused_copies = any(runner_.copies.refused),
                            .lost_copies = any(runner_.copies.lost),
                            .staged_writes = any(runner_.writes.started),
                            .refused_writes = any(runner_.writes.refused),
                            .steps_beside_writes = any(steps_beside_writes_)};
    if (own_) add_own_memory(counts, usage);
    return counts;
  }

  void add_own_memory(ElasticCounts& counts, const EngineUsage& usage) const {
    const auto any = [](std::int64_t count) { return std::int64_t{count > 0}; };
    counts.handed_over = usage.handovers.sequences;
    counts.handovers = any(usage.handovers.sequences);
    counts.fetched = any(usage.handovers.fetches);
    counts.stayed = any(usage.handovers.stayed);
    counts.restarts = any(usage.handovers.restarts);
    counts.failed_copies = any(own_->link.failed);
    counts.prompts_moved = any(usage.prompt_pool.compacted_units);
    counts.ahead_beside_prompts = any(own_->late.beside);
    counts.windows = any(std::ranges::count_if(
        model_.layers(), [](const LayerSpec& layer) { return layer.kind == LayerKind::window; }));
    counts.without_slots = any(model_.is_recurrent() ? 0 : 1);
    counts.steps_beside_copies = own_->link.steps_beside;
    counts.changes_beside_copies = own_->link.changes_beside;
  }

  std::int64_t engine_compacted() { return engine_.pool().usage().compacted_units; }

  Random random_;
  LayeredModel model_;
  Capacity capacity_;
  Fault fault_;
  LayeredRunner runner_;
  Lane lane_;
  std::unique_ptr<OwnMemory> own_;  ///< null: one memory
  Engine engine_;
  std::int32_t length_max_ = engine_.length_max();  ///< at first
  std::int64_t disk_failures_ = 0, failed_steps_ = 0, failed_reads_ = 0, answers_ = 0, steps_ = 0;
  std::int64_t failed_for_memory_ = 0, short_of_memory_ = 0, uncommitted_ = 0;
  std::int64_t steps_beside_writes_ = 0;
  std::int64_t device_superblocks_ = 1 << 30;  ///< that it has memory for
  bool fails_for_memory_ = false, is_scarce_ = false;
  std::int32_t steps_to_fail_ = 0;
  bool disk_is_slow_ = false, was_reused_from_disk_ = false;
  std::map<RequestId, Request> requests_;
  std::set<RequestId> cancelled_;
  std::vector<Tokens> seen_;
};

}  // namespace

ElasticCounts run_elastic_scenario(std::uint64_t seed, Fault fault, bool checks_rules,
                                   Prompts prompts) {
  return Scenario(seed, fault, checks_rules, prompts).run();
}

ElasticCounts run_own_memory_scenario(std::uint64_t seed, LinkBug bug) {
  // Nothing is drafted, so this is no fault: a slot holds the state at its span's end alone.
  return Scenario(seed, Fault::rejected_token_kept, true, Prompts::in_own_memory, bug).run();
}

using namespace hyb;
using namespace hyb::sim;

namespace {

/// Disks fail by the thousand here, and each is worth a warning.
struct Quiet {
  Quiet() { log::set_level(log::Level::error); }
  ~Quiet() { log::set_level(log::Level::info); }
};

void add(ElasticCounts& sum, const ElasticCounts& one) {
  sum.schedules += one.schedules;
  sum.steps += one.steps;
  sum.lane_steps += one.lane_steps;
  sum.answers += one.answers;
  sum.requests += one.requests;
  sum.hits += one.hits;
  sum.evictions += one.evictions;
  sum.owner_changes += one.owner_changes;
  sum.preemptions += one.preemptions;
  sum.deferrals += one.deferrals;
  sum.prefix_waits += one.prefix_waits;
  sum.spills += one.spills;
  sum.fetches += one.fetches;
  sum.tier_waits += one.tier_waits;
  sum.dropped_fetches += one.dropped_fetches;
  sum.merges += one.merges;
  sum.failed_steps += one.failed_steps;
  sum.failed_reads += one.failed_reads;
  sum.failed_disks += one.failed_disks;
  sum.cancelled += one.cancelled;
  sum.packed += one.packed;
  sum.moved += one.moved;
  sum.uncommitted += one.uncommitted;
  sum.shrunk += one.shrunk;
  sum.short_of_memory += one.short_of_memory;
  sum.chained += one.chained;
  sum.copies += one.copies;
  sum.refused_copies += one.refused_copies;
  sum.lost_copies += one.lost_copies;
  sum.staged_writes += one.staged_writes;
  sum.refused_writes += one.refused_writes;
  sum.steps_beside_writes += one.steps_beside_writes;
  sum.handovers += one.handovers;
  sum.handed_over += one.handed_over;
  sum.fetched += one.fetched;
  sum.stayed += one.stayed;
  sum.restarts += one.restarts;
  sum.failed_copies += one.failed_copies;
  sum.prompts_moved += one.prompts_moved;
  sum.ahead_beside_prompts += one.ahead_beside_prompts;
  sum.windows += one.windows;
  sum.without_slots += one.without_slots;
  sum.steps_beside_copies += one.steps_beside_copies;
  sum.changes_beside_copies += one.changes_beside_copies;
}

bool is_found(Fault fault, bool checks_rules) {
  return any_seed_fails(
      500, [&](std::uint64_t seed) { run_elastic_scenario(seed, fault, checks_rules); });
}

}  // namespace

TEST_SUITE("sim/elastic") {
  TEST_CASE("every answer is the one that the request would get alone, whatever the memory does") {
    const Quiet quiet;
    ElasticCounts sum;
    const bool are_all = run_seeds(
        schedules(100'000), [&](std::uint64_t seed) { add(sum, run_elastic_scenario(seed)); });
    MESSAGE(
        "schedules " << sum.schedules << ", steps " << sum.steps << ", requests " << sum.requests
                     << ", answers " << sum.answers << "; schedules with hits " << sum.hits
                     << ", evictions " << sum.evictions << ", owner changes " << sum.owner_changes
                     << ", preemptions " << sum.preemptions << ", deferrals " << sum.deferrals
                     << ", waits for a prefix " << sum.prefix_waits << ", spills " << sum.spills
                     << ", fetches " << sum.fetches << ", waits for the tier " << sum.tier_waits
                     << ", dropped fetches " << sum.dropped_fetches << ", merged pages "
                     << sum.merges << ", failed steps " << sum.failed_steps << ", failed reads "
                     << sum.failed_reads << ", failed disks " << sum.failed_disks << ", cancelled "
                     << sum.cancelled << ", packed " << sum.packed << ", moved " << sum.moved
                     << ", superblocks uncommitted " << sum.uncommitted << ", given back "
                     << sum.shrunk << ", short of memory " << sum.short_of_memory
                     << ", chunks in pieces " << sum.chained << ", copies beside steps "
                     << sum.copies << ", refused " << sum.refused_copies << ", lost "
                     << sum.lost_copies << ", writes beside steps " << sum.staged_writes
                     << ", refused " << sum.refused_writes << ", with steps beside them "
                     << sum.steps_beside_writes);
    if (!are_all) return;
    const std::int64_t few = sum.schedules / 20;
    for (const std::int64_t count :
         {sum.hits, sum.evictions, sum.owner_changes, sum.preemptions, sum.deferrals,
          sum.prefix_waits, sum.spills, sum.fetches, sum.tier_waits, sum.failed_steps,
          sum.failed_reads, sum.failed_disks, sum.cancelled, sum.packed, sum.uncommitted,
          sum.shrunk, sum.chained, sum.copies, sum.refused_copies}) {
      CHECK(count > few);
    }
    CHECK(sum.short_of_memory > sum.schedules / 100);
    for (const std::int64_t count :
         {sum.lost_copies, sum.staged_writes, sum.refused_writes, sum.steps_beside_writes}) {
      CHECK(count > sum.schedules / 100);
    }
  }

  TEST_CASE("the same with a lane for prompts, beside tiers and all that fails") {
    const Quiet quiet;
    ElasticCounts sum;
    const bool are_all = run_seeds(schedules(20'000), [&](std::uint64_t seed) {
      add(sum, run_elastic_scenario(seed, Fault::none, true, Prompts::in_lane));
    });
    MESSAGE("schedules " << sum.schedules << ", steps " << sum.steps << ", of prompts "
                         << sum.lane_steps << "; schedules with hits " << sum.hits
                         << ", preemptions " << sum.preemptions << ", spills " << sum.spills
                         << ", fetches " << sum.fetches << ", waits for the tier " << sum.tier_waits
                         << ", failed steps " << sum.failed_steps);
    if (!are_all) return;
    const std::int64_t few = sum.schedules / 20;
    for (const std::int64_t count :
         {sum.lane_steps, sum.hits, sum.evictions, sum.owner_changes, sum.preemptions, sum.spills,
          sum.fetches, sum.tier_waits, sum.failed_steps, sum.failed_reads, sum.failed_disks,
          sum.cancelled, sum.packed, sum.uncommitted, sum.copies}) {
      CHECK(count > few);
    }
  }

  TEST_CASE("a sequence is never shorter than the state in its slot") {
    const Quiet quiet;
    // Nothing is drafted here, so this is no fault: a slot holds the state at its span's end alone,
    // as a real one does.
    run_seeds(5'000,
              [](std::uint64_t seed) { run_elastic_scenario(seed, Fault::rejected_token_kept); });
  }

  TEST_CASE("planted faults are found, by the rules and by the answers alone") {
    const Quiet quiet;
    for (const Fault fault :
         {Fault::partial_page_shared, Fault::slot_not_cleared, Fault::wrong_chunk_published,
          Fault::conv_window_cut_short, Fault::written_after_publishing,
          Fault::owner_changed_too_early, Fault::copies_of_one_group_lost,
          Fault::packed_without_pages, Fault::piece_starts_anew, Fault::unit_copied_too_late,
          Fault::unit_used_too_early}) {
      CAPTURE(name_of(fault));
      CHECK(is_found(fault, true));
      CHECK(is_found(fault, false));
    }
    // Checksums keep its bytes out of every answer.
    CHECK(is_found(Fault::buffer_reused_too_early, true));
  }
}

TEST_SUITE("sim/sides") {
  TEST_CASE("the same with memory of its own for prompts, for all kinds of layer memory") {
    const Quiet quiet;
    ElasticCounts sum;
    const bool are_all = run_seeds(
        schedules(4'000), [&](std::uint64_t seed) { add(sum, run_own_memory_scenario(seed)); });
    MESSAGE("schedules " << sum.schedules << ", steps " << sum.steps << ", of prompts "
                         << sum.lane_steps << ", beside copies from there "
                         << sum.steps_beside_copies << ", with changes of owners "
                         << sum.changes_beside_copies << ", handed over " << sum.handed_over
                         << "; schedules with windows " << sum.windows << ", without slots "
                         << sum.without_slots << ", hand-overs " << sum.handovers << ", fetches "
                         << sum.fetched << ", prompts beside answers " << sum.stayed
                         << ", room given up " << sum.restarts << ", failed copies "
                         << sum.failed_copies << ", compaction of prompts " << sum.prompts_moved
                         << ", of answers " << sum.moved << ", answers begun early beside prompts "
                         << sum.ahead_beside_prompts << ", preemptions " << sum.preemptions
                         << ", failed steps " << sum.failed_steps << ", cancelled " << sum.cancelled
                         << ", packed " << sum.packed << ", hits " << sum.hits
                         << ", superblocks uncommitted " << sum.uncommitted << ", given back "
                         << sum.shrunk << ", short of memory " << sum.short_of_memory);
    if (!are_all) return;
    const std::int64_t few = sum.schedules / 20;
    for (const std::int64_t count :
         {sum.windows, sum.without_slots, sum.handovers, sum.prompts_moved, sum.moved,
          sum.ahead_beside_prompts, sum.preemptions, sum.failed_steps, sum.cancelled, sum.packed,
          sum.hits, sum.uncommitted, sum.shrunk, sum.restarts, sum.failed_copies,
          sum.changes_beside_copies}) {
      CHECK(count > few);
    }
    CHECK(sum.fetched > sum.schedules / 100);
    CHECK(sum.stayed > sum.schedules / 100);
  }

  TEST_CASE("planted bugs are found, for all kinds of layer memory") {
    const Quiet quiet;
    for (const LinkBug bug : {LinkBug::completed_early, LinkBug::slot_early, LinkBug::hit_as_sent,
                              LinkBug::sides_exchanged, LinkBug::group_lost}) {
      CAPTURE(name_of(bug));
      CHECK(any_seed_fails(1000, [&](std::uint64_t seed) { run_own_memory_scenario(seed, bug); }));
    }
  }
}

}  // namespace hyb::sim::elastic_sim
