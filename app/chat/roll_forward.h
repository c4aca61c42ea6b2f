#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/engine/engine.h"

namespace hyb::app {

/// Runs the begin of the next prompt through the model while a person types, so that the prompt
/// itself runs only what is new. One thread at a time; between calls nothing goes on.
class RollForward : public Sink {
 public:
  /// The engine outlives this.
  explicit RollForward(Engine& engine) : engine_(engine) {}
  ~RollForward() override;
  RollForward(const RollForward&) = delete;
  RollForward& operator=(const RollForward&) = delete;

  /// What to run; asked for when there is time. Ends what ran before.
  void begin(std::function<std::vector<TokenId>()> tokens);

  /// A piece of the work, short enough for an entry to wait for it unnoticed.
  /// False: nothing is left to do, or it failed: then the prompt runs it all.
  bool work();

  /// Ends it at once; what was run stays known to the engine.
  void end();

  /// Learns from an answer how fast prompts run here.
  void learn(const Usage& usage);

  /// Tokens that were run ahead, of all prompts.
  std::int64_t tokens() const { return tokens_; }

  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId, std::int32_t, const Completion& completion) override;

 private:
  void submit();

  Engine& engine_;
  std::function<std::vector<TokenId>()> asked_;
  std::optional<RequestId> running_;
  std::int32_t chunk_tokens_ = 16;
  std::int64_t tokens_ = 0;
};

}  // namespace hyb::app
