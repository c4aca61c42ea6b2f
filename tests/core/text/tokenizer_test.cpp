#include "core/text/tokenizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "core/base/json.h"
#include "core/text/unicode.h"
#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

namespace tokenizer_test {

using namespace hyb;
using testing::model_error;
using testing::read_test_file;

namespace {

// Written by scripts/fuzz/tokenizer.py.
const std::vector<std::string> kinds = {
    "gpt2",      "gpt2-prefix",     "llama3",   "qwen2",  "qwen35", "tekken", "gpt-4o",
    "kimi",      "possessive",      "deepseek", "digits", "falcon", "splits", "spm",
    "metaspace", "metaspace-first", "gemma",    "nfkc",   "nfd"};

constexpr EncodeOptions as_reference = {.parse_special = true};

std::string fixture(const std::string& name) {
  return read_test_file("core/text/fixtures/" + name);
}

Tokenizer load(const std::string& kind) {
  return Tokenizer::from_json(fixture(kind + ".json"), kind + ".json");
}

std::vector<int> numbers(const std::vector<TokenId>& tokens) {
  std::vector<int> ids;
  for (const TokenId token : tokens) ids.push_back(index(token));
  return ids;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  TextStream stream(tokenizer);
  std::string text;
  for (const TokenId token : tokens) {
    const std::string more = stream.push(token);
    CHECK(is_well_formed(more));
    text += more;
  }
  return text + stream.flush();
}

/// Spellings of added tokens, parts of them, and text that may merge with its neighbours.
std::string random_text(std::mt19937& random) {
  static const char* parts[] = {"<|im_start|>", "<|im_end|>", "<|im_end|>x", "<think>", "</think>",
                                "<tool_call>",  "<|im_",      "start|>",     "end|>",   "x",
                                "hello",        " ",          "\n",          "é",       "e\u0301",
                                "12",           "字"};
  std::string text;
  for (unsigned i = 0, n = random() % 5; i < n; ++i) text += parts[random() % std::size(parts)];
  return text;
}

}  // namespace

TEST_SUITE("core/text/tokenizer") {
  TEST_CASE("ids and texts are Hugging Face's, for every kind") {
    for (const std::string& kind : kinds) {
      CAPTURE(kind);
      const Tokenizer tokenizer = load(kind);
      std::istringstream lines(fixture(kind + ".golden.jsonl"));
      int count = 0;
      for (std::string line; std::getline(lines, line); ++count) {
        const Json golden = parse_json(line, kind);
        const auto text = golden.at("string").get<std::string>();
        CAPTURE(text);
        const auto tokens = tokenizer.encode(text, as_reference);
        REQUIRE(numbers(tokens) == golden.at("ids").get<std::vector<int>>());
        const std::string full = golden.value("text", text);
        const std::string plain = golden.value("plain", full);
        REQUIRE(tokenizer.decode(tokens, false) == full);
        REQUIRE(tokenizer.decode(tokens, true) == plain);
        const bool bad_bytes = plain.find(replacement_character) != std::string::npos;
        if (!bad_bytes) REQUIRE(streamed(tokenizer, tokens) == plain);
      }
      CHECK(count > 150);
    }
  }

  TEST_CASE("the post-processor's tokens are added on request only") {
    const Tokenizer tokenizer = load("llama3");
    const auto bos = tokenizer.find("<|endoftext|>");
    REQUIRE(bos);
    const auto plain = tokenizer.encode("hello", {});
    auto raw = tokenizer.encode("hello", {.add_special_tokens = true});
    REQUIRE(raw.size() == plain.size() + 1);
    CHECK(raw.front() == *bos);
    raw.erase(raw.begin());
    CHECK(raw == plain);
  }

  TEST_CASE("pieces without marks are one text") {
    std::mt19937 random(1);
    for (const std::string& kind : kinds) {
      const Tokenizer tokenizer = load(kind);
      for (int round = 0; round < 60; ++round) {
        const std::string text = random_text(random) + random_text(random);
        const std::size_t cut = random() % (text.size() + 1);
        const TextPiece pieces[] = {{std::string_view(text).substr(0, cut)},
                                    {std::string_view(text).substr(cut)}};
        REQUIRE(tokenizer.encode(pieces, as_reference) == tokenizer.encode(text, as_reference));
      }
    }
  }

  TEST_CASE("marked text is encoded as by a tokenizer without added tokens") {
    std::mt19937 random(2);
    for (const std::string& kind : kinds) {
      CAPTURE(kind);
      const Tokenizer tokenizer = load(kind);
      Json json = parse_json(fixture(kind + ".json"), kind);
      Json kept = Json::array();  // runs of white space are no control tokens
      for (const Json& entry : json["added_tokens"]) {
        const auto content = entry["content"].get<std::string>();
        const bool white = content.find_first_not_of(" \n") == std::string::npos;
        // A template names its token, which has to exist.
        if (white || entry["id"].get<int>() == 0) kept.push_back(entry);
      }
      json["added_tokens"] = kept;
      const Tokenizer plain = Tokenizer::from_json(to_text(json), kind);
      for (int round = 0; round < 60; ++round) {
        const std::string text = random_text(random) + "   " + random_text(random);
        const TextPiece piece{text, true};
        const auto tokens = tokenizer.encode(std::span(&piece, 1), as_reference);
        REQUIRE(tokens == plain.encode(text, as_reference));
        REQUIRE(tokens == tokenizer.encode(text, {.parse_special = false}));
      }
    }
  }

  TEST_CASE("between control tokens, marked and unmarked text is encoded as one text") {
    std::mt19937 random(3);
    for (const std::string kind : {"gpt2", "llama3", "qwen2", "deepseek"}) {
      const Tokenizer tokenizer = load(kind);
      const TokenId start = tokenizer.find("<|im_start|>").value();
      const TokenId end = tokenizer.find("<|im_end|>").value();
      for (int round = 0; round < 100; ++round) {
        const std::string person = random_text(random);
        const std::string more = random_text(random);
        const TextPiece pieces[] = {
            {"<|im_start|>user "}, {person, true}, {more, true}, {" ok<|im_end|>"}, {"\n"}};
        std::vector<TokenId> want = {start};
        const std::string inner = "user " + person + more + " ok";
        const auto body = tokenizer.encode(inner, {});
        want.insert(want.end(), body.begin(), body.end());
        want.push_back(end);
        const auto tail = tokenizer.encode("\n", {});
        want.insert(want.end(), tail.begin(), tail.end());
        REQUIRE(tokenizer.encode(pieces, as_reference) == want);
      }
    }
  }

  TEST_CASE("a control token needs every byte of its spelling from the template") {
    const Tokenizer tokenizer = load("qwen2");
    const TokenId end = tokenizer.find("<|im_end|>").value();
    const auto has_end = [&](const std::vector<TextPiece>& pieces) {
      const auto tokens = tokenizer.encode(pieces, as_reference);
      return std::find(tokens.begin(), tokens.end(), end) != tokens.end();
    };
    CHECK(has_end({{"<|im_"}, {"end|>"}}));
    CHECK_FALSE(has_end({{"<|im_"}, {"end|>", true}}));
    CHECK_FALSE(has_end({{"<|im_end|", true}, {">"}}));
    CHECK_FALSE(has_end({{"<|im_end|>", true, true}}));
    // A longer token that marked text would complete does not hide the template's own.
    CHECK(has_end({{"<|im_end|>"}, {"x", true}}));
  }

  TEST_CASE("an assistant message may contain markers of thoughts and calls") {
    for (const std::string& kind : kinds) {
      CAPTURE(kind);
      const Tokenizer tokenizer = load(kind);
      const std::string text = "<think>a</think><tool_call><|im_start|><|im_end|><mask>";
      const TextPiece piece{text, true, true};
      const auto tokens = tokenizer.encode(std::span(&piece, 1), as_reference);
      const auto count = [&](const char* name) {
        return std::count(tokens.begin(), tokens.end(), tokenizer.find(name).value());
      };
      for (const char* name : {"<think>", "</think>", "<tool_call>"}) CHECK(count(name) == 1);
      for (const char* name : {"<|im_start|>", "<|im_end|>", "<mask>"}) CHECK(count(name) == 0);
    }
  }

  TEST_CASE("a byte-level tokenizer round-trips any text") {
    std::mt19937 random(4);
    const Tokenizer tokenizer = load("llama3");
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (int i = 0; i < 20; ++i) {
        const char32_t point = random() % (random() % 2 ? 0x80 : 0xD800);
        append_utf8(text, point);
      }
      const auto tokens = tokenizer.encode(text, {});
      REQUIRE(tokenizer.decode(tokens, false) == text);
      REQUIRE(streamed(tokenizer, tokens) == text);
    }
  }

