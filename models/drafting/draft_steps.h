#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/drafting/graphs.h"
#include "models/row_sampler.h"

namespace hyb::models {

/// The steps of a draft layer that make drafts: one for each block of several sequences, or one
/// after the other, each of which drafts a token of every sequence. Owns what draws all of the
/// latter in one go on a card.
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
  Drafts draft_by_passes(Step& step, std::span<const std::int32_t> drafts);

  Decoder& decoder_;
  StepStaging& staging_;
  RowSampler& sampler_;
  std::int64_t block_rows_;
  std::optional<std::int32_t> block_mask_;  ///< none: in passes
  std::unique_ptr<DraftGraphs> graphs_;     ///< a card's, in passes
};

}  // namespace hyb::models
