#include "core/text/vocabulary.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <random>

#include "core/base/error.h"
#include "core/text/unicode.h"

namespace hyb {

Vocabulary::Vocabulary() : slots_(1024, -1), seed_(std::random_device{}()) {}

std::string_view Vocabulary::text_of(Place place) const {
  return std::string_view(texts_).substr(place.begin, place.bytes);
}

/// The slot of the piece, or the empty one where it belongs.
std::size_t Vocabulary::slot_of(std::string_view piece) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = XXH3_64bits_withSeed(piece.data(), piece.size(), seed_) & mask;
  while (slots_[slot] >= 0 && text_of(places_[static_cast<std::size_t>(slots_[slot])]) != piece) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void Vocabulary::grow() {
  const std::vector<std::int32_t> old = std::move(slots_);
  slots_.assign(old.size() * 2, -1);
  for (const std::int32_t id : old) {
    if (id >= 0) slots_[slot_of(text_of(places_[static_cast<std::size_t>(id)]))] = id;
  }
}

Vocabulary::Added Vocabulary::add(std::string_view piece, TokenId token) {
  const auto id = static_cast<std::size_t>(index(token));
  require(index(token) >= 0 && index(token) < ids_max, "vocabulary: an id is below ids_max");
  const std::size_t slot = slot_of(piece);
  if (slots_[slot] >= 0) return Added::repeated_piece;
  if (contains(token)) return Added::repeated_id;
  if (texts_.size() + piece.size() >= absent) {
    throw Error(ErrorKind::model, "vocabulary: all pieces together have 4 GiB or more");
  }
  if (places_.size() <= id) places_.resize(id + 1);
  places_[id] = {static_cast<std::uint32_t>(texts_.size()),
                 static_cast<std::uint32_t>(piece.size())};
  texts_.append(piece);
  slots_[slot] = index(token);
  ++count_;
  longest_bytes_ = std::max(longest_bytes_, piece.size());
  if (static_cast<std::size_t>(count_) * 2 > slots_.size()) grow();
  return Added::yes;
}

std::optional<TokenId> Vocabulary::find(std::string_view piece) const {
  const std::int32_t id = slots_[slot_of(piece)];
  if (id < 0) return std::nullopt;
  return TokenId{id};
}

std::string_view Vocabulary::piece(TokenId token) const {
  return contains(token) ? text_of(places_[static_cast<std::size_t>(index(token))])
                         : std::string_view();
}

bool Vocabulary::contains(TokenId token) const {
  const auto id = static_cast<std::size_t>(index(token));
  return index(token) >= 0 && id < places_.size() && places_[id].bytes != absent;
}

namespace {

struct ByteTable {
  std::array<char32_t, 256> characters{};
  std::array<short, 0x144> bytes{};  // -1: spells none
};

constexpr ByteTable make_table() {
  ByteTable table;
  for (auto& byte : table.bytes) byte = -1;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const char32_t character = itself ? byte : next++;
    table.characters[byte] = character;
    table.bytes[character] = static_cast<short>(byte);
  }
  return table;
}

constexpr ByteTable table = make_table();

}  // namespace

char32_t byte_level_character(unsigned char byte) { return table.characters[byte]; }

std::optional<unsigned char> byte_level_byte(char32_t character) {
  if (character >= table.bytes.size() || table.bytes[character] < 0) return std::nullopt;
  return static_cast<unsigned char>(table.bytes[character]);
}

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) {
    append_utf8(text, byte_level_character(static_cast<unsigned char>(byte)));
  }
  return text;
}

void append_from_byte_level(std::string_view piece, std::string& bytes) {
  const std::size_t before = bytes.size();
  for (std::size_t at = 0; at < piece.size();) {
    const auto byte = byte_level_byte(next_code_point(piece, at));
    if (!byte) {
      bytes.resize(before);
      bytes.append(piece);
      return;
    }
    bytes += static_cast<char>(*byte);
  }
}

}  // namespace hyb
