#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "app/eval/text_evaluation.h"
#include "app/request/model_texts.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/model_outline.h"
#include "app/runtime/run_settings.h"
#include "core/memory/pool/memory_pool.h"
#include "models/runner.h"
#include "models/weights.h"

namespace hyb::app {

/// A text to run windows of: a file, or stdin where it is "-". Throws Error(usage) for what is no
/// UTF-8, or has NUL bytes.
std::string read_evaluated(const std::string& file);

/// A model and what it takes to read windows with it, one after the other. Stays where it is made.
class OpenedModel {
 public:
  /// `context`: tokens of a window; 0: as many as the model has. Throws as open_bare, and
  /// Error(usage) for windows that the model has not.
  OpenedModel(const RunSettings& settings, std::int32_t context, Precision snapshots,
              const models::PackedCall& packed = {});

  std::string name() const { return bare_.settings.source.name(); }
  std::int32_t window() const { return window_; }
  std::int32_t vocab() const { return bare_.model.plan.vocab; }
  bool has_states() const { return !bare_.model.geometry.pieces.empty(); }
  const Tokenizer& tokenizer() const { return need_tokenizer(texts_, bare_.settings.source); }
  std::size_t bytes() const;
  Reader reader() { return {.runner = &runner_, .pool = &pool_}; }
  kernels::Queue& queue() { return bare_.queue; }

 private:
  models::MemoryLayoutOptions pools(Precision snapshots) const;
  models::RunnerOptions runner_options() const;

  BareModel bare_;
  std::int32_t window_;
  ModelTexts texts_;
  models::ModelMemoryLayout layout_;
  models::ModelRunner runner_;
  MemoryPool pool_;
};

}  // namespace hyb::app
