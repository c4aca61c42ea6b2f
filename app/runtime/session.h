#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/machine/environment.h"
#include "app/model/model_source.h"
#include "app/request/prompt.h"
#include "app/request/sampling_options.h"
#include "app/runtime/model_outline.h"
#include "app/runtime/run_settings.h"
#include "core/engine/engine.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"
#include "models/model.h"
#include "models/roofline.h"
#include "models/runner.h"

namespace CLI {
class App;
}

namespace hyb::app {

class DraftModel;
class PrefillLane;
class ProgressLine;
class TraceFile;

/// How many sequences and which step sizes a command wants.
struct SessionShape {
  std::int32_t sequences_max = 1;  ///< run at once
  /// Prompt tokens of one sequence in one step. 0: MemoryPlan's rule.
  std::int32_t chunk_tokens = 0;
  std::int32_t answer_tokens = 0;  ///< at most, of all requests; 0: not known
  bool expects_more = false;       ///< requests will follow others: memory is prepared for them
  /// What counts is when all is done, not how long an answer waits for a prompt.
  bool prefers_throughput = false;
  std::size_t host_tier_bytes = 0;   ///< all that a host tier may take, its pinned memory included
  std::int32_t drafts_room = 0;      ///< most of a sequence in a step
  TreeLimits tree = {};              ///< of these drafts
  ProgressLine* progress = nullptr;  ///< shows how much of the weights is loaded; outlives open()
};

/// How the budget was divided, in bytes.
struct MemoryPlan {
  std::size_t budget = 0;
  std::size_t weights = 0;
  std::size_t workspace = 0;  ///< of both lanes, where prompts have one of their own
  std::size_t library = 0;    ///< a card's cuBLASLt, where it is there
  std::size_t process = 0;    ///< code, texts and tables, on the CPU
  std::size_t pinned = 0;     ///< of the machine's memory, outside a card's budget
  /// For snapshots on their way to a host tier, of workspace and pinned, and back, of pinned.
  kernels::SideCopyRoom side_copies = {};
  models::ModelMemoryLayout pools{};
  kernels::SuperblockMapOptions mapping{};
  /// EngineOptions'. Unless the shape says otherwise, 512 tokens on the CPU and with activations of
  /// f32. On a card, what Roofline::chunk_tokens says of its rates, halved, down to 512, until the
  /// workspace takes an eighth of what the weights leave; and where answers go on, as much of it as
  /// the card reads and computes in mixed_seconds.
  std::int32_t chunk_tokens = 0, mixed_tokens = 0;
  static constexpr double mixed_seconds = 0.1;
  std::int32_t length_max = 0;  ///< most tokens of one sequence
  std::int32_t sequences = 0;   ///< that can run at once at length_max
  int memories = 1;             ///< pools of this size: 2 where prompts have one of their own
  int cards = 1;                ///< each of which has all of this, where the model is on cards

