#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

struct LogitBias {
  TokenId token;
  float bias;
};

/// How the next token is drawn. The defaults are greedy over the raw logits.
struct SamplingParams {
  float temperature = 0.0F;  ///< 0: greedy
  std::int32_t top_k = 0;    ///< 0: all
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;  ///< divides (when negative: multiplies) logits of tokens seen
  float frequency_penalty = 0.0F;   ///< per occurrence among the generated tokens
  float presence_penalty = 0.0F;    ///< once per generated token
  std::uint64_t seed = 0;
  std::vector<LogitBias> bias;
  std::vector<TokenId> banned = {};  ///< never drawn
  std::int32_t logprobs = -1;  ///< -1: none; 0: of the drawn token; n: and of the n most likely
};

/// Throws Error(usage) naming the parameter, its range and the value. `vocab` bounds token ids.
void check(const SamplingParams& params, std::int32_t vocab);

/// Whether the tokens drawn so far change what is drawn next.
inline bool has_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.frequency_penalty != 0.0F ||
         params.presence_penalty != 0.0F;
}

struct TokenLogprob {
  TokenId token;
  float logprob;
};

struct SampledToken {
  TokenId token{};
  bool finite = true;  ///< false: the logits held a NaN, the token means nothing
  float logprob = 0.0F;
  std::vector<TokenLogprob> top;  ///< most likely first
};

}  // namespace hyb
