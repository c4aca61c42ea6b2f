#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/io/gguf.h"
#include "core/text/gguf_tokenizer.h"
#include "core/text/tiktoken.h"
#include "core/text/tokenizer.h"
#include "core/text/unicode.h"
#include "tests/fuzz/gguf_target.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/quiet_log.h"
#include "tests/support/tokenizer_text.h"

namespace gguf_tokenizer_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

constexpr int normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6;

/// The keys of a tokenizer, and the bytes that they are views of.
class Keys {
 public:
  std::string architecture = "llama";
  std::string model = "gpt2";
  std::optional<std::string> pre = "gpt-2";
  std::vector<std::string> tokens;
  std::vector<std::int32_t> kinds;
  std::vector<float> scores;
  std::vector<std::string> merges;
  std::map<std::string, std::int32_t> numbers;
  std::map<std::string, std::uint32_t> unsigned_numbers;
  std::map<std::string, std::vector<std::int32_t>> lists;
  std::map<std::string, bool> flags;

  void add(const std::string& token, int kind, float score = 0) {
    tokens.push_back(token);
    kinds.push_back(kind);
    scores.push_back(score);
  }

  const GgufMetadata& metadata() {
    GgufBytes bytes;
    bytes.begin(0, 2 + (pre ? 1 : 0) + (tokens.empty() ? 0 : 1) + (kinds.empty() ? 0 : 1) +
                       (scores.empty() ? 0 : 1) + (merges.empty() ? 0 : 1) + numbers.size() +
                       unsigned_numbers.size() + lists.size() + flags.size());
    bytes.key("general.architecture", architecture);
    bytes.key("tokenizer.ggml.model", model);
    if (pre) bytes.key("tokenizer.ggml.pre", *pre);
    if (!tokens.empty()) bytes.list("tokenizer.ggml.tokens", tokens);
    if (!kinds.empty()) bytes.list("tokenizer.ggml.token_type", kinds);
    if (!scores.empty()) bytes.list("tokenizer.ggml.scores", scores);
    if (!merges.empty()) bytes.list("tokenizer.ggml.merges", merges);
    for (const auto& [key, value] : numbers) bytes.key("tokenizer.ggml." + key, value);
    for (const auto& [key, value] : unsigned_numbers) bytes.key("tokenizer.ggml." + key, value);
    for (const auto& [key, value] : lists) bytes.list("tokenizer.ggml." + key, value);
    for (const auto& [key, value] : flags) bytes.key("tokenizer.ggml." + key, value);
    bytes_ = bytes.bytes();
    header_ = parse_gguf_header(bytes_, bytes_.size(), "x.gguf");
    return header_.value().metadata;
  }

  Tokenizer tokenizer() { return Tokenizer::from_gguf(metadata()); }

 private:
  std::string bytes_;
  std::optional<GgufHeader> header_;
};

