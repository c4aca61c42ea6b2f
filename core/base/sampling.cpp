#include "core/base/sampling.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb {

std::string ParameterRange::text() const {
  return excludes_least ? fmt::format("above {} and at most {}", least, most)
                        : fmt::format("{} to {}", least, most);
}

namespace {

template <typename T>
void check_range(std::string_view name, T value, const ParameterRange& range) {
  if (range.has(static_cast<double>(value))) return;
  throw Error(ErrorKind::usage, fmt::format("sampling: {} is {}: {}", name, range.text(), value));
}

void check_once(std::vector<LogitBias> bias) {
  std::ranges::sort(bias, {}, &LogitBias::token);
  const auto twice = std::ranges::adjacent_find(bias, {}, &LogitBias::token);
  if (twice != bias.end()) {
    throw Error(ErrorKind::usage, fmt::format("sampling: logit_bias names a token once: {} twice",
                                              index(twice->token)));
  }
}

}  // namespace

void check_values(const SamplingParams& params, std::int32_t vocab) {
  for (const Parameter& parameter : sampling_parameters) {
    std::visit([&](auto member) { check_range(parameter.name, params.*member, parameter.range); },
               parameter.member);
  }
  const auto is_token = [&](TokenId token) { return index(token) >= 0 && index(token) < vocab; };
  for (const auto& [token, bias] : params.bias) {
    if (!is_token(token)) {
      throw Error(ErrorKind::usage, fmt::format("sampling: logit_bias names tokens 0 to {}: {}",
                                                vocab - 1, index(token)));
    }
    if (!ranges::logit_bias.has(bias)) {
      throw Error(ErrorKind::usage, fmt::format("sampling: logit_bias of token {} is {}: {}",
                                                index(token), ranges::logit_bias.text(), bias));
    }
  }
  for (const TokenId token : params.banned) {
    if (is_token(token)) continue;
    throw Error(ErrorKind::usage,
                fmt::format("sampling: banned tokens are 0 to {}: {}", vocab - 1, index(token)));
  }
  const std::int32_t most = std::min(logprobs_max, vocab);
  if (params.logprobs < -1 || params.logprobs > most) {
    throw Error(ErrorKind::usage, fmt::format("sampling: logprobs is -1 (none) or 0 to {}: {}",
                                              most, params.logprobs));
  }
}

void check(const SamplingParams& params, std::int32_t vocab) {
  check_values(params, vocab);
  check_once(params.bias);
}

}  // namespace hyb
