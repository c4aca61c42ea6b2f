#include "core/engine/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/error.h"

namespace hyb {
namespace {

// Far outside of useful values, and far inside of what keeps every product finite.
constexpr float temperature_max = 100.0F;
constexpr float penalty_max = 100.0F;
constexpr float bias_max = 1000.0F;
constexpr std::int32_t logprobs_max = 100;

/// NaN is in no range.
void check_range(std::string_view name, float value, float low, float high) {
  if (value >= low && value <= high) return;
  throw Error(ErrorKind::usage,
              fmt::format("sampling: {} is {} to {}: {}", name, low, high, value));
}

void check_bias(std::vector<LogitBias> bias, std::int32_t vocab) {
  for (const LogitBias& entry : bias) {
    if (index(entry.token) < 0 || index(entry.token) >= vocab) {
      throw Error(ErrorKind::usage, fmt::format("sampling: logit_bias names tokens 0 to {}: {}",
                                                vocab - 1, index(entry.token)));
    }
    check_range(fmt::format("logit_bias of token {}", index(entry.token)), entry.bias, -bias_max,
                bias_max);
  }
  const auto by_token = [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; };
  std::sort(bias.begin(), bias.end(), by_token);
  const auto twice =
      std::adjacent_find(bias.begin(), bias.end(),
                         [](const LogitBias& a, const LogitBias& b) { return a.token == b.token; });
  if (twice != bias.end()) {
    throw Error(ErrorKind::usage, fmt::format("sampling: logit_bias names a token once: {} twice",
                                              index(twice->token)));
  }
}

}  // namespace

void check(const SamplingParams& params, std::int32_t vocab) {
  check_range("temperature", params.temperature, 0.0F, temperature_max);
  if (params.top_k < 0) {
    throw Error(ErrorKind::usage,
                fmt::format("sampling: top_k is 0 (all) or more: {}", params.top_k));
  }
  if (!(params.top_p > 0.0F && params.top_p <= 1.0F)) {
    throw Error(ErrorKind::usage,
                fmt::format("sampling: top_p is above 0 and at most 1: {}", params.top_p));
  }
  check_range("min_p", params.min_p, 0.0F, 1.0F);
  if (!(params.repetition_penalty > 0.0F && params.repetition_penalty <= penalty_max)) {
    throw Error(ErrorKind::usage,
                fmt::format("sampling: repetition_penalty is above 0 and at most {}: {}",
                            penalty_max, params.repetition_penalty));
  }
  check_range("frequency_penalty", params.frequency_penalty, -penalty_max, penalty_max);
  check_range("presence_penalty", params.presence_penalty, -penalty_max, penalty_max);
  check_bias(params.bias, vocab);
  const std::int32_t most = std::min(logprobs_max, vocab);
  if (params.logprobs < -1 || params.logprobs > most) {
    throw Error(ErrorKind::usage, fmt::format("sampling: logprobs is -1 (none) or 0 to {}: {}",
                                              most, params.logprobs));
  }
}

}  // namespace hyb
