#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/model_source.h"
#include "app/model_texts.h"
#include "app/options.h"
#include "core/engine/engine.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"
#include "models/model.h"
#include "models/roofline.h"
#include "models/runner.h"

namespace hyb::app {

/// How many sequences and which step sizes a command wants.
struct SessionShape {
  std::int32_t sequences_max = 1;   ///< run at once
  std::int32_t chunk_tokens = 512;  ///< prompt tokens of one sequence in one step
};

/// How the budget was divided, in bytes.
struct MemoryPlan {
  std::size_t budget = 0;
  std::size_t weights = 0;
  std::size_t workspace = 0;
  std::size_t library = 0;  ///< a card's cuBLASLt, where it is there
  std::size_t pinned = 0;   ///< of the machine's memory, beside a card's budget
  models::ModelMemoryLayout pools{};
  kernels::SuperblockMapOptions mapping{};
  std::int32_t length_max = 0;  ///< most tokens of one sequence
  std::int32_t sequences = 0;   ///< that can run at once at length_max

  std::size_t pool_bytes() const { return pools.layout.bytes(); }
  std::size_t total() const { return weights + workspace + library + pool_bytes(); }
};

/// Bytes that may be held, how much of them pages and slots may take, and how these share it.
struct Budget {
  Budget(std::size_t all, std::size_t pools_max = unlimited) : bytes(all), pool_bytes(pools_max) {}
  static constexpr std::size_t unlimited = ~std::size_t{0};
  std::size_t bytes, pool_bytes;
  std::size_t library = 0;  ///< of bytes, what a queue takes from its start
  kernels::Device device = kernels::Device::cpu;
  kernels::SuperblockMapOptions mapping{};
  bool packed_snapshots = false;  ///< the pools have room for int8 snapshots
};

/// Throws Error(usage) for what is of no use together.
kernels::SuperblockMapOptions mapping_of(const PoolOptions& options, kernels::Device device);

/// --memory and --pool-memory on this machine, --memory-mode, --strict-vmm and --snapshots.
Budget budget_of(const ModelOptions& options);

/// Divides the budget: weights, workspace, and pools of all that is left. Throws Error(memory) with
/// the numbers when not even one short sequence fits.
MemoryPlan plan_memory(const models::Plan& plan, const models::Geometry& geometry,
                       const Budget& budget, std::int32_t context, int threads,
                       const SessionShape& shape);

/// What a runner with these pools is made with; every id of the vocabulary may be sampled.
models::RunnerOptions runner_options(const models::Plan& plan, const MemoryPlan& memory,
                                     const SessionShape& shape);

/// Turns "auto", shares and sizes into bytes of this machine's memory, or of its card's.
std::size_t budget_bytes(const MemoryBudget& budget, kernels::Device device);

/// A request with the model's stop tokens and the options' sampling; the prompt is empty.
Request request_of(const GenerationOptions& options, const ModelTexts& texts);

/// An opened model with its engine: the only place where all rooms meet.
class Session {
 public:
  static Session open(const ModelOptions& options, const SessionShape& shape,
                      const Environment& environment);
  Session(Session&&) noexcept;
  ~Session();

  Engine& engine();
  models::ModelRunner& runner();
  /// Makes the engine anew: nothing is known of earlier requests. `runner` is the session's own or
  /// passes all calls on to it, and outlives the engine.
  void restart_engine(const ReuseOptions& reuse, Runner& runner);
  kernels::Queue& queue();
  const models::Model& model() const;
  const ModelSource& source() const;
  const MemoryPlan& memory() const;
  /// What a step has to move and compute at least.
  models::Roofline roofline() const;
  std::chrono::nanoseconds load_time() const;

  /// Null with --random-weights on a folder without tokenizer.json.
  const Tokenizer* tokenizer() const;
  /// As app::need_tokenizer.
  const Tokenizer& need_tokenizer() const;
  /// As app::need_chat_template.
  const ChatTemplate& need_chat_template() const;
  /// Null: the model has no chat template.
  const ChatTemplate* chat_template() const;
  /// generation_config.json, an empty object when absent.
  const Json& generation_config() const;
  /// End-of-answer tokens: generation_config, config and tokenizer_config together.
  const std::vector<TokenId>& stop_tokens() const;

  /// request_of() with this model's texts.
  Request request(const GenerationOptions& options) const;

 private:
  struct Parts;
  explicit Session(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace hyb::app