  std::size_t pool_bytes() const {
    return pools.layout.bytes() * static_cast<std::size_t>(memories);
  }
  std::size_t total() const { return weights + workspace + library + process + pool_bytes(); }
};

/// "8192 tokens, 4096 where answers go on".
std::string chunk_text(const MemoryPlan& memory);

/// Bytes that may be held on a device, how much of them pages and slots may take, and how these
/// share it.
struct Budget {
  Budget(std::size_t all, std::size_t pools_max = unlimited) : bytes(all), pool_bytes(pools_max) {}
  static constexpr std::size_t unlimited = ~std::size_t{0};
  std::size_t bytes, pool_bytes;
  std::size_t draft_model = 0;  ///< beside bytes, what a model that drafts takes of --memory
  std::size_t library = 0;      ///< of bytes, what a queue takes from its start
  /// Of bytes, what the process has besides: code, texts, tables. Where little is left for pools
  /// half of that is taken at most, so that they are not for nothing.
  std::size_t process = 0;
  std::size_t weights = 0;  ///< of bytes, what they take; 0: not loaded yet, an estimate counts
  kernels::Device device = kernels::Device::cpu;
  models::DeviceRates rates{};  ///< a card's
  kernels::SuperblockMapOptions mapping{};
  bool packed_snapshots = false;  ///< the pools have room for int8 snapshots
  std::int32_t drafts_room = 0;   ///< most of a sequence in a step, of --spec
  TreeLimits tree = {};           ///< of these
  int prefill_threads = 0;  ///< of a lane of their own for prompts, beside the others; 0: none
  int memories = 1;         ///< pools of equal size that pool_bytes are for
  int cards = 1;            ///< alike, each of which may hold as much
  /// Of a card, to create pools and to map them, as its driver's calls take it.
  std::size_t driver_calls_max = unlimited;
};

/// What the settings allow, less what a draft model takes.
Budget budget_of(const RunSettings& settings);

/// Divides the budget: weights, workspace, and pools of all that is left. Throws Error(memory) with
/// the numbers when not even one short sequence fits.
MemoryPlan plan_memory(const models::Plan& plan, const models::Geometry& geometry,
                       const Budget& budget, std::int32_t context, int threads,
                       const SessionShape& shape);

/// MemoryPlan::chunk_tokens of one sequence, for commands without a session.
std::int32_t chunk_tokens_of(const models::Plan& plan, const models::Geometry& geometry,
                             const Budget& budget, int threads);

/// What a runner with these pools is made with; every id of the vocabulary may be sampled.
models::RunnerOptions runner_options(const models::Plan& plan, const MemoryPlan& memory,
                                     const SessionShape& shape);

/// A request with the model's stop tokens and the options' sampling; the prompt is empty.
Request request_of(const GenerationOptions& options, const ModelTexts& texts);

/// An opened model with its engine: the only place where all rooms meet.
class Session {
 public:
  /// `check` throws for what the caller needs of the model's files and they lack: it is called
  /// before a weight is read.
  static Session open(const RunSettings& settings, const SessionShape& shape,
                      const std::function<void(const ModelSource&)>& check = {}) {
    return Session(settings, shape, check);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  Engine& engine() { return *engine_; }
  models::ModelRunner& runner() { return *runner_; }
  const RunSettings& settings() const { return settings_; }
  const ModelSource& source() const { return settings_.source; }
  /// Of a session with --disaggregate: whether prompts have a lane of their own from the next
  /// engine on, as they have at first. If not, one lane has the threads of both, and as much
  /// memory. The engine is gone until it is restarted.
  void set_disaggregated(bool is_disaggregated);
  /// Makes a new engine: nothing is known of earlier requests. `runner` is the session's own or
  /// passes all calls on to it, and outlives the engine.
  void restart_engine(const ReuseOptions& reuse, Runner& runner,
                      const SpeculationOptions& speculation);
  /// As --spec and --draft-steps say. Off: the pools have no room for drafts.
  SpeculationOptions speculation() const;
  kernels::Queue& queue() { return *queue_; }
  const models::Model& model() const { return model_; }
  const MemoryPlan& memory() const { return memory_; }
  /// What a step has to move and compute at least.
  models::Roofline roofline() const { return {model_.plan, model_.geometry}; }
  std::chrono::nanoseconds load_time() const { return load_time_; }

  /// Null with --random-weights on a folder without tokenizer.json.
  const Tokenizer* tokenizer() const { return texts_.tokenizer ? &*texts_.tokenizer : nullptr; }
  /// As app::need_tokenizer.
  const Tokenizer& need_tokenizer() const { return app::need_tokenizer(texts_, source()); }
  /// As app::need_chat_template.
  const ChatTemplate& need_chat_template() const {
    return app::need_chat_template(texts_, source());
  }
  /// Null: the model has no chat template.
  const ChatTemplate* chat_template() const {
    return texts_.chat_template ? &*texts_.chat_template : nullptr;
  }
  /// generation_config.json, an empty object when absent.
  const Json& generation_config() const { return texts_.generation_config; }
  /// End-of-answer tokens: generation_config, config and tokenizer_config together.
  const std::vector<TokenId>& stop_tokens() const { return texts_.stop_tokens; }

  /// What answers may have to be, compiled for this model.
  ConstraintCache& rules() {
    if (!rules_) rules_.emplace(need_tokenizer(), stop_tokens(), vocab_used());
    return *rules_;
  }
  /// request_of() with this model's texts, and with the options' rule, which is read at the first
  /// call and stays.
  Request request(const GenerationOptions& options) {
    Request request = request_of(options, texts_);
    if (!own_rule_) {
      const std::optional<AnswerRule> rule = rule_of(options.rule);
      own_rule_ = rule ? rules().get(*rule) : ConstraintCache::Use();
    }
    if (own_rule_->get() != nullptr) {
      request.rule = *own_rule_;
      request.stop = options.stop;  // those of the model's files end what has no rule
    }
    return request;
  }

 private:
  /// A second card with the weights, for prompts.
  struct PrefillCard {
    kernels::Queue queue;
    models::Model model{};
  };

  Session(const RunSettings& settings, const SessionShape& shape,
          const std::function<void(const ModelSource&)>& check);

  void load();
  void plan();
  bool release_pools();
  void make_runner();
  void make_prefill_lane(const models::RunnerOptions& options);
  void shrink_pools(const Error& reason);
  void start_engine(Runner& on, const SpeculationOptions& drafting);
  std::int32_t vocab_used() const;
  PrefillCost expected_cost() const;
  PrefixCacheOptions prefix_options() const;
  bool is_exact() const;
  std::int32_t states_ahead() const;
  /// Pools may become smaller than was planned.
  bool may_shrink() const { return settings_.memory.kind == MemoryBudget::Kind::automatic; }

  std::chrono::steady_clock::time_point opened_ = std::chrono::steady_clock::now();
  SessionShape shape_;
  RunSettings settings_;
  ModelOutline outline_;
  ModelTexts texts_;
  std::unique_ptr<kernels::Queue> queue_;
  models::Model model_;
  Budget budget_{0};
  MemoryPlan memory_;
  std::future<std::unique_ptr<kernels::SuperblockMap>> superblocks_;
  std::unique_ptr<models::ModelRunner> runner_;
  std::unique_ptr<PrefillCard> prefill_card_;  ///< null: prompts have none of their own
  std::unique_ptr<PrefillLane> prefill_lane_;  ///< null: one lane runs all
  bool is_disaggregated_ = false;              ///< whether the engine has that lane
  std::unique_ptr<DraftModel> draft_model_;    ///< null: there is none
  std::unique_ptr<TraceFile> trace_;
  std::optional<ConstraintCache> rules_;          ///< once there is one
  std::optional<ConstraintCache::Use> own_rule_;  ///< of the options
  std::unique_ptr<Engine> engine_;
  std::chrono::nanoseconds load_time_{0};
};

/// Where snapshots go that the pools have no room for.
struct TierFlags {
  std::optional<std::size_t> disk_tier;  ///< bytes; none: nowhere
  std::string disk_tier_folder;          ///< empty: hyb's cache folder
  std::optional<std::size_t> host_tier;  ///< refused on the CPU: it is the pools' own memory
};

/// Adds --disk-tier, --disk-tier-folder and --host-tier. The flags outlive `cli`.
void add_tier_options(CLI::App& cli, TierFlags& flags);

/// Throws Error(usage) for what is of no use with these settings. Returns the bytes of the host
/// tier, which the session is to be opened with; 0: there is none.
std::size_t check_tiers(const TierFlags& flags, const RunSettings& settings);

/// Gives the session's engine the tier of flags that were checked. A disk tier's file has no name
/// and is gone with the process. Where none can be made there is a warning and no tier. Throws
/// Error(memory) where the machine has no room for a host tier.
void add_tiers(Session& session, const TierFlags& flags, const Environment& environment);

/// --memory-idle, for commands that may have memory that they do not need for a while.
void add_idle_option(CLI::App& cli, std::optional<double>& seconds);

/// Throws Error(usage) where memory is not given back: in mode flat, and where prompts have their
/// own.
void check_idle(const std::optional<double>& seconds, const RunSettings& settings);

/// While an engine works: returns superblocks to the machine that were idle for this long.
/// They come back by themselves when they are needed.
class IdleMemory {
 public:
  using Clock = std::chrono::steady_clock;

