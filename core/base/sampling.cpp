#include "core/base/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/error.h"
#include "core/base/parameter_ranges.h"

namespace hyb {

std::string ParameterRange::text() const {
  return excludes_least ? fmt::format("above {} and at most {}", least, most)
                        : fmt::format("{} to {}", least, most);
}

namespace {

/// NaN is in no range.
void check_range(std::string_view name, double value, const ParameterRange& range) {
  if (range.has(value)) return;
  throw Error(ErrorKind::usage,
              fmt::format("sampling: {} is {}: {}", name, range.text(), static_cast<float>(value)));
}

void check_bias(std::vector<LogitBias> bias, std::int32_t vocab) {
  for (const LogitBias& entry : bias) {
    if (index(entry.token) < 0 || index(entry.token) >= vocab) {
      throw Error(ErrorKind::usage, fmt::format("sampling: logit_bias names tokens 0 to {}: {}",
                                                vocab - 1, index(entry.token)));
    }
    check_range(fmt::format("logit_bias of token {}", index(entry.token)), entry.bias,
                ranges::logit_bias);
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
  check_range("temperature", params.temperature, ranges::temperature);
  if (!ranges::top_k.has(params.top_k)) {
    throw Error(ErrorKind::usage,
                fmt::format("sampling: top_k is 0 (all) or more: {}", params.top_k));
  }
  check_range("top_p", params.top_p, ranges::top_p);
  check_range("min_p", params.min_p, ranges::min_p);
  check_range("repetition_penalty", params.repetition_penalty, ranges::repetition_penalty);
  check_range("frequency_penalty", params.frequency_penalty, ranges::frequency_penalty);
  check_range("presence_penalty", params.presence_penalty, ranges::presence_penalty);
  check_bias(params.bias, vocab);
  for (const TokenId token : params.banned) {
    if (index(token) >= 0 && index(token) < vocab) continue;
    throw Error(ErrorKind::usage,
                fmt::format("sampling: banned tokens are 0 to {}: {}", vocab - 1, index(token)));
  }
  const std::int32_t most = std::min(static_cast<std::int32_t>(ranges::logprobs.most), vocab);
  if (params.logprobs < -1 || params.logprobs > most) {
    throw Error(ErrorKind::usage, fmt::format("sampling: logprobs is -1 (none) or 0 to {}: {}",
                                              most, params.logprobs));
  }
}

}  // namespace hyb
