#include "core/base/sampling.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/base/error.h"

namespace sampling_test {

using namespace hyb;

namespace {

std::string error_of(const SamplingParams& params) {
  try {
    check(params, 50);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

template <typename Owner, typename Value>
std::string error_with(Value Owner::*member, Value value) {
  SamplingParams params;
  params.*member = value;
  return error_of(params);
}

}  // namespace

TEST_SUITE("core/base/sampling") {
  TEST_CASE("the defaults and the ends of each range are fine") {
    CHECK(error_of({}) == "");
    CHECK(error_with(&SamplingParams::temperature, 100.0F) == "");
    CHECK(error_with(&SamplingParams::top_p, 1e-6F) == "");
    CHECK(error_with(&SamplingParams::min_p, 1.0F) == "");
    CHECK(error_with(&SamplingParams::top_k, 1'000'000) == "");
    CHECK(error_with(&SamplingParams::logprobs, 20) == "");
    CHECK(error_with(&SamplingParams::frequency_penalty, -2.0F) == "");
    CHECK(error_with(&SamplingParams::bias, {{TokenId{0}, -1000.0F}, {TokenId{49}, 5.0F}}) == "");
  }

  TEST_CASE("what is out of range is named with its range and value") {
    CHECK(error_with(&SamplingParams::temperature, -0.5F) ==
          "sampling: temperature is 0 to 100: -0.5");
    CHECK(error_with(&SamplingParams::top_k, -2) == "sampling: top_k is -1 to 2147483647: -2");
    CHECK(error_with(&SamplingParams::top_p, 0.0F) ==
          "sampling: top_p is above 0 and at most 1: 0");
    CHECK(error_with(&SamplingParams::top_p, 1.5F) ==
          "sampling: top_p is above 0 and at most 1: 1.5");
    CHECK(error_with(&SamplingParams::min_p, 1.5F) == "sampling: min_p is 0 to 1: 1.5");
    CHECK(error_with(&SamplingParams::repetition_penalty, 0.0F) ==
          "sampling: repetition_penalty is above 0 and at most 100: 0");
    CHECK(error_with(&SamplingParams::presence_penalty, 101.0F) ==
          "sampling: presence_penalty is -100 to 100: 101");
    CHECK(error_with(&SamplingParams::logprobs, 51) ==
          "sampling: logprobs is -1 (none) or 0 to 20: 51");
    CHECK(error_with(&SamplingParams::logprobs, -2) ==
          "sampling: logprobs is -1 (none) or 0 to 20: -2");
    CHECK(error_with(&SamplingParams::bias, {{TokenId{50}, 1.0F}}) ==
          "sampling: logit_bias names tokens 0 to 49: 50");
    CHECK(error_with(&SamplingParams::bias, {{TokenId{-1}, 1.0F}}) ==
          "sampling: logit_bias names tokens 0 to 49: -1");
    CHECK(error_with(&SamplingParams::bias, {{TokenId{3}, 2000.0F}}) ==
          "sampling: logit_bias of token 3 is -1000 to 1000: 2000");
    CHECK(error_with(&SamplingParams::bias, {{TokenId{3}, 1.0F}, {TokenId{3}, 1.0F}}) ==
          "sampling: logit_bias names a token once: 3 twice");
  }

  TEST_CASE("NaN and infinity are in no range") {
    for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()}) {
      CHECK(error_with(&SamplingParams::temperature, value) != "");
      CHECK(error_with(&SamplingParams::top_p, value) != "");
      CHECK(error_with(&SamplingParams::min_p, value) != "");
      CHECK(error_with(&SamplingParams::repetition_penalty, value) != "");
      CHECK(error_with(&SamplingParams::frequency_penalty, value) != "");
      CHECK(error_with(&SamplingParams::presence_penalty, value) != "");
      CHECK(error_with(&SamplingParams::bias, {{TokenId{3}, value}}) != "");
    }
  }
}

}  // namespace sampling_test
