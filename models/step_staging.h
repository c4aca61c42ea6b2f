#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/engine/runner.h"
#include "kernels/staged_tables.h"
#include "models/parts/part.h"

namespace hyb::models {

/// Turns core's steps into the tables that a decoder reads.
class StepStaging {
 public:
  struct Limits {
    std::int64_t tokens;  ///< most tokens of a step
    std::int64_t spans;   ///< most spans of a step
    std::int64_t rows;    ///< most sampled rows of a step
    std::int64_t pages;   ///< most pages of a span's table
    std::int64_t groups;  ///< page groups
  };

  struct Staged {
    StepTables tables;
    kernels::Tensor sample_rows;  ///< [rows] tokens whose logits are wanted; empty for none
  };

  /// The queue outlives it. Throws Error(memory) when there is not so much.
  StepStaging(kernels::Queue& queue, const Limits& limits);

  /// The tables of a step within the limits, valid until the next call. With `rows`, as many spans
  /// and sampled rows as that: every span of the step has one token, which is sampled, and what
  /// stands behind them has neither slots nor pages. `keeps_tokens`: on a card what stands in the
  /// table of tokens stays there; the step's are not looked at. That table always stands at the
  /// same place.
  Staged stage(const Step& step, std::int64_t rows = 0, bool keeps_tokens = false);

  static std::size_t bytes(const Limits& limits);

 private:
  void stage_tokens(const Step& step, std::int64_t tokens);
  void stage_spans(const Step& step, std::int64_t spans, std::int64_t samples);
  void stage_pages(const Step& step, std::int64_t spans);

  std::unique_ptr<kernels::StagedTables> room_;
  std::int64_t groups_;
  std::vector<kernels::Tensor> page_begin_;  ///< of the step, by page group
  Staged staged_;
};

/// Whether every span has one token, wants its logits and is in no chain: what a decode step is.
bool is_decode(const Step& step);

}  // namespace hyb::models