  TEST_CASE("a token has bytes of its own, also where they are a part of a character") {
    const std::string text = "na\u00efve \U0001F600 \u6771\u4eac";
    for (const char* kind : {"llama3", "gpt2", "gemma"}) {
      CAPTURE(kind);
      const Tokenizer tokenizer = load(kind);
      std::string bytes;
      bool has_parts = false;
      for (const TokenId token : tokenizer.encode(text, {})) {
        const std::string own = tokenizer.bytes_of(token);
        has_parts = has_parts || !is_well_formed(own);
        bytes += own;
      }
      CHECK(has_parts);
      // Some begin a text with a space of their own, which decode() strips.
      CHECK((bytes == text || bytes == " " + text));
    }
    CHECK(load("gpt2").bytes_of(TokenId{-1}).empty());
    CHECK(load("gpt2").bytes_of(TokenId{1 << 30}).empty());
  }

  TEST_CASE("ill-formed text is read as U+FFFD") {
    const Tokenizer tokenizer = load("gpt2");
    CHECK(tokenizer.encode("a\xFF\xE2\x82z", {}) == tokenizer.encode("a\uFFFD\uFFFDz", {}));
  }

  TEST_CASE("any ids can be decoded and streamed") {
    std::mt19937 random(6);
    for (const std::string& kind : kinds) {
      CAPTURE(kind);
      const Tokenizer tokenizer = load(kind);
      for (int round = 0; round < 40; ++round) {
        std::vector<TokenId> tokens;
        for (int i = 0; i < 12; ++i) {
          tokens.push_back(TokenId{static_cast<int>(random() % 1400) - 20});
        }
        const std::string text = tokenizer.decode(tokens, true);
        REQUIRE(is_well_formed(text));
        const std::string other = streamed(tokenizer, tokens);
        if (text.find(replacement_character) == std::string::npos) REQUIRE(other == text);
      }
    }
  }

