#include "core/text/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/text/tiktoken.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

/// Lists what tokenizer.ggml.token_type says of a token.
enum class TokenKind : std::int64_t { normal = 1, unknown, control, user_defined, unused, byte };

constexpr std::string_view meta_space = "\xE2\x96\x81";  // ▁, SentencePiece's space

// Patterns as published in tokenizer.json (llama.cpp rewrites them for its own engine).
constexpr std::string_view words_of_gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen35_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view gpt4o_words =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view tekken_words =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Says how a name of tokenizer.ggml.pre cuts text.
struct Words {
  std::string_view name;
  std::string_view pattern;
  std::string_view before = {};  ///< a pattern that cuts first
  bool ignores_merges = false;
  bool adds_bos = false;  ///< where the file does not say
};

constexpr std::string_view one_digit = R"(\p{N})";
constexpr std::string_view digit_groups = R"(\d{1,3}(?=(?:\d{3})*\b))";

constexpr Words known_words[] = {
    {"llama-bpe", llama3_words, {}, true, true},
    {"llama3", llama3_words, {}, true, true},
    {"llama-v3", llama3_words, {}, true, true},
    {"falcon3", llama3_words, {}, true, true},
    {"falcon-h1", llama3_words, {}, true, true},
    {"lfm2", llama3_words, {}, true, true},
    {"pixtral", llama3_words, {}, true, true},
    {"dbrx", llama3_words},
    {"smaug-bpe", llama3_words},
    {"qwen2", qwen2_words},
    {"deepseek-r1-qwen", qwen2_words},
    {"qwen35", qwen35_words},
    {"gpt-4o", gpt4o_words},
    {"llama4", gpt4o_words},
    {"kanana2", gpt4o_words},
    {"minimax-m2", gpt4o_words},
    {"kimi-k2", kimi_words, {}, true},
    {"tekken", tekken_words, {}, true, true},
    {"smollm", words_of_gpt2, one_digit},
    {"starcoder", words_of_gpt2, one_digit},
    {"refact", words_of_gpt2, one_digit},
    {"command-r", words_of_gpt2, one_digit},
    {"codeshell", words_of_gpt2, one_digit},
    {"mellum2", words_of_gpt2, one_digit},
    {"gpt-2", words_of_gpt2},
    {"mpt", words_of_gpt2},
    {"olmo", words_of_gpt2},
    {"mellum", words_of_gpt2},
    {"granite-docling", words_of_gpt2},
    {"tiny_aya", gpt4o_words, digit_groups},
    {"cohere2moe", gpt4o_words, digit_groups},
};

Json split_step(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json replace_step(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

constexpr auto normal_kind = static_cast<std::int64_t>(TokenKind::normal);

/// Commands open a file's tokenizer more than once.
void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) log::warning(text);
}

std::string key_of_token(std::string_view name) {
  return fmt::format("tokenizer.ggml.{}_token_id", name);
}

TokenId token_of_id(const GgufMetadata& keys, std::string_view key, std::int64_t id,
                    std::size_t tokens) {
  if (id >= 0 && id < static_cast<std::int64_t>(tokens)) {
    return TokenId{static_cast<std::int32_t>(id)};
  }
  throw Error(ErrorKind::model,
              fmt::format("{}: {} is no token: there are {}", keys.place(key), id, tokens));
}

/// The token that a key names; -1 is none, of either sign.
std::optional<TokenId> token_at(const GgufMetadata& keys, std::string_view key,
                                std::size_t tokens) {
  const std::optional<std::int64_t> id = keys.integer(key);
  if (!id || *id == -1 || *id == std::int64_t{UINT32_MAX}) return std::nullopt;
  return token_of_id(keys, key, *id, tokens);
}

/// Tokens that end an answer by their spelling, as llama.cpp knows them.
constexpr std::string_view answer_ends =
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> "
    "<|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> "
    "<end_of_utterance> <eos> <turn|> <|tool_response> <｜end▁of▁sentence｜> [e~[";

/// Gemma 4 has it as a piece of text.
constexpr std::string_view normal_answer_end = "</s>";

bool answer_end_is_normal(std::span<const std::string_view> tokens) {
  return std::find(tokens.begin(), tokens.end(), "<|tool_response>") != tokens.end();
}

bool ends_answer(std::string_view token) {
  static const std::vector<std::string_view> ends = words_of(answer_ends);
  return std::ranges::find(ends, token) != ends.end();
}

