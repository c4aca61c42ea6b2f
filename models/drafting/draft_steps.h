#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/decoder.h"
#include "models/recordings.h"
#include "models/row_sampler.h"
#include "models/steps.h"

namespace hyb::models {

/// The steps of a draft layer that make drafts: one for each block of several sequences, or one
/// after the other, each of which drafts a token of every sequence. On a card the latter are one
/// work, where each draws the tokens that the next one reads: owns the samplers for that.
class DraftSteps {
 public:
  struct Limits {
    std::int32_t sequences;   ///< most sequences that drafts are made for at once
    std::int32_t block_rows;  ///< most tokens of blocks in one step
    std::int32_t vocab_used;
  };

  /// For a plan with a draft layer. All but `limits` outlive it. Throws Error(memory).
  DraftSteps(kernels::Queue& queue, const Plan& plan, Decoder& decoder, StepStaging& staging,
             Recordings& recordings, RowSampler& sampler, const Limits& limits);

  /// Counts what it takes of the card's memory and of pinned memory.
  static kernels::StagedBytes bytes(kernels::Device device, const Plan& plan,
                                    std::int32_t sequences);

  /// Drafts for every span of the step, which has no orders, as Runner::draft() returns them.
  std::vector<std::vector<SampledToken>> draft(const Step& step);

 private:
  using Drafts = std::vector<std::vector<SampledToken>>;

  Drafts draft_blocks(const Step& step);
  Drafts draft_at_once(const Step& step, std::span<const std::int32_t> drafts);
  void launch(const StepStaging::StagedDrafts& staged);
  Drafts draft_by_passes(Step& step, std::span<const std::int32_t> drafts);

  Decoder& decoder_;
  StepStaging& staging_;
  Recordings& recordings_;
  RowSampler& sampler_;
  Limits limits_;
  std::optional<std::int32_t> block_mask_;                              ///< none: in passes
  std::vector<std::unique_ptr<kernels::DeviceSampler>> pass_samplers_;  ///< of each on a card
};

}  // namespace hyb::models
