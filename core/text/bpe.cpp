#include "core/text/bpe.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>
#include <queue>
#include <random>
#include <unordered_map>

#include "core/base/error.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

std::uint64_t pair_of(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(index(left)) << 32 | static_cast<std::uint32_t>(index(right));
}

std::uint64_t hash_of(std::uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdU;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53U;
  return value ^ (value >> 33);
}

}  // namespace

MergeTable::MergeTable(std::size_t merges)
    : slots_(std::bit_ceil(merges * 2 + 2)), seed_(std::random_device{}()) {
  merged_.reserve(merges);
}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_of(pair + seed_) & mask;
  while (slots_[slot].pair != empty && slots_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::add(TokenId left, TokenId right, TokenId merged, bool as_before) {
  const std::uint64_t pair = pair_of(left, right);
  if (!as_before) merged_.push_back(merged);
  slots_[slot_of(pair)] = {pair, static_cast<Rank>(merged_.size()) - 1};
}

MergeTable::Rank MergeTable::rank(TokenId left, TokenId right) const {
  return slots_[slot_of(pair_of(left, right))].rank;
}

namespace {

using Rank = MergeTable::Rank;
using Place = std::int32_t;

/// Up to this size a scan of all pairs for every merge is fastest.
constexpr std::size_t short_symbols = 48;

void merge_short(std::vector<TokenId>& symbols, const MergeTable& table) {
  Rank ranks[short_symbols];
  std::size_t count = symbols.size();
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = table.rank(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const Rank* lowest = std::min_element(ranks, ranks + count - 1);
    if (*lowest == MergeTable::none) break;
    const auto i = static_cast<std::size_t>(lowest - ranks);
    symbols[i] = table.merged(*lowest);
    for (std::size_t j = i + 1; j + 1 < count; ++j) symbols[j] = symbols[j + 1];
    for (std::size_t j = i; j + 2 < count; ++j) ranks[j] = ranks[j + 1];
    --count;
    if (i > 0) ranks[i - 1] = table.rank(symbols[i - 1], symbols[i]);
    if (i + 1 < count) ranks[i] = table.rank(symbols[i], symbols[i + 1]);
  }
  symbols.resize(count);
}

/// Candidate merges, lowest rank first, then leftmost. All merges of one rank join the same pair
/// and create other pairs, so nearly all positions of a rank are known, in order, before the first
/// one is taken: a list per rank takes four bytes a candidate, less than one heap, and is read
/// sequentially.
class MergeQueue {
 public:
  void add(Rank rank, Place place) {
    auto [found, fresh] = lists_.try_emplace(rank);
    if (fresh) ranks_.push(rank);
    List& list = found->second;
    if (list.opened) {
      list.late.push(place);
    } else {
      list.places.push_back(place);
    }
  }

  /// Takes the first candidate; false when none is left.
  bool take(Rank& rank, Place& place) {
    while (!ranks_.empty()) {
      rank = ranks_.top();
      List& list = lists_.at(rank);
      if (list.take(place)) return true;
      ranks_.pop();
      lists_.erase(rank);
    }
    return false;
  }

 private:
  struct List {
    std::vector<Place> places;
    std::size_t taken = 0;
    bool opened = false;
    std::priority_queue<Place, std::vector<Place>, std::greater<>> late;

    bool take(Place& place) {
      if (!opened) {
        if (!std::is_sorted(places.begin(), places.end())) std::sort(places.begin(), places.end());
        opened = true;
      }
      const bool listed = taken < places.size();
      if (listed && (late.empty() || places[taken] <= late.top())) {
        place = places[taken++];
        return true;
      }
      if (late.empty()) return false;
      place = late.top();
      late.pop();
      return true;
    }
  };

  std::unordered_map<Rank, List> lists_;
  std::priority_queue<Rank, std::vector<Rank>, std::greater<>> ranks_;
};

/// A word as a chain: a symbol is stored at the position of its first part, and its number of parts
/// at its first and last positions.
class Chain {
 public:
  Chain(std::vector<TokenId>& symbols, const MergeTable& table)
      : symbols_(symbols), table_(table), parts_(symbols.size(), 1) {}

  void merge() {
    const auto count = static_cast<Place>(symbols_.size());
    for (Place place = 0; place + 1 < count; ++place) offer(place);
    Rank rank = 0;
    Place place = 0;
    while (queue_.take(rank, place)) {
      // A candidate is stale when one of its symbols has merged with another since.
      if (is_first(place) && rank_at(place) == rank) join(place, rank);
    }
    std::size_t kept = 0;
    for (Place at = 0; at < count; at = next(at)) symbols_[kept++] = symbol(at);
    symbols_.resize(kept);
  }

 private:
  TokenId& symbol(Place place) { return symbols_[static_cast<std::size_t>(place)]; }
  Place& parts(Place place) { return parts_[static_cast<std::size_t>(place)]; }
  Place next(Place place) { return place + parts(place); }
  bool is_first(Place place) { return parts(place) > 0; }

  Rank rank_at(Place place) {
    const Place right = next(place);
    if (right >= static_cast<Place>(symbols_.size())) return MergeTable::none;
    return table_.rank(symbol(place), symbol(right));
  }

  void offer(Place place) {
    const Rank rank = rank_at(place);
    if (rank != MergeTable::none) queue_.add(rank, place);
  }

  void join(Place place, Rank rank) {
    const Place right = next(place);
    const Place end = next(right);
    symbol(place) = table_.merged(rank);
    parts(right) = 0;
    parts(place) = end - place;
    if (end - 1 != place) parts(end - 1) = -(end - place);
    if (place > 0) {
      const Place last = parts(place - 1);
      offer(last > 0 ? place - 1 : place + last);
    }
    offer(place);
  }

  std::vector<TokenId>& symbols_;
  const MergeTable& table_;
  // Number of parts of the symbol that starts here, negated for the one that ends here; other
  // positions are not read.
  std::vector<Place> parts_;
  MergeQueue queue_;
};

}  // namespace

void merge_symbols(std::vector<TokenId>& symbols, const MergeTable& table) {
  require(symbols.size() < INT32_MAX, "merge: a word has fewer than 2^31 - 1 symbols");
  if (symbols.size() < 2) return;
  if (symbols.size() <= short_symbols) return merge_short(symbols, table);
  Chain(symbols, table).merge();
}

namespace {

constexpr std::size_t text_bytes_min = 256;
constexpr std::size_t slots_max = 1 << 16;
constexpr std::size_t word_bytes_max = 48;
constexpr std::size_t words_bytes_max = 4 << 20;

}  // namespace

WordMemo::WordMemo(std::size_t text_bytes) {
  if (text_bytes < text_bytes_min) return;
  slots_.resize(std::bit_ceil(std::min(text_bytes / 4, slots_max)));
}

WordMemo::Key WordMemo::key(std::string_view word, std::uint32_t kind) const {
  if (slots_.empty() || word.size() > word_bytes_max) return {0, false};
  return {XXH3_64bits_withSeed(word.data(), word.size(), kind), true};
}

std::span<const TokenId> WordMemo::find(Key key, std::string_view word) const {
  if (!key.usable) return {};
  const Slot& slot = slots_[slot_of(key)];
  if (slot.tokens == 0 || slot.hash != key.hash || slot.word_bytes != word.size() ||
      std::string_view(words_).substr(slot.word_begin, slot.word_bytes) != word) {
    return {};
  }
  return std::span(tokens_).subspan(slot.tokens_begin, slot.tokens);
}

void WordMemo::put(Key key, std::string_view word, std::span<const TokenId> tokens) {
  if (!key.usable || tokens.empty()) return;
  if (words_.size() + word.size() > words_bytes_max) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    words_.clear();
    tokens_.clear();
  }
  slots_[slot_of(key)] = {key.hash, static_cast<std::uint32_t>(words_.size()),
                          static_cast<std::uint32_t>(tokens_.size()),
                          static_cast<std::uint16_t>(word.size()),
                          static_cast<std::uint16_t>(tokens.size())};
  words_.append(word);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

namespace {

constexpr std::size_t part_bytes_min = 48;

/// Encodings of a word that the cache distinguishes.
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
  std::optional<TokenId> before;
  for (const TokenizerFile::Merge& merge : file.merges) {
    const std::string_view left = file.left(merge);
    const std::string_view right = file.right(merge);
    const TokenId first = find(left, merge);
    const TokenId second = find(right, merge);
    const TokenId both = find(file.both(merge), merge);
    merges_.add(first, second, both, file.equal_ranks && before == both);
    before = both;
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
  // An unknown character is held until the next known one: a run of them may become one token. As
  // in Hugging Face, byte tokens do not end such a run, and so precede its token.
  bool unknown_pending = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t begin = at;
    if (const auto token = character(next_code_point(word, at))) {
      if (unknown_pending) symbols.push_back(*unknown_);
      unknown_pending = false;
      symbols.push_back(*token);
      continue;
    }
    if (byte_fallback_ && add_byte_tokens(word.substr(begin, at - begin), symbols)) continue;
    if (!unknown_) continue;
    if (unknown_pending && !fuse_unknown_) symbols.push_back(*unknown_);
    unknown_pending = true;
  }
  if (unknown_pending) symbols.push_back(*unknown_);
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

/// The next position where a long word can be cut without changing its tokens: between two
/// characters of the vocabulary that no merge joins.
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