/// Most bytes that are compared for merges by scores: some seconds, a thousand times what Gemma's
/// 262,144 tokens need.
constexpr std::size_t scored_work_max = std::size_t{1} << 34;

/// Builds one tokenizer from the keys of one file.
class Builder {
 public:
  explicit Builder(const GgufMetadata& keys)
      : keys_(keys),
        tokens_(keys.texts("tokenizer.ggml.tokens")),
        kinds_(keys.integers("tokenizer.ggml.token_type")) {
    if (tokens_.empty()) fail("tokenizer.ggml.tokens", "the vocabulary is missing");
    if (tokens_.size() > static_cast<std::size_t>(Vocabulary::ids_max)) {
      fail("tokenizer.ggml.tokens",
           fmt::format("{} tokens, at most {} are read", tokens_.size(), Vocabulary::ids_max));
    }
    kinds_.resize(kinds_.empty() ? tokens_.size() : kinds_.size(), normal_kind);
    check_length("tokenizer.ggml.token_type", kinds_.size());
    force_answer_ends();
  }

  TokenizerFile build() {
    const std::string model(keys_.text("tokenizer.ggml.model").value_or(""));
    file_.source = keys_.place("tokenizer.ggml.model");
    file_.rest = Json::object();
    Json bpe = {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}};
    if (model == "gpt2") {
      build_byte_level(bpe);
    } else if (model == "llama") {
      build_sentence_piece(bpe);
    } else if (model == "gemma4") {
      build_characters(bpe);
    } else {
      fail("tokenizer.ggml.model",
           fmt::format("{} is not supported; gpt2, llama and gemma4 are", quote_name(model)));
    }
    file_.rest["model"] = std::move(bpe);
    add_added_tokens();
    add_bos_and_eos();
    return std::move(file_);
  }

 private:
  [[noreturn]] void fail(std::string_view key, const std::string& text) const {
    throw Error(ErrorKind::model, fmt::format("{}: {}", keys_.place(key), text));
  }

  void check_length(std::string_view key, std::size_t length) const {
    if (length == tokens_.size()) return;
    fail(key, fmt::format("it has {} entries, tokenizer.ggml.tokens {}", length, tokens_.size()));
  }

  /// Does what llama.cpp does: else those of the template would be cut into letters. Not so those
  /// that are user-defined, such as Gemma's tag </s>; and what a merge makes is a piece of text.
  void force_answer_ends() {
    const bool is_normal_there = answer_end_is_normal(tokens_);
    std::vector<std::size_t> forced;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool is_added = kind(i) == TokenKind::control || kind(i) == TokenKind::user_defined;
      if (is_added || !ends_answer(tokens_[i])) continue;
      if (is_normal_there && tokens_[i] == normal_answer_end) continue;
      forced.push_back(i);
    }
    if (forced.empty()) return;
    std::set<std::string> merged;
    for (const std::string_view merge : keys_.texts("tokenizer.ggml.merges")) {
      std::string made(merge);
      if (const std::size_t space = made.find(' ', 1); space < made.size()) made.erase(space, 1);
      if (ends_answer(made)) merged.insert(std::move(made));
    }
    std::erase_if(forced, [&](std::size_t i) { return merged.contains(std::string(tokens_[i])); });
    if (forced.empty()) return;
    for (const std::size_t i : forced) kinds_[i] = static_cast<std::int64_t>(TokenKind::control);
    warn_once(
        fmt::format("{}: tokens that are spelled as ends of answers, such as {}, are no control "
                    "tokens there; they are taken as such",
                    keys_.place("tokenizer.ggml.token_type"), quote_name(tokens_[forced[0]])));
  }

  TokenKind kind(std::size_t i) const { return static_cast<TokenKind>(kinds_[i]); }

  /// True of a token that is the text of a person, and not of the model's makers.
  bool is_text(std::size_t i) const {
    return kind(i) != TokenKind::control && kind(i) != TokenKind::unused;
  }

  void add_vocabulary(const auto& is_in) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (!is_in(i)) continue;
      if (!is_well_formed(tokens_[i])) {
        fail("tokenizer.ggml.tokens", fmt::format("token {} is not UTF-8", i));
      }
      const auto added = file_.vocabulary.add(tokens_[i], TokenId{static_cast<std::int32_t>(i)});
      if (added == Vocabulary::Added::yes) continue;
      fail("tokenizer.ggml.tokens",
           fmt::format("token {}, {}, is there twice", i, quote_name(tokens_[i])));
    }
  }

  /// "a b", cut at the first space that leaves something before it.
  void add_listed_merges() {
    std::size_t number = 0;
    for (const std::string_view merge : keys_.texts("tokenizer.ggml.merges")) {
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merge.size()) {
        fail("tokenizer.ggml.merges",
             fmt::format("entry {}, {}, is not two pieces", number, quote_name(merge)));
      }
      file_.add_merge(merge.substr(0, space), merge.substr(space + 1));
      ++number;
    }
    if (number == 0) fail("tokenizer.ggml.merges", "it is missing");
  }

  /// Files of before May 2024, and ollama's, do not name how text is cut; their vocabulary may.
  const Words& words() const {
    constexpr std::string_view key = "tokenizer.ggml.pre";
    std::string name(keys_.text(key).value_or("default"));
    if (name == "default") {
      const bool is_llama3 =
          std::find(tokens_.begin(), tokens_.end(), "<|begin_of_text|>") != tokens_.end() &&
          tokens_.size() >= 128'000;
      const bool is_lfm2 = keys_.text("general.architecture") == "lfm2";
      if (!is_llama3 && !is_lfm2) {
        fail(key,
             "it does not say how text is cut into words, as files of before May 2024 don't; "
             "convert the model again with a newer llama.cpp, or get a newer file");
      }
      name = is_lfm2 ? "lfm2" : "llama-bpe";
    }
    const auto found = std::find_if(std::begin(known_words), std::end(known_words),
                                    [&](const Words& words) { return words.name == name; });
    if (found == std::end(known_words)) {
      fail(key, fmt::format("{} is not known: how text is cut into words", quote_name(name)));
    }
    return *found;
  }

  /// The user-defined tokens that some merge names.
  std::set<std::string> merged_added_tokens() const {
    std::set<std::string> added, merged;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (kind(i) == TokenKind::user_defined) added.emplace(tokens_[i]);
    }
    if (added.empty()) return merged;
    for (const std::string_view merge : keys_.texts("tokenizer.ggml.merges")) {
      if (merge.empty()) continue;
      const std::size_t space = std::min(merge.find(' ', 1), merge.size() - 1);
      const std::string left(merge.substr(0, space)), right(merge.substr(space + 1));
      for (const std::string& piece : {left, right, left + right}) {
        if (added.contains(piece)) merged.insert(piece);
      }
    }
    return merged;
  }

  void build_byte_level(Json& model) {
    const Words& how = words();
    adds_bos_ = how.adds_bos;
    // One that no merge makes is found by its spelling alone: words may come whole, without merges.
    const std::set<std::string> merged = merged_added_tokens();
    add_vocabulary([&](std::size_t i) {
      return kind(i) == TokenKind::user_defined ? merged.contains(std::string(tokens_[i]))
                                                : is_text(i);
    });
    add_listed_merges();
    if (how.ignores_merges) model["ignore_merges"] = true;
    Json steps = Json::array();
    if (!how.before.empty()) steps.push_back(split_step(how.before));
    steps.push_back(split_step(how.pattern));
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
    file_.rest["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
    file_.rest["decoder"] = {{"type", "ByteLevel"}};
  }

  void set_byte_fallback(Json& model) {
    model["byte_fallback"] = true;
    model["fuse_unk"] = true;
    if (const auto unknown = token_of("unknown")) {
      const std::string_view piece = tokens_[static_cast<std::size_t>(index(*unknown))];
      if (!file_.vocabulary.find(piece)) file_.vocabulary.add(piece, *unknown);
      model["unk_token"] = piece;
    }
  }

  void build_sentence_piece(Json& model) {
    adds_bos_ = true;
    const std::vector<double> scores = keys_.reals("tokenizer.ggml.scores");
    check_length("tokenizer.ggml.scores", scores.size());
    if (std::all_of(scores.begin(), scores.end(), [](double score) { return score == 0; })) {
      fail("tokenizer.ggml.scores", "all scores are 0, so there is no order of merges");
    }
    if (std::any_of(scores.begin(), scores.end(), [](double score) { return std::isnan(score); })) {
      fail("tokenizer.ggml.scores", "a score is not a number");
    }
    add_vocabulary([&](std::size_t i) { return is_text(i); });
    add_scored_merges(scores);
    set_byte_fallback(model);
    const bool has_prefix = keys_.flag("tokenizer.ggml.add_space_prefix").value_or(true);
    Json normalizers = Json::array();
    if (has_prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", meta_space}});
    normalizers.push_back(replace_step(" ", meta_space));
    file_.rest["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
    Json decoders = {replace_step(meta_space, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
    if (has_prefix) {
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    file_.rest["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  }

  static bool begins_character(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }

  /// Every way to cut a token into two that are tokens: by score, then the longer left piece, then
  /// the longer right one, in characters, comes first.
  void add_scored_merges(const std::vector<double>& scores) {
    struct Cut {
      double score;
      std::uint32_t left, right;  ///< characters
      std::string_view token;
      std::size_t left_bytes;
    };
    const auto merges = [&](std::size_t i) {
      return kind(i) == TokenKind::normal || kind(i) == TokenKind::user_defined;
    };
    const auto is_piece = [&](std::string_view text) {
      const auto token = file_.vocabulary.find(text);
      return token && merges(static_cast<std::size_t>(index(*token)));
    };
    std::vector<Cut> cuts;
    std::size_t bytes = 0, work = 0;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (!merges(i)) continue;
      const std::string_view token = tokens_[i];
      work += token.size() * token.size();  // a header's bytes are less than 2^29
      if (work > scored_work_max || bytes > UINT32_MAX) {
        fail("tokenizer.ggml.tokens",
             fmt::format("the tokens up to {} are too long to be cut in all ways", i));
      }
      const auto characters =
          static_cast<std::uint32_t>(std::count_if(token.begin(), token.end(), begins_character));
      std::uint32_t left = 0;
      for (std::size_t at = 1; at < token.size(); ++at) {
        if (!begins_character(token[at])) continue;
        ++left;
        if (is_piece(token.substr(0, at)) && is_piece(token.substr(at))) {
          cuts.push_back({scores[i], left, characters - left, token, at});
          bytes += token.size();
        }
      }
    }
    std::stable_sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) {
      return std::tuple(b.score, b.left, b.right) < std::tuple(a.score, a.left, a.right);
    });
    if (bytes > UINT32_MAX) fail("tokenizer.ggml.tokens", "its merges have 4 GiB or more");
    for (const Cut& cut : cuts) {
      file_.add_merge(cut.token.substr(0, cut.left_bytes), cut.token.substr(cut.left_bytes));
    }
  }

  void build_characters(Json& model) {
    always_adds_bos_ = true;
    add_vocabulary([&](std::size_t i) { return is_text(i); });
    add_listed_merges();
    set_byte_fallback(model);
    file_.rest["normalizer"] = replace_step(" ", meta_space);
    file_.rest["pre_tokenizer"] = split_step(R"([^\n]+|[\n]+)");
    file_.rest["decoder"] = {
        {"type", "Sequence"},
        {"decoders",
         {replace_step(meta_space, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  }

  /// Those of type user-defined whose texts have SentencePiece's spaces are made by merges: they
  /// are white space, and matched after spaces became these.
  void add_added_tokens() {
    Json added = Json::array();
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool is_special = kind(i) == TokenKind::control;
      if (!is_special && kind(i) != TokenKind::user_defined) continue;
      if (!is_special && tokens_[i].find(meta_space) != std::string_view::npos) continue;
      if (tokens_[i].empty()) continue;
      added.push_back({{"id", i},
                       {"content", tokens_[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", is_special}});
    }
    file_.rest["added_tokens"] = std::move(added);
  }

  std::optional<TokenId> token_of(std::string_view name) const {
    const std::string key = key_of_token(name);
    if (!keys_.has(key)) return gguf_default_token(keys_, name);
    return token_at(keys_, key, tokens_.size());
  }

  void add_bos_and_eos() {
    const bool adds_bos =
        always_adds_bos_ || keys_.flag("tokenizer.ggml.add_bos_token").value_or(adds_bos_);
    const bool adds_eos = keys_.flag("tokenizer.ggml.add_eos_token").value_or(false);
    Json sequence = Json::array(), tokens = Json::object();
    const auto add = [&](std::string_view name) {
      const std::optional<TokenId> token = token_of(name);
      const std::string key = key_of_token(name);
      if (!token && !keys_.has(key)) {
        warn_once(keys_.place(key) + " is missing, so prompts get no such token");
      }
      if (!token) return;
      const std::string text(tokens_[static_cast<std::size_t>(index(*token))]);
      sequence.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
      tokens[text] = {{"id", text}, {"ids", {index(*token)}}, {"tokens", {text}}};
    };
    if (adds_bos) add("bos");
    sequence.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (adds_eos) add("eos");
    if (tokens.empty()) return;
    file_.rest["post_processor"] = {{"type", "TemplateProcessing"},
                                    {"single", std::move(sequence)},
                                    {"pair", Json::array()},
                                    {"special_tokens", std::move(tokens)}};
  }

  const GgufMetadata& keys_;
  std::vector<std::string_view> tokens_;
  std::vector<std::int64_t> kinds_;
  TokenizerFile file_;
  bool adds_bos_ = false;  ///< where the file does not say
  bool always_adds_bos_ = false;
};

}  // namespace

std::optional<TokenId> gguf_default_token(const GgufMetadata& keys, std::string_view name) {
  struct Default {
    std::string_view model, name;
    std::size_t id;
  };
  constexpr Default defaults[] = {{"llama", "bos", 1},
                                  {"llama", "eos", 2},
                                  {"llama", "unknown", 0},
                                  {"gpt2", "bos", 11},
                                  {"gpt2", "eos", 11}};
  const std::string_view model = keys.text("tokenizer.ggml.model").value_or("");
  const auto found = std::find_if(
      std::begin(defaults), std::end(defaults),
      [&](const Default& token) { return token.model == model && token.name == name; });
  if (found == std::end(defaults)) return std::nullopt;
  const std::vector<std::string_view> tokens = keys.texts("tokenizer.ggml.tokens");
  if (found->id >= tokens.size()) return std::nullopt;
  // Token 11 of most vocabularies is a comma.
  const std::vector<std::int64_t> kinds = keys.integers("tokenizer.ggml.token_type");
  const auto kind =
      found->id < kinds.size() ? static_cast<TokenKind>(kinds[found->id]) : TokenKind::normal;
  const bool is_special =
      kind == TokenKind::control || kind == TokenKind::unknown || ends_answer(tokens[found->id]);
  if (!is_special && (model == "gpt2" || !kinds.empty())) return std::nullopt;
  return TokenId{static_cast<std::int32_t>(found->id)};
}

TokenizerFile tokenizer_of(const GgufMetadata& keys) { return Builder(keys).build(); }

std::vector<TokenId> end_tokens_of(const GgufMetadata& keys) {
  constexpr std::array<std::string_view, 6> end_keys = {"eos",     "eot",     "eom",
                                                        "fim_pad", "fim_rep", "fim_sep"};
  const std::vector<std::string_view> tokens = keys.texts("tokenizer.ggml.tokens");
  std::map<std::string_view, std::int32_t> found;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (ends_answer(tokens[i])) found.emplace(tokens[i], static_cast<std::int32_t>(i));
  }
  // In harmony <|end|> ends a message, after which another one may follow.
  if (found.contains("<|return|>") && found.contains("<|call|>")) found.erase("<|end|>");
  if (found.contains("<|calls|>") && found.contains("<|flush|>")) found.erase("<|end|>");
  if (answer_end_is_normal(tokens)) found.erase(normal_answer_end);
  std::vector<TokenId> all;
  for (const auto& [text, id] : found) all.push_back(TokenId{id});
  for (const std::string_view name : end_keys) {
    const auto id = token_at(keys, key_of_token(name), tokens.size());
    if (id) all.push_back(*id);
  }
  if (!keys.has(key_of_token("eos"))) {
    if (const auto id = gguf_default_token(keys, "eos")) all.push_back(*id);
  }
  constexpr std::string_view list = "tokenizer.ggml.eos_token_ids";  // ollama's
  for (const std::int64_t id : keys.integers(list)) {
    all.push_back(token_of_id(keys, list, id, tokens.size()));
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<NamedTemplate> gguf_chat_templates(const GgufMetadata& keys) {
  constexpr std::string_view key = "tokenizer.chat_template";
  std::vector<NamedTemplate> templates;
  if (const auto text = keys.text(key)) templates.push_back({"default", std::string(*text)});
  for (const std::string_view name : keys.keys()) {
    if (name.size() <= key.size() + 1 || !name.starts_with(key) || name[key.size()] != '.')
      continue;
    templates.push_back(
        {std::string(name.substr(key.size() + 1)), std::string(keys.text(name).value())});
  }
  return templates;
}

}  // namespace hyb
