#include "core/engine/request.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/base/error.h"

namespace request_test {

using namespace hyb;

namespace {

constexpr RequestLimits limits = {.vocab = 20, .length_max = 10, .has_text = true};

Request good() {
  Request request;
  request.prompt = {TokenId{1}, TokenId{19}};
  return request;
}

std::string error_of(const Request& request, const RequestLimits& given = limits) {
  try {
    check(request, given);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("core/engine/request") {
  TEST_CASE("a plain request is fine") { CHECK(error_of(good()) == ""); }

  TEST_CASE("a prompt leaves room for one token, and the error says how much it is over") {
    Request request = good();
    request.prompt.assign(9, TokenId{1});
    CHECK(error_of(request) == "");
    request.prompt.assign(14, TokenId{1});
    CHECK(error_of(request) ==
          "request: the prompt has 14 tokens, 5 more than fit: the limit is 10 of prompt and "
          "answer together; shorten or truncate the prompt, or raise the limit");
    request.prompt.clear();
    CHECK(error_of(request) == "request: the prompt has no tokens; give at least one");
  }

  TEST_CASE("token ids are in the vocabulary") {
    Request request = good();
    request.prompt.push_back(TokenId{20});
    CHECK(error_of(request) ==
          "request: the prompt holds token 20, but the model knows tokens 0 to 19");
    request.prompt.back() = TokenId{-3};
    CHECK(error_of(request) ==
          "request: the prompt holds token -3, but the model knows tokens 0 to 19");
    request = good();
    request.stop_tokens = {TokenId{20}};
    CHECK(error_of(request) ==
          "request: the list of stop tokens holds token 20, but the model knows tokens 0 to 19");
  }

  TEST_CASE("message ends ascend within the prompt") {
    Request request = good();
    request.message_ends = {1, 2};
    CHECK(error_of(request) == "");
    request.message_ends = {1, 3};
    CHECK(error_of(request) ==
          "request: message_ends ascend from 1 to the 2 tokens of the prompt: 3 after 1");
    for (const std::vector<std::int32_t>& wrong : {std::vector{0}, {-1}, {1, 1}, {2, 1}}) {
      request.message_ends = wrong;
      CHECK(error_of(request) != "");
    }
  }

  TEST_CASE("what is needed later is a part of the prompt") {
    Request request = good();
    for (const std::int32_t tokens : {0, 1, 2}) {
      request.needed_later = tokens;
      CHECK(error_of(request) == "");
    }
    for (const std::int32_t tokens : {-1, 3}) {
      request.needed_later = tokens;
      CHECK(error_of(request) != "");
    }
  }

  TEST_CASE("a request that only prefills has one choice") {
    Request request = good();
    request.prefill_only = true;
    CHECK(error_of(request) == "");
    request.choices = 2;
    CHECK(error_of(request) == "request: prefill_only draws nothing, so it has 1 choice: 2");
  }

  TEST_CASE("counts are sensible") {
    Request request = good();
    request.chunk_tokens = -1;
    CHECK(error_of(request) == "request: a chunk has 1 token or more, or 0 for the usual: -1");
    request.chunk_tokens = 4;
    CHECK(error_of(request) == "");
    request.max_tokens = 0;
    CHECK(error_of(request) == "request: max_tokens is 1 or more, or -1 for as many as fit: 0");
    request.max_tokens = -2;
    CHECK(error_of(request) != "");
    request.max_tokens = 1'000'000;  // more than fits is cut off, and says "length"
    CHECK(error_of(request) == "");
    request.choices = 0;
    CHECK(error_of(request) == "request: n, the number of choices, is 1 to 128: 0");
    request.choices = 129;
    CHECK(error_of(request) != "");
  }

  TEST_CASE("stop strings need text, and their rules hold") {
    Request request = good();
    request.stop = {"x"};
    CHECK(error_of(request) == "");
    CHECK(error_of(request, {.vocab = 20, .length_max = 10, .has_text = false}) ==
          "request: stop strings need a tokenizer, and the model has none; use stop tokens");
    request.stop = {""};
    CHECK(error_of(request) == "stop strings: one of them is empty");
  }

  TEST_CASE("sampling is checked too") {
    Request request = good();
    request.sampling.top_p = 2.0F;
    CHECK(error_of(request) == "sampling: top_p is above 0 and at most 1: 2");
  }

  TEST_CASE("every reason has a name") {
    CHECK(name_of(FinishReason::stop) == "stop");
    CHECK(name_of(FinishReason::length) == "length");
    CHECK(name_of(FinishReason::cancelled) == "cancelled");
    CHECK(name_of(FinishReason::error) == "error");
  }
}

}  // namespace request_test
