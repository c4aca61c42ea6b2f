#include "core/text/bpe.h"

#include <cstdio>

#include "core/text/byte_level.h"
#include "core/text/json_fields.h"
#include "core/text/merge.h"
#include "core/text/utf8.h"

namespace hyb {
namespace {

constexpr std::size_t part_bytes_min = 48;

/// How a word is encoded: what the memo has to tell apart.
enum : std::uint32_t { whole_word, part_of_word };

std::uint64_t join_of(char32_t left, char32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | right;
}

char32_t first_code_point(std::string_view text) {
  std::size_t at = 0;
  return next_code_point(text, at);
}

std::string byte_token(unsigned byte) {
  char text[8];
  std::snprintf(text, sizeof text, "<0x%02X>", byte);
  return text;
}

}  // namespace

Bpe::Bpe(const TokenizerFile& file, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), merges_(file.merges.size()) {
  const JsonFields model(file.rest.at("model"), file.source + ": model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text_or(key, "").empty()) model.fail(std::string(key) + " is not supported");
  }
  const Json& dropout = model.at("dropout");
  if (!dropout.is_null() && dropout != 0) model.fail("dropout is not supported");
  ignore_merges_ = model.flag_or("ignore_merges", false);
  fuse_unknown_ = model.flag_or("fuse_unk", false);
  byte_fallback_ = model.flag_or("byte_fallback", false);
  if (const std::string piece = model.text_or("unk_token", ""); !piece.empty()) {
    unknown_ = vocabulary_.find(piece);
    if (!unknown_) model.fail("unk_token \"" + excerpt(piece) + "\" is not in the vocabulary");
  }
  read_merges(file);
  read_characters();
  read_byte_tokens();
}

void Bpe::read_merges(const TokenizerFile& file) {
  const auto find = [&](std::string_view piece, const TokenizerFile::Merge& merge) {
    const auto token = vocabulary_.find(piece);
    if (!token) {
      file.fail("model.merges: \"" + excerpt(file.left(merge)) + " " + excerpt(file.right(merge)) +
                "\" names \"" + excerpt(piece) + "\", which is not in the vocabulary");
    }
    return *token;
  };
  joins_.reserve(file.merges.size() / 8);
  for (const TokenizerFile::Merge& merge : file.merges) {
    const std::string_view left = file.left(merge);
    const std::string_view right = file.right(merge);
    const TokenId first = find(left, merge);
    const TokenId second = find(right, merge);
    merges_.add(first, second, find(file.both(merge), merge));
    joins_.insert(join_of(code_point_before(left, left.size()), first_code_point(right)));
  }
}

void Bpe::read_characters() {
  characters_.assign(0x10000, no_token);
  for (std::int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view piece = vocabulary_.piece(TokenId{id});
    if (piece.empty() || piece.size() > 3) continue;
    std::size_t at = 0;
    const char32_t code_point = next_code_point(piece, at);
    if (at == piece.size()) characters_[code_point] = id;
  }
}

void Bpe::read_byte_tokens() {
  byte_level_complete_ = true;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto token = vocabulary_.find(byte_token(byte));
    byte_tokens_[byte] = token ? index(*token) : no_token;
    const auto symbol = character(byte_level_character(static_cast<unsigned char>(byte)));
    byte_level_symbols_[byte] = symbol ? index(*symbol) : no_token;
    byte_level_complete_ = byte_level_complete_ && symbol;
  }
}

std::optional<TokenId> Bpe::character(char32_t code_point) const {
  if (code_point < characters_.size()) {
    const std::int32_t id = characters_[code_point];
    return id == no_token ? std::nullopt : std::optional(TokenId{id});
  }
  std::string piece;
  append_utf8(piece, code_point);
  return vocabulary_.find(piece);
}

std::optional<TokenId> Bpe::whole(std::string_view word, bool byte_level) const {
  if (!ignore_merges_ || word.size() > vocabulary_.longest_bytes()) return std::nullopt;
  return byte_level ? vocabulary_.find(to_byte_level(word)) : vocabulary_.find(word);
}

