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
#include "app/request/model_texts.h"
#include "app/request/sampling_options.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/model_outline.h"
#include "app/runtime/run_settings.h"
#include "core/engine/engine.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"
#include "models/model.h"
#include "models/roofline.h"
#include "models/runner.h"

namespace hyb::app {

class DraftModel;
class PrefillLane;
class TraceFile;

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
  /// Decides, in a session with --disaggregate, whether prompts have a lane of their own from the
  /// next engine on, as they do at first. If not, one lane has the threads of both and as much
  /// memory. The engine is gone until it is restarted.
  void set_disaggregated(bool is_disaggregated);
  /// Makes a new engine: nothing is known of earlier requests. `runner` is the session's own or
  /// passes all calls on to it, and outlives the engine.
  void restart_engine(const ReuseOptions& reuse, Runner& runner,
                      const SpeculationOptions& speculation);
  /// Returns what --spec and --draft-steps ask for. Off: the pools have no room for drafts.
  SpeculationOptions speculation() const;
  kernels::Queue& queue() { return *queue_; }
  const models::Model& model() const { return model_; }
  const MemoryPlan& memory() const { return memory_; }
  /// Returns the least that a step has to move and compute.
  models::Roofline roofline() const { return {model_.plan, model_.geometry}; }
  std::chrono::nanoseconds load_time() const { return load_time_; }

  /// Null with --random-weights on a folder without tokenizer.json.
  const Tokenizer* tokenizer() const { return texts_.tokenizer ? &*texts_.tokenizer : nullptr; }
  /// Does what app::need_tokenizer does.
  const Tokenizer& need_tokenizer() const { return app::need_tokenizer(texts_, source()); }
  /// Does what app::need_chat_template does.
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

  /// Returns the rules for answers that are compiled for this model.
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

}  // namespace hyb::app