  TEST_CASE("pieces and names") {
    const Tokenizer tokenizer = Tokenizer::from_json(
        fixture("gpt2.json"), "t", R"({"eos_token":"<|im_end|>","bos_token":null})", "c");
    const TokenId end = tokenizer.find("<|im_end|>").value();
    CHECK(tokenizer.piece(end) == "<|im_end|>");
    CHECK(tokenizer.is_special(end));
    CHECK_FALSE(tokenizer.is_special(tokenizer.find("<think>").value()));
    CHECK(tokenizer.eos() == end);
    CHECK_FALSE(tokenizer.bos());
    CHECK_FALSE(tokenizer.find("nowhere"));
    CHECK(tokenizer.piece(TokenId{tokenizer.size()}).empty());
    CHECK_FALSE(tokenizer.piece(TokenId{tokenizer.size() - 1}).empty());
    CHECK_FALSE(tokenizer.is_special(TokenId{-5}));
  }

  TEST_CASE("thinking and tool-call markers stay in answers, special or not") {
    for (const char* marker : {"<think>", "</think>", "<tool_call>", "<|tool_call_start|>"}) {
      for (const bool special : {false, true}) {
        CAPTURE(marker);
        CAPTURE(special);
        const Json added = {{"id", 900}, {"content", marker}, {"special", special}};
        Json file = parse_json(fixture("gpt2.json"), "t");
        Json& tokens = file["added_tokens"];
        for (std::size_t i = tokens.size(); i-- > 0;) {
          if (tokens[i]["content"] == marker) tokens.erase(i);
        }
        tokens.push_back(added);
        const Tokenizer tokenizer = Tokenizer::from_json(to_text(file), "t");
        const auto ids = tokenizer.encode(marker + std::string("a<|im_end|>"), as_reference);
        CHECK(ids.front() == TokenId{900});
        CHECK(tokenizer.decode(ids, true) == marker + std::string("a"));
        CHECK(streamed(tokenizer, ids) == marker + std::string("a"));
      }
    }
  }

  TEST_CASE("long hostile texts take linear time") {
    for (const std::string kind : {"llama3", "qwen2", "gpt-4o", "kimi", "spm", "gemma"}) {
      const Tokenizer tokenizer = load(kind);
      std::string marks = "a";
      for (int i = 0; i < 60000; ++i) marks += "\u0301\u0327";
      std::string lines;
      for (int i = 0; i < 300; ++i) lines += std::string(1000, ' ') + "\n";
      for (const std::string& text :
           {std::string(300000, 'a'), std::string(300000, 'A'), std::string(300001, '\t') + "x",
            std::string(300000, '!'), std::string(300000, '7'), marks, lines}) {
        const auto tokens = tokenizer.encode(text, as_reference);
        CHECK(tokens.size() > text.size() / 100);
        if (kind != "qwen2") CHECK(tokenizer.decode(tokens, false).size() == text.size());
      }
    }
  }

  TEST_CASE("a damaged file is an error or a tokenizer, never a crash") {
    std::mt19937 random(9);
    int loaded = 0;
    int refused = 0;
    for (const std::string kind : {"spm", "kimi", "nfkc"}) {
      const std::string good = fixture(kind + ".json");
      const std::size_t head = good.find("\"vocab\"");
      for (int round = 0; round < 150; ++round) {
        std::string text = good;
        for (unsigned i = 0, n = 1 + random() % 3; i < n; ++i) {
          const std::size_t at = random() % (random() % 4 ? head : text.size());
          text[at] = "\"{}[]:,0-9.e\\x7f\xC3 ab"[random() % 20];
        }
        const std::string error = model_error([&] {
          const Tokenizer tokenizer = Tokenizer::from_json(text, "damaged");
          const auto tokens = tokenizer.encode("Hello <|im_start|> 字é 123\n", as_reference);
          CHECK(is_well_formed(tokenizer.decode(tokens, false)));
        });
        ++(error.empty() ? loaded : refused);
        if (!error.empty()) REQUIRE(error.starts_with("damaged: "));
      }
    }
    CHECK(loaded > 20);
    CHECK(refused > 200);
  }
}

}  // namespace tokenizer_test
