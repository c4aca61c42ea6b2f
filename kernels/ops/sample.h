#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/ids.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Added to one token's logit after the penalties.
struct LogitBias {
  TokenId token;
  float bias;
};

/// How one row's token is chosen. The defaults draw from the model's own distribution.
///
/// In this order: banned tokens drop out; repetition penalty (tokens of the whole history: logit >
/// 0 ? logit / penalty : logit * penalty); frequency penalty times count and presence penalty once,
/// over generated tokens only; biases; temperature (below 1e-5: the first maximum is the answer,
/// nothing below applies); top_k (0 or vocabulary size: off; of equals the lower ids stay); top_p:
/// the fewest likeliest tokens that reach top_p; min_p: at least min_p times as likely as the
/// likeliest. Then one draw, Philox4x32-10 keyed by `seed` at counter `draw`: it depends on nothing
/// else.
struct SampleRow {
  float temperature = 1.0F;
  int top_k = 0;
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;
  std::span<const TokenId> history = {};  ///< prompt, then generated; needed for penalties only
  std::int32_t prompt_tokens = 0;         ///< how many of history are the prompt, which comes first
  std::span<const LogitBias> bias = {};
  std::span<const TokenId> banned = {};
  int logprobs = -1;  ///< -1: none, 0: the chosen token's, n: also those of the n likeliest
};

inline constexpr int logprobs_max = 20;

struct TokenLogprob {
  TokenId token;
  float logprob;
};

enum class SampleOutcome : std::uint8_t {
  chosen,
  not_a_number,  ///< a logit is NaN or plus infinity, or all are minus infinity: fail the request
  all_banned,    ///< bans and biases leave no token
};

/// Log-probabilities are of the model's own distribution: log-softmax of the raw logits over the
/// used vocabulary, before penalties, biases and temperature.
struct SampledToken {
  SampleOutcome outcome = SampleOutcome::chosen;
  TokenId token{-1};
  float logprob = 0.0F;
  int alternatives = 0;
  std::array<TokenLogprob, logprobs_max> likeliest = {};  ///< first `alternatives` are set
};

/// Chooses a token for every row of logits.
///
/// shapes  logits [R,V]; rows may be strided; ids vocab_used..V-1 are padding, never read
///         rows, out [R]   workspace: sample_workspace_bytes
/// types   logits: f32   workspace: any
/// writes  out and workspace. Never garbage: a row that cannot be sampled says so in `outcome`.
/// errors  Error(usage) for a row whose parameters are out of range: row, rule, value
struct Sample {
  Tensor logits;
  std::int32_t vocab_used = 0;
  std::span<const SampleRow> rows;
  std::span<SampledToken> out;
  Tensor workspace;
};

/// Throws as sample() does for rows over a vocabulary of `vocab_used` ids.
void check_rows(std::span<const SampleRow> rows, std::int32_t vocab_used);

/// A card needs none: its queue has what it stages.
std::size_t sample_workspace_bytes(Device device, std::int64_t vocab, int threads);

void sample(Queue& queue, const Sample& op);

}  // namespace hyb::kernels
