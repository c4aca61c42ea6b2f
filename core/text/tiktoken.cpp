#include "core/text/tiktoken.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/file.h"

namespace hyb {
namespace {

constexpr std::int32_t special_tokens = 256;

/// Most bytes that are compared to find merges: a second, a hundred times what Kimi's tokens need.
constexpr std::size_t work_max = std::size_t{1} << 31;

/// nullopt: it is none.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t padding = text.size() - std::min(text.size(), text.find_last_not_of('=') + 1);
  if (text.empty() || text.size() % 4 != 0 || padding > 2) return std::nullopt;
  std::string bytes;
  unsigned bits = 0;
  for (std::size_t i = 0; i < text.size() - padding; ++i) {
    const std::size_t digit = digits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<unsigned>(digit);
    if (i % 4 > 0) bytes += static_cast<char>(bits >> (6 - i % 4 * 2) & 0xFF);
  }
  return bytes;
}

class TiktokenReader {
 public:
  explicit TiktokenReader(std::string_view source) { file_.source = source; }

  TokenizerFile read(std::string_view text, const JsonFields& config) {
    const std::string kind = config.text_or("tokenizer_class", "");
    if (kind != "TikTokenTokenizer") {
      config.fail("tokenizer_class " + quote_name(kind) +
                  " is not supported beside a tiktoken.model, only TikTokenTokenizer");
    }
    read_tokens(text);
    add_merges();
    file_.rest = {{"model",
                   {{"type", "BPE"},
                    {"vocab", Json::object()},
                    {"merges", Json::array()},
                    {"ignore_merges", true}}},
                  {"pre_tokenizer",
                   {{"type", "Sequence"},
                    {"pretokenizers",
                     {{{"type", "Split"},
                       {"pattern", {{"Regex", kimi_words}}},
                       {"behavior", "Isolated"},
                       {"invert", false}},
                      {{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", false}}}}}},
                  {"decoder", {{"type", "ByteLevel"}}},
                  {"added_tokens", special(config)}};
    return std::move(file_);
  }

 private:
  [[noreturn]] void fail(std::size_t line, const std::string& text) const {
    file_.fail(fmt::format("line {}: {}", line + 1, text));
  }

  /// Ids are the numbers of lines: special tokens follow the last one.
  void read_tokens(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      add_token(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::string piece = to_byte_level(std::string(1, static_cast<char>(byte)));
      if (!file_.vocabulary.find(piece)) file_.fail(fmt::format("byte {} is no token", byte));
    }
  }

  void add_token(std::string_view line) {
    const std::size_t number = tokens_.size();
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t space = std::min(line.find(' '), line.size());
    std::optional<std::string> bytes = from_base64(line.substr(0, space));
    const auto rank = parse_number<std::size_t>(line.substr(std::min(space + 1, line.size())));
    if (!bytes || !rank) fail(number, quote_name(line) + " is not a token in base64 and its rank");
    if (*rank != number) fail(number, fmt::format("its rank is {}, not {}", *rank, number));
    if (number + special_tokens >= static_cast<std::size_t>(Vocabulary::ids_max)) {
      fail(number, fmt::format("at most {} tokens are read", Vocabulary::ids_max));
    }
    std::string piece = to_byte_level(*bytes);
    const TokenId id{static_cast<std::int32_t>(number)};
    if (file_.vocabulary.add(piece, id) != Vocabulary::Added::yes) {
      fail(number, "the token is there twice");
    }
    work_ += bytes->size() * bytes->size();
    if (work_ > work_max) fail(number, "tokens are too long to look for merges");
    tokens_.push_back(std::move(piece));
  }

  /// Adds every cut of a token into two that are tokens; those of one token are alike in rank.
  void add_merges() {
    file_.equal_ranks = true;
    for (const std::string& piece : tokens_) {
      std::size_t at = 0;
      for (next(piece, at); at < piece.size(); next(piece, at)) {
        const std::string_view left = std::string_view(piece).substr(0, at);
        const std::string_view right = std::string_view(piece).substr(at);
        if (!file_.vocabulary.find(left) || !file_.vocabulary.find(right)) continue;
        file_.add_merge(left, right);
      }
    }
  }

  /// Characters for bytes have one byte or two.
  static void next(std::string_view piece, std::size_t& at) {
    at += static_cast<unsigned char>(piece[at]) < 0x80 ? 1 : 2;
  }

  Json special(const JsonFields& config) const {
    const auto first = static_cast<std::int32_t>(tokens_.size());
    std::array<std::string, special_tokens> names;
    const Json& named = config.at("added_tokens_decoder");
    if (!named.is_null() && !named.is_object())
      config.fail("added_tokens_decoder is not an object");
    for (const auto& [key, token] : named.items()) {
      const std::int32_t id = parse_number<std::int32_t>(key).value_or(-1);
      const std::string where = config.where() + ": added_tokens_decoder: " + quote_name(key);
      const JsonFields fields(token, where);
      if (id < first || id >= first + special_tokens) {
        fields.fail(fmt::format("is none of the {} ids after {}", special_tokens, first - 1));
      }
      names[static_cast<std::size_t>(id - first)] = fields.text("content");
    }
    Json added = Json::array();
    for (std::int32_t id = first; id < first + special_tokens; ++id) {
      std::string& name = names[static_cast<std::size_t>(id - first)];
      if (name.empty()) name = fmt::format("<|reserved_token_{}|>", id);
      added.push_back({{"id", id},
                       {"content", std::move(name)},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    }
    return added;
  }

  TokenizerFile file_;
  std::vector<std::string> tokens_;
  std::size_t work_ = 0;
};

}  // namespace

TokenizerFile read_tiktoken(std::string_view text, std::string_view source,
                            std::string_view tokenizer_config_json,
                            std::string_view config_source) {
  if (tokenizer_config_json.empty()) {
    throw Error(ErrorKind::model,
                fmt::format("{}: needs a tokenizer_config.json beside it", source));
  }
  const Json config = parse_json(tokenizer_config_json, config_source, {.python_numbers = true});
  return TiktokenReader(source).read(text, JsonFields(config, std::string(config_source)));
}

}  // namespace hyb
