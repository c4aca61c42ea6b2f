#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include "app/base/texts.h"
#include "app/commands/commands.h"
#include "app/request/model_texts.h"
#include "app/request/text_input.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

struct TokenizeFlags {
  std::string model = "demo";
  TextInput input;
  bool allow_special = false;
  bool bare = false;
  bool ids = false;
  bool count = false;
  bool json = false;
  bool lines = false;
  bool decode = false;
};

std::vector<TokenId> encode(const TokenizeFlags& options, const Tokenizer& tokenizer,
                            std::string_view text) {
  return tokenizer.encode(
      text, {.add_special_tokens = !options.bare, .parse_special = options.allow_special});
}

std::string ids_text(const std::vector<TokenId>& tokens, std::string_view separator) {
  std::string text;
  for (const TokenId token : tokens) {
    if (!text.empty()) text += separator;
    text += std::to_string(index(token));
  }
  return text;
}

/// A token's text on one line: as a JSON string, so that spaces show, with bytes that are no whole
/// character as <0xC3>.
std::string spelled(const Tokenizer& tokenizer, TokenId token) {
  const std::string bytes = tokenizer.bytes_of(token);
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Unit unit = read_utf8(bytes, at);
    const bool is_whole = unit.kind == Utf8Unit::Kind::character;
    for (const std::size_t end = at + unit.bytes; at < end; ++at) {
      text += is_whole ? std::string(1, bytes[at])
                       : fmt::format("<0x{:02X}>", static_cast<unsigned char>(bytes[at]));
    }
  }
  return to_text(Json(text));
}

std::string output(const TokenizeFlags& options, const Tokenizer& tokenizer,
                   std::string_view text) {
  const std::vector<TokenId> tokens = encode(options, tokenizer, text);
  if (options.count) return fmt::format("{}\n", tokens.size());
  if (options.json) return "[" + ids_text(tokens, ",") + "]\n";
  if (options.ids) return ids_text(tokens, " ") + "\n";
  std::string table;
  for (const TokenId token : tokens) {
    table += fmt::format("{}\t{}\n", index(token), spelled(tokenizer, token));
  }
  return table;
}

/// Ids between white space, commas and brackets, so that every form printed here can come back.
std::vector<TokenId> parse_ids(std::string_view text, const Tokenizer& tokenizer) {
  constexpr std::string_view between = " \t\r\n,[]";
  std::vector<TokenId> tokens;
  for (std::size_t at = text.find_first_not_of(between); at != std::string_view::npos;
       at = text.find_first_not_of(between, at)) {
    const std::string_view word = text.substr(at, text.find_first_of(between, at) - at);
    const std::int32_t id = parse_number<std::int32_t>(word).value_or(-1);
    if (id < 0 || id >= tokenizer.size()) {
      throw Error(ErrorKind::usage, fmt::format("--decode: '{}' is no token id below {}",
                                                sanitized_line(word), tokenizer.size()));
    }
    tokens.push_back(TokenId{id});
    at += word.size();
  }
  return tokens;
}

int tokenize_main(const TokenizeFlags& options) {
  const std::string text = read_text(options.input);
  const ModelSource source = find_model(options.input, options.model);
  const ModelTexts texts = read_texts(source);
  const Tokenizer& tokenizer = need_tokenizer(texts, source);
  if (options.decode) {
    write_output(tokenizer.decode(parse_ids(text, tokenizer), false));
    return 0;
  }
  check_utf8(text, "the text");
  if (!options.lines) {
    write_output(output(options, tokenizer, text));
    return 0;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (!write_output(output(options, tokenizer, line))) break;
    begin = end + 1;
  }
  return 0;
}

Action describe_tokenize(CLI::App& cli) {
  const auto options = std::make_shared<TokenizeFlags>();  // CLI11 keeps pointers into it
  add_text_input(cli, options->input, options->model);
  cli.add_flag("--allow-special", options->allow_special,
               "control tokens spelled in the text become tokens");
  cli.add_flag("--bare", options->bare,
               "leave out the tokens that a raw prompt gets at its ends (BOS)");
  CLI::Option* ids = cli.add_flag("--ids", options->ids, "print the ids only, on one line");
  CLI::Option* json = cli.add_flag("--json", options->json, "print the ids as a JSON array");
  cli.add_flag("--count", options->count, "print only how many tokens there are")
      ->excludes(ids)
      ->excludes(json);
  ids->excludes(json);
  CLI::Option* lines =
      cli.add_flag("--lines", options->lines, "take every line as a text of its own");
  cli.add_flag("--decode", options->decode, "turn ids into text")
      ->excludes(lines)
      ->excludes(ids)
      ->excludes(json);
  return [options] { return tokenize_main(*options); };
}

}  // namespace

const Command tokenize_command = {"tokenize", "Turn text into token ids, or back",
                                  describe_tokenize};

}  // namespace hyb::app
