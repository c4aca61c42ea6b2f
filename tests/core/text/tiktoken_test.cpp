#include "core/text/tiktoken.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/text/tokenizer.h"
#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

namespace tiktoken_test {

using namespace hyb;
using testing::model_error;
using testing::read_test_file;

namespace {

// Written by scripts/golden/make_tiktoken.py.
std::string fixture(const std::string& name) {
  return read_test_file("core/text/fixtures/tiktoken." + name);
}

Tokenizer load(const std::string& model, const std::string& config) {
  return Tokenizer::from_tiktoken(model, "tiktoken.model", config, "tokenizer_config.json");
}

std::string error_of(const std::string& model, const std::string& config) {
  return model_error([&] { load(model, config); });
}

}  // namespace

TEST_SUITE("core/text/tiktoken") {
  TEST_CASE("ids are tiktoken's, and give the text back") {
    const Tokenizer tokenizer = load(fixture("model"), fixture("config.json"));
    std::istringstream lines(fixture("golden.jsonl"));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const Json golden = parse_json(line, "golden");
      const auto text = golden.at("string").get<std::string>();
      CAPTURE(text);
      const std::vector<TokenId> tokens = tokenizer.encode(text, {.parse_special = true});
      std::vector<int> ids;
      for (const TokenId token : tokens) ids.push_back(index(token));
      REQUIRE(ids == golden.at("ids").get<std::vector<int>>());
      REQUIRE(tokenizer.decode(tokens, false) == text);
    }
    CHECK(count > 150);
  }

  TEST_CASE("special tokens follow the others; those without a name are numbered") {
    const Tokenizer tokenizer = load(fixture("model"), fixture("config.json"));
    REQUIRE(tokenizer.bos());
    const int first = index(*tokenizer.bos());
    CHECK(tokenizer.size() == first + 256);
    CHECK(tokenizer.piece(TokenId{first + 2}) == "<|im_end|>");
    CHECK(tokenizer.piece(TokenId{first + 7}) ==
          "<|reserved_token_" + std::to_string(first + 7) + "|>");
    CHECK(tokenizer.is_special(TokenId{first + 7}));
    CHECK(tokenizer.pad() == TokenId{first + 255});
    CHECK(tokenizer.eos() == TokenId{first + 1});
  }

  TEST_CASE("what is damaged or of another kind is named") {
    const std::string model = fixture("model"), config = fixture("config.json");
    const auto with_line = [&](const std::string& line) {
      return error_of(line + model.substr(model.find('\n')), config);
    };
    CHECK(error_of(model, "").ends_with("tiktoken.model: needs a tokenizer_config.json beside it"));
    CHECK(testing::contains(error_of(model, R"({"tokenizer_class":"QWenTokenizer"})"),
                            "tokenizer_class \"QWenTokenizer\" is not supported"));
    for (const char* line : {"", " 0", "AA=", "AA==", "AA== x", "AA== 0 ", "A*== 0", "=A== 0",
                             "A=== 0", "AA== 18446744073709551616"}) {
      CAPTURE(line);
      CHECK(testing::contains(with_line(line), "is not a token in base64 and its rank"));
    }
    const std::string first = model.substr(0, model.find(' '));
    CHECK(testing::contains(with_line(first + " 1"), "line 1: its rank is 1, not 0"));
    CHECK(
        testing::contains(error_of(model + first + " 999999", config), "its rank is 999999, not"));
    const auto lines = static_cast<std::size_t>(std::count(model.begin(), model.end(), '\n'));
    CHECK(testing::contains(error_of(model + first + " " + std::to_string(lines), config),
                            "the token is there twice"));
    CHECK(testing::contains(error_of(first + " 0\n", config), "is no token"));
    CHECK(testing::contains(error_of("", config), "byte 0 is no token"));
    std::string long_token = model;
    long_token += std::string(1 << 17, 'A') + " " + std::to_string(lines) + "\n";
    CHECK(testing::contains(error_of(long_token, config), "tokens are too long"));
  }

  TEST_CASE("special tokens of other ids, and two of one spelling, are named") {
    const std::string model = fixture("model");
    const auto named = [&](const std::string& entries) {
      return error_of(model, R"({"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{)" +
                                 entries + "}}");
    };
    CHECK(
        testing::contains(named(R"("5":{"content":"x"})"), "\"5\": is none of the 256 ids after"));
    CHECK(
        testing::contains(named(R"("x":{"content":"x"})"), "\"x\": is none of the 256 ids after"));
    CHECK(testing::contains(named(R"("600":5)"), "\"600\""));
    CHECK(testing::contains(
        error_of(model, R"({"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":[]})"),
        "added_tokens_decoder is not an object"));
    CHECK(named(R"("700":{"content":"x"},"701":{"content":"x"})") != "");
  }
}

}  // namespace tiktoken_test
