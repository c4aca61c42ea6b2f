#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/runner.h"
#include "kernels/ops/device_sampler.h"
#include "models/decoder.h"
#include "models/recordings.h"
#include "models/steps.h"

namespace hyb::models {

/// Drafts of a draft layer on a card, all passes of it in one go: each pass draws the tokens that
/// the next one reads, and the host sees them when all are drawn. Stage, stage the draws of every
/// pass, launch, drawn by every pass.
class DraftGraphs {
 public:
  /// All outlive it. `rows`: most sequences; ids from `vocab_used` on are never drawn. Throws
  /// Error(memory).
  DraftGraphs(kernels::Queue& queue, Decoder& decoder, StepStaging& staging, Recordings& recordings,
              std::int64_t rows, std::int32_t vocab_used);

  /// Counts what it takes of the card's memory and of pinned memory.
  static kernels::StagedBytes bytes(kernels::Device device, std::int64_t rows);

  /// Uploads the tables: `drafts` of every span of the step, as StepStaging::stage_drafts.
  void stage(const Step& step, std::span<const std::int32_t> drafts);

  /// Stages how pass `pass` draws, for the first sequences, which have at least as many drafts.
  void stage_draws(std::int64_t pass, std::span<const SampleRow> rows);

  /// Starts all passes.
  void launch();

  /// Waits for what a pass drew, one token per row that was staged for it. Called once for every
  /// pass, in order; valid until the pass is drawn again.
  std::span<const SampledToken> drawn(std::int64_t pass);

 private:
  WorkResult run_staged();

  Decoder& decoder_;
  StepStaging& staging_;
  Recordings& recordings_;
  std::vector<std::unique_ptr<kernels::DeviceSampler>> samplers_;  ///< one per pass
  std::int64_t rows_;
  std::int32_t vocab_used_;
  StepStaging::StagedDrafts staged_;
};

}  // namespace hyb::models