bool Bpe::may_join(char32_t left, char32_t right) const {
  return joins_.contains(join_of(left, right));
}

bool Bpe::add_byte_tokens(std::string_view character, std::vector<TokenId>& symbols) const {
  for (const char byte : character) {
    if (byte_tokens_[static_cast<unsigned char>(byte)] == no_token) return false;
  }
  for (const char byte : character) {
    symbols.push_back(TokenId{byte_tokens_[static_cast<unsigned char>(byte)]});
  }
  return true;
}

void Bpe::add_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
  // An unknown character waits for the next known one: runs of them may become one token. Byte
  // tokens do not end such a run, and so come before its token; Hugging Face has it so.
  bool unknown_waits = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t begin = at;
    if (const auto token = character(next_code_point(word, at))) {
      if (unknown_waits) symbols.push_back(*unknown_);
      unknown_waits = false;
      symbols.push_back(*token);
      continue;
    }
    if (byte_fallback_ && add_byte_tokens(word.substr(begin, at - begin), symbols)) continue;
    if (!unknown_) continue;
    if (unknown_waits && !fuse_unknown_) symbols.push_back(*unknown_);
    unknown_waits = true;
  }
  if (unknown_waits) symbols.push_back(*unknown_);
}

void Bpe::add_byte_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
  for (const char byte : word) {
    symbols.push_back(TokenId{byte_level_symbols_[static_cast<unsigned char>(byte)]});
  }
}

Bpe::Run::Run(const Bpe& model, bool byte_level, std::size_t text_bytes)
    : model_(model), byte_level_(byte_level), memo_(text_bytes) {}

void Bpe::Run::encode(std::string_view word, std::vector<TokenId>& out) {
  const WordMemo::Key key = memo_.key(word, whole_word);
  if (const auto known = memo_.find(key, word); !known.empty()) {
    out.insert(out.end(), known.begin(), known.end());
    return;
  }
  const std::size_t before = out.size();
  if (!byte_level_) {
    encode_characters(word, out);
  } else if (!model_.byte_level_complete_) {
    encode_characters(to_byte_level(word), out);
  } else {
    if (const auto whole = model_.whole(word, true)) {
      out.push_back(*whole);
    } else {
      symbols_.clear();
      model_.add_byte_symbols(word, symbols_);
      merge_symbols(symbols_, model_.merges_);
      out.insert(out.end(), symbols_.begin(), symbols_.end());
    }
  }
  memo_.put(key, word, std::span(out).subspan(before));
}

void Bpe::Run::encode_characters(std::string_view word, std::vector<TokenId>& out) {
  if (const auto token = model_.whole(word, false)) return out.push_back(*token);
  if (word.size() < part_bytes_min) return encode_uncut(word, out);
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t end = part_end(word, begin);
    const std::string_view part = word.substr(begin, end - begin);
    begin = end;
    const WordMemo::Key key = memo_.key(part, part_of_word);
    if (const auto known = memo_.find(key, part); !known.empty()) {
      out.insert(out.end(), known.begin(), known.end());
      continue;
    }
    const std::size_t before = out.size();
    encode_uncut(part, out);
    memo_.put(key, part, std::span(out).subspan(before));
  }
}

/// Where a long word may be cut without a change of its tokens: between two characters of the
/// vocabulary that no merge joins.
std::size_t Bpe::Run::part_end(std::string_view word, std::size_t begin) const {
  std::size_t at = begin;
  char32_t left = next_code_point(word, at);
  while (at < word.size()) {
    const std::size_t cut = at;
    const char32_t right = next_code_point(word, at);
    if (!model_.may_join(left, right) && model_.character(left) && model_.character(right)) {
      return cut;
    }
    left = right;
  }
  return at;
}

void Bpe::Run::encode_uncut(std::string_view word, std::vector<TokenId>& out) {
  symbols_.clear();
  model_.add_symbols(word, symbols_);
  merge_symbols(symbols_, model_.merges_);
  out.insert(out.end(), symbols_.begin(), symbols_.end());
}

}  // namespace hyb