/// The same vocabulary and merges as the file says them that llama.cpp's converter writes.
Keys keys_of(const nlohmann::json& tokenizer, const std::string& pre) {
  Keys keys;
  keys.pre = pre;
  std::map<std::int64_t, std::pair<std::string, int>> by_id;
  for (const auto& [piece, id] : tokenizer["model"]["vocab"].items()) by_id[id] = {piece, normal};
  for (const auto& added : tokenizer["added_tokens"]) {
    by_id[added["id"]] = {added["content"], added["special"] ? control : user_defined};
  }
  for (const auto& [id, token] : by_id) {
    while (static_cast<std::int64_t>(keys.tokens.size()) < id) {
      keys.add("[PAD" + std::to_string(keys.tokens.size()) + "]", unused);
    }
    keys.add(token.first, token.second);
  }
  for (const auto& merge : tokenizer["model"]["merges"]) {
    keys.merges.push_back(merge.is_string()
                              ? merge.get<std::string>()
                              : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return keys;
}

std::vector<std::string> strings_of(const std::string& fixture) {
  std::vector<std::string> strings;
  std::istringstream lines(read_test_file("core/text/fixtures/" + fixture + ".golden.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    strings.push_back(nlohmann::json::parse(line)["string"].get<std::string>());
  }
  return strings;
}

std::vector<TokenId> encoded(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text, {.add_special_tokens = false, .parse_special = false});
}

/// SentencePiece's own rule: of all adjacent pairs that are a token, the one of the highest score
/// merges, the leftmost of equal ones; then what is no token becomes bytes.
std::vector<TokenId> sentence_pieces(const Keys& keys, const std::string& text) {
  std::map<std::string, std::size_t> ids;
  for (std::size_t i = 0; i < keys.tokens.size(); ++i) {
    if (keys.kinds[i] == normal) ids[keys.tokens[i]] = i;
  }
  std::vector<std::string> symbols;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    next_code_point(text, at);
    symbols.push_back(text.substr(begin, at - begin));
  }
  for (;;) {
    std::size_t best = symbols.size();
    float best_score = -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ids.find(symbols[i] + symbols[i + 1]);
      if (found == ids.end() || keys.scores[found->second] <= best_score) continue;
      best = i;
      best_score = keys.scores[found->second];
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<TokenId> out;
  for (const std::string& symbol : symbols) {
    if (const auto found = ids.find(symbol); found != ids.end()) {
      out.push_back(TokenId{static_cast<std::int32_t>(found->second)});
      continue;
    }
    for (const char c : symbol) {
      out.push_back(TokenId{3 + static_cast<std::int32_t>(static_cast<unsigned char>(c))});
    }
  }
  return out;
}

/// <unk>, <s>, </s>, bytes, characters, and random pieces of them with random scores.
Keys sentence_piece_keys(std::uint32_t seed) {
  Keys keys;
  keys.model = "llama";
  keys.pre = "default";
  keys.add("<unk>", unknown);
  keys.add("<s>", control);
  keys.add("</s>", control);
  constexpr char digits[] = "0123456789ABCDEF";
  for (int i = 0; i < 256; ++i) {
    keys.add(std::string("<0x") + digits[i / 16] + digits[i % 16] + ">", byte);
  }
  const std::vector<std::string> characters = {"a", "b", "c", "\xE2\x96\x81", "\xC3\xA9"};
  std::mt19937 random(seed);
  std::map<std::string, bool> known;
  const auto add = [&](const std::string& piece) {
    if (!std::exchange(known[piece], true)) {
      keys.add(piece, normal, -static_cast<float>(random() % 1'000'000) / 1000.0F - 1.0F);
    }
  };
  for (const std::string& character : characters) add(character);
  for (int i = 0; i < 120; ++i) {
    std::string piece;
    for (std::uint32_t n = 2 + random() % 4; n > 0; --n) {
      piece += characters[random() % characters.size()];
    }
    add(piece);
  }
  keys.numbers = {{"bos_token_id", 1}, {"eos_token_id", 2}, {"unknown_token_id", 0}};
  keys.flags = {{"add_space_prefix", false}};
  return keys;
}

}  // namespace

TEST_SUITE("core/text/gguf_tokenizer") {
  TEST_CASE("a byte-level tokenizer is the one that its tokenizer.json describes") {
    const std::pair<std::string, std::string> kinds[] = {
        {"gpt2", "gpt-2"},     {"llama3", "llama-bpe"},  {"qwen2", "qwen2"},
        {"qwen35", "qwen35"},  {"gpt-4o", "gpt-4o"},     {"tekken", "tekken"},
        {"digits", "smollm"},  {"gpt-4o", "minimax-m2"}, {"kimi", "kimi-k2"},
        {"gpt-4o", "tiny_aya"}};
    for (const auto& [fixture, pre] : kinds) {
      CAPTURE(fixture);
      auto json = nlohmann::json::parse(read_test_file("core/text/fixtures/" + fixture + ".json"));
      json["normalizer"] = nullptr;  // files of Qwen have one, llama.cpp and GGUF files have none
      if (pre == "kimi-k2") {
        json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = kimi_words;
        json["model"]["ignore_merges"] = true;
      }
      if (pre == "tiny_aya") {  // digits in groups from the right, as Cohere's
        nlohmann::json& parts = json["pre_tokenizer"]["pretokenizers"];
        nlohmann::json digits = parts[0];
        digits["pattern"]["Regex"] = R"(\d{1,3}(?=(?:\d{3})*\b))";
        parts.insert(parts.begin(), digits);
      }
      Keys keys = keys_of(json, pre);
      const Tokenizer from_gguf = keys.tokenizer();
      const Tokenizer from_json = Tokenizer::from_json(json.dump(), "tokenizer.json");
      std::size_t tokens = 0;
      for (const std::string& text : strings_of(fixture)) {
        CAPTURE(text);
        const std::vector<TokenId> ids = encoded(from_gguf, text);
        REQUIRE(ids == encoded(from_json, text));
        CHECK(from_gguf.decode(ids, false) == from_json.decode(ids, false));
        tokens += ids.size();
      }
      CHECK(tokens > 1000);
    }
  }

  TEST_CASE("merges by scores make what SentencePiece makes") {
    std::mt19937 random(3);
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      Keys keys = sentence_piece_keys(seed);
      const Tokenizer tokenizer = keys.tokenizer();
      for (int round = 0; round < 100; ++round) {
        std::string text;
        const char* const parts[] = {"a", "b", "c", " ", "\xC3\xA9", "\xE2\x82\xAC"};
        for (std::uint32_t n = random() % 30; n > 0; --n) text += parts[random() % 6];
        std::string spelled;
        for (const char c : text) c == ' ' ? spelled += "\xE2\x96\x81" : spelled += c;
        CAPTURE(text);
        const std::vector<TokenId> ids = encoded(tokenizer, text);
        REQUIRE(ids == sentence_pieces(keys, spelled));
        CHECK(tokenizer.decode(ids, true) == text);
      }
    }
  }

  TEST_CASE("a prefix of a space, and BOS and EOS where the file or the kind wants them") {
    Keys keys = sentence_piece_keys(1);
    keys.flags = {{"add_eos_token", true}};
    Tokenizer tokenizer = keys.tokenizer();
    CHECK(tokenizer.bos() == TokenId{1});
    CHECK(tokenizer.eos() == TokenId{2});
    const std::vector<TokenId> ids =
        tokenizer.encode("a", {.add_special_tokens = true, .parse_special = false});
    CHECK(ids.front() == TokenId{1});  // by default of the kind
    CHECK(ids.back() == TokenId{2});
    CHECK(tokenizer.decode(ids, true) == "a");
    CHECK(encoded(tokenizer, "a") == sentence_pieces(keys,
                                                     "\xE2\x96\x81"
                                                     "a"));
    CHECK(encoded(tokenizer, "</s>").size() > 1);
    CHECK(tokenizer.encode("</s>", {.add_special_tokens = false, .parse_special = true}) ==
          std::vector<TokenId>{TokenId{2}});
    keys.flags["add_bos_token"] = false;
    tokenizer = keys.tokenizer();
    CHECK(tokenizer.encode("a", {.add_special_tokens = true, .parse_special = false}).front() !=
          TokenId{1});
  }

  TEST_CASE("what untrusted text spells is no control token, even where words come whole") {
    Keys keys;
    keys.pre = "llama-bpe";  // a word that is a token needs no merges
    keys.tokens = {"<", "|", "e", ">", "<|", "e|", "<|e|>", "x"};
    keys.kinds = {normal, normal, normal, normal, normal, normal, control, normal};
    keys.merges = {"< |", "e |"};
    const Tokenizer tokenizer = keys.tokenizer();
    for (const TokenId token : encoded(tokenizer, "<|e|>")) CHECK(token != TokenId{6});
    CHECK(tokenizer.encode("<|e|>", {.add_special_tokens = false, .parse_special = true}) ==
          std::vector<TokenId>{TokenId{6}});
    CHECK(tokenizer.is_special(TokenId{6}));
  }

  TEST_CASE("what is not supported or damaged is named with its key") {
    const auto refused = [](const auto& change) {
      Keys keys;
      keys.tokens = {"a", "b", "ab", "<s>"};
      keys.kinds = {normal, normal, normal, control};
      keys.merges = {"a b"};
      change(keys);
      return model_error([&] { keys.tokenizer(); });
    };
    CHECK(refused([](Keys&) {}).empty());
    CHECK(contains(
        refused([](Keys& k) { k.model = "bert"; }),
        "key \"tokenizer.ggml.model\": \"bert\" is not supported; gpt2, llama and gemma4"));
    CHECK(contains(refused([](Keys& k) { k.pre = "deepseek-llm"; }),
                   "key \"tokenizer.ggml.pre\": \"deepseek-llm\" is not known"));
    CHECK(contains(refused([](Keys& k) { k.pre.reset(); }), "does not say how text is cut"));
    CHECK(contains(refused([](Keys& k) { k.tokens.clear(); }), "the vocabulary is missing"));
    CHECK(contains(refused([](Keys& k) { k.kinds.pop_back(); }),
                   "key \"tokenizer.ggml.token_type\": it has 3 entries, tokenizer.ggml.tokens 4"));
    CHECK(contains(refused([](Keys& k) { k.tokens[1] = "a"; }), "token 1, \"a\", is there twice"));
    CHECK(contains(refused([](Keys& k) { k.tokens[1] = "\xFF"; }), "token 1 is not UTF-8"));
    CHECK(contains(refused([](Keys& k) { k.merges.clear(); }), "tokenizer.ggml.merges"));
    CHECK(contains(refused([](Keys& k) { k.merges.push_back("ab"); }),
                   "entry 1, \"ab\", is not two"));
    CHECK(contains(refused([](Keys& k) { k.merges.push_back("ab z"); }), "not in the vocabulary"));
    CHECK(contains(refused([](Keys& k) {
                     k.numbers = {{"bos_token_id", 4}};
                     k.flags = {{"add_bos_token", true}};
                   }),
                   "key \"tokenizer.ggml.bos_token_id\": 4 is no token: there are 4"));
    CHECK(contains(refused([](Keys& k) {
                     k.model = "llama";
                     k.scores = {0, 0, 0, 0};
                   }),
                   "all scores are 0"));
    CHECK(contains(refused([](Keys& k) {
                     k.model = "llama";
                     k.scores = {1, 2};
                   }),
                   "key \"tokenizer.ggml.scores\": it has 2 entries"));
    CHECK(contains(refused([](Keys& k) {
                     k.model = "llama";
                     k.scores = {1, 2, 3, 4};
                     k.tokens[2] = std::string(200'000, 'a');
                   }),
                   "the tokens up to 2 are too long to be cut in all ways"));
    CHECK(contains(refused([](Keys& k) {
                     k.model = "llama";
                     k.scores = {1, std::numeric_limits<float>::quiet_NaN(), 3, 4};
                   }),
                   "a score is not a number"));
    CHECK(contains(refused([](Keys& k) {
                     k.numbers = {{"bos_token_id", -2}};
                     k.flags = {{"add_bos_token", true}};
                   }),
                   "-2 is no token"));
  }

  TEST_CASE("old files of Llama 3 are known by their vocabulary") {
    Keys keys;
    keys.pre = std::nullopt;
    keys.add("a", normal);
    keys.add("b", normal);
    keys.add("ab", normal);
    while (keys.tokens.size() < 128'000) {
      keys.add("[PAD" + std::to_string(keys.tokens.size()) + "]", unused);
    }
    keys.scores.clear();
    keys.merges = {"a b"};
    CHECK(contains(model_error([&] { keys.tokenizer(); }), "does not say how text is cut"));
    keys.architecture = "lfm2";
    CHECK(encoded(keys.tokenizer(), "ab") == std::vector<TokenId>{TokenId{2}});
    keys.architecture = "llama";
    keys.tokens[127'999] = "<|begin_of_text|>";
    keys.kinds[127'999] = control;
    CHECK(encoded(keys.tokenizer(), "ab") == std::vector<TokenId>{TokenId{2}});
  }

  TEST_CASE("tokens that end an answer, by key and by spelling") {
    Keys keys;
    for (const char* token : {"a", "<|end|>", "<|im_end|>", "</s>", "x", "<|endoftext|>"}) {
      keys.add(token, normal);
    }
    keys.numbers = {{"eot_token_id", 4}, {"eos_token_id", 5}, {"eom_token_id", -1}};
    const auto ids = [&] {
      std::vector<int> found;
      for (const TokenId token : end_tokens_of(keys.metadata())) found.push_back(index(token));
      return found;
    };
    CHECK(ids() == std::vector<int>{1, 2, 3, 4, 5});
    keys.add("<|return|>", control);
    keys.add("<|call|>", control);
    CHECK(ids() == std::vector<int>{2, 3, 4, 5, 6, 7});  // harmony: <|end|> ends a message
    keys.add("<|tool_response>", control);
    CHECK(ids() == std::vector<int>{2, 4, 5, 6, 7, 8});
    keys.lists["eos_token_ids"] = {0, 4};
    CHECK(ids() == std::vector<int>{0, 2, 4, 5, 6, 7, 8});
    keys.lists["eos_token_ids"] = {9};
    CHECK(contains(model_error(ids), "key \"tokenizer.ggml.eos_token_ids\": 9 is no token"));
    keys.lists.clear();
    keys.unsigned_numbers["fim_pad_token_id"] = 0xFFFF'FFFF;
    CHECK(ids() == std::vector<int>{2, 4, 5, 6, 7, 8});
    keys.numbers["eom_token_id"] = 99;
    CHECK(contains(model_error(ids), "key \"tokenizer.ggml.eom_token_id\": 99 is no token"));
  }

  TEST_CASE("ends of answers are control tokens whatever their type, unless merges make them") {
    const QuietLog quiet;
    constexpr EncodeOptions of_template = {.add_special_tokens = false, .parse_special = true};
    Keys keys;
    keys.tokens = {"<", "/", "s", ">", "</", "</s", "</s>", "<|im_end|>", "<eos>"};
    keys.merges = {"< /", "</ s", "</s >"};
    for (const bool has_types : {false, true}) {
      if (has_types) {
        keys.kinds.assign(keys.tokens.size(), normal);
        keys.kinds.back() = user_defined;
      }
      const Tokenizer tokenizer = keys.tokenizer();
      CHECK(tokenizer.encode("<|im_end|>", of_template) == std::vector{TokenId{7}});
      CHECK(tokenizer.encode("<eos>", of_template) == std::vector{TokenId{8}});
      for (const TokenId token : encoded(tokenizer, "<|im_end|>")) CHECK(token != TokenId{7});
      CHECK(tokenizer.is_special(TokenId{7}));
      CHECK(tokenizer.is_special(TokenId{8}) == !has_types);
      CHECK_FALSE(tokenizer.is_special(TokenId{6}));
    }
  }

  TEST_CASE("BOS and EOS of files that name none") {
    const QuietLog quiet;
    constexpr EncodeOptions raw = {.add_special_tokens = true, .parse_special = false};
    Keys keys = sentence_piece_keys(1);
    const Tokenizer named = keys.tokenizer();
    keys.numbers.clear();
    Tokenizer tokenizer = keys.tokenizer();
    CHECK(tokenizer.bos() == TokenId{1});
    CHECK(tokenizer.eos() == TokenId{2});
    CHECK(tokenizer.encode("ab", raw) == named.encode("ab", raw));
    CHECK(tokenizer.encode("ab", raw).front() == TokenId{1});
    keys.numbers["bos_token_id"] = -1;
    CHECK(keys.tokenizer().encode("ab", raw).front() != TokenId{1});

    Keys bytes;
    for (char c = 'a'; c <= 'm'; ++c) bytes.add(std::string(1, c), normal);
    bytes.scores.clear();
    bytes.tokens[2] = "ab";
    bytes.merges = {"a b"};
    bytes.flags = {{"add_bos_token", true}};
    CHECK(bytes.tokenizer().bos() == std::nullopt);  // 11 is a letter
    CHECK(bytes.tokenizer().encode("ab", raw) == std::vector{TokenId{2}});
    CHECK(end_tokens_of(bytes.metadata()).empty());
    bytes.tokens[11] = "<|end_of_all|>";
    bytes.kinds[11] = control;
    tokenizer = bytes.tokenizer();
    CHECK(tokenizer.encode("ab", raw) == std::vector{TokenId{11}, TokenId{2}});
    CHECK(end_tokens_of(bytes.metadata()) == std::vector{TokenId{11}});
  }

  TEST_CASE("what the fuzzer found is read, or refused in words (scripts/fuzz/fuzz.sh)") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(HYB_TESTS_DIR "/fuzz/gguf")) {
      CAPTURE(entry.path().string());
      CHECK(try_gguf(content(entry.path())));
      ++files;
    }
    CHECK(files > 10);
  }
}

}  // namespace gguf_tokenizer_test
