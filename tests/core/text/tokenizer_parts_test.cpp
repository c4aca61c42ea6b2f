#include "core/text/tokenizer_parts.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

using namespace hyb;
using testing::contains;
using testing::model_error;
using testing::TokenizerText;

namespace {

std::string error_of(const std::string& text) {
  return model_error([&] { TokenizerParts parts(read_tokenizer_json(text, "t.json")); });
}

}  // namespace

TEST_SUITE("core/text/tokenizer_parts") {
  TEST_CASE("models of other kinds are named in the error") {
    CHECK(error_of(R"({"model":{"type":"Unigram","vocab":[["a",-1.5]],"unk_id":0}})") ==
          "t.json: model: the type \"Unigram\" is not supported; BPE is");
    CHECK(contains(error_of(R"({"model":{"type":"WordPiece","vocab":{"a":0}}})"), "\"WordPiece\""));
    CHECK(contains(error_of(R"({"model":{"type":"BPE","vocab":{"a":0}}})"), "needs \"vocab\""));
    CHECK(contains(error_of(R"({"model":{"type":"BPE","vocab":[],"merges":[]}})"), "needs"));
    CHECK(contains(error_of(R"({"model":{"vocab":{},"merges":[]}})"), "the vocabulary is empty"));
    CHECK(contains(error_of("{}"), "t.json: model: an object"));
    CHECK(contains(error_of("[]"), "an object"));
    CHECK(contains(error_of("3"), "an object"));
    CHECK(error_of(TokenizerText{.model = R"("unk_token":null)"}.text()).empty());  // no type: BPE
  }

  TEST_CASE("names of a tokenizer_config.json, as texts or objects") {
    TokenizerParts parts(read_tokenizer_json(
        TokenizerText{.added = R"([{"content":"<e>","id":9,"special":true}])"}.text(), "t.json"));
    parts.read_names(R"({"eos_token":{"content":"<e>","lstrip":false},"bos_token":"<unk>",
                         "pad_token":"nowhere","model_max_length":1e30,"x":NaN})",
                     "c.json");
    CHECK(parts.eos == TokenId{9});
    CHECK(parts.bos == TokenId{5});
    CHECK_FALSE(parts.pad);
    CHECK(contains(model_error([&] { parts.read_names(R"({"eos_token":1})", "c.json"); }),
                   "c.json: \"eos_token\""));
    CHECK(contains(model_error([&] { parts.read_names("[]", "c.json"); }), "c.json: an object"));
  }
}
