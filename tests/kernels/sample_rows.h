#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/base/sampling.h"

namespace hyb::kernels::testing {

/// A row with parameters of its own. The defaults draw from the model's own distribution.
struct OwnRow {
  SamplingNumbers by = {.temperature = 1.0F};
  std::uint64_t draw = 0;
  std::vector<TokenId> history = {};
  std::int32_t prompt_tokens = 0;
  std::vector<LogitBias> bias = {};
  std::vector<TokenId> banned = {};
  std::vector<std::uint32_t> mask = {};
};

/// A mask of these tokens.
inline std::vector<std::uint32_t> mask_of(std::int32_t vocab, std::span<const TokenId> tokens) {
  std::vector<std::uint32_t> mask(mask_words(vocab));
  for (const TokenId token : tokens) {
    const auto at = static_cast<std::size_t>(index(token));
    mask[at / 32] |= 1U << (at % 32);
  }
  return mask;
}

/// The rows as sample() takes them. `own` outlives it.
class SampleRows {
 public:
  explicit SampleRows(std::span<const OwnRow> own) {
    for (const OwnRow& row : own) {
      const SamplingParams& params =
          params_.emplace_back(SamplingParams{row.by, row.bias, row.banned});
      rows_.push_back({.params = &params,
                       .draw = row.draw,
                       .history = row.history,
                       .prompt_tokens = row.prompt_tokens,
                       .mask = row.mask});
    }
  }
  operator std::span<const SampleRow>() const { return rows_; }

 private:
  std::deque<SamplingParams> params_;
  std::vector<SampleRow> rows_;
};

}  // namespace hyb::kernels::testing