  /// The engine outlives this. Without seconds nothing is given back.
  IdleMemory(Engine& engine, const std::optional<double>& seconds,
             Clock::time_point now = Clock::now());

  /// Between steps, often. Throws as Engine::carry_out_orders does.
  void poll(Clock::time_point now = Clock::now());

 private:
  Engine* engine_;
  std::optional<std::chrono::duration<double>> delay_;
  Clock::time_point begin_;   ///< since then
  std::int32_t superblocks_;  ///< at least this many were idle all the time
};

/// Work for the time in which a person does nothing (InputRequest::work): first `ahead`, if there
/// is any; then memory is prepared for the next request. The engine outlives the result.
std::function<bool()> prepare_memory_when_idle(Engine& engine, std::function<bool()> ahead);

/// The same where memory is scarce: first `ahead`, if there is any; then, when `delay` has passed
/// since this call, the superblocks that hold nothing go back to the machine. They come back by
/// themselves when they are needed. The engine outlives the result.
std::function<bool()> release_memory_when_idle(Engine& engine, std::chrono::duration<double> delay,
                                               std::function<bool()> ahead);

/// What fits into a budget, known from config.json alone. Every number is what opening the model
/// would really set aside: it calls plan_memory.
class Fit {
 public:
  /// The outline outlives it. `threads` take part in the workspace.
  Fit(const ModelOutline& outline, const Budget& budget, int threads, std::int32_t chunk_tokens = 0)
      : outline_(&outline), budget_(budget), threads_(threads), chunk_tokens_(chunk_tokens) {}

  /// How the budget is divided. Throws Error(memory) when not even one short sequence fits, and
  /// Error(usage) when the model has no positions for `context`.
  MemoryPlan plan(std::int32_t context, std::int32_t sequences) const;

  /// How many sequences of this many tokens run at once, up to sequences_max. 0: none.
  std::int32_t sequences_of(std::int32_t length) const;
  static constexpr std::int32_t sequences_max = 4096;

  /// Most tokens of a single sequence: what memory holds, within what the model states.
  std::int32_t length_max() const;

  /// Whether the model has positions for this many tokens.
  bool has_positions(std::int32_t length) const;

 private:
  bool holds(std::int32_t length, std::int32_t sequences) const;

  const ModelOutline* outline_;
  Budget budget_;
  int threads_;
  std::int32_t chunk_tokens_;  ///< as SessionShape's
};

}  // namespace hyb::app
