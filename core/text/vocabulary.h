#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// Maps pieces to ids and back. Ids may have holes; no piece and no id occurs twice.
class Vocabulary {
 public:
  /// Upper bound of ids: sixteen times the largest published vocabulary.
  static constexpr std::int64_t ids_max = std::int64_t{1} << 22;

  enum class Added { yes, repeated_piece, repeated_id };

  Vocabulary();

  /// Adds a piece whose id is in [0, ids_max).
  Added add(std::string_view piece, TokenId token);

  std::optional<TokenId> find(std::string_view piece) const;
  std::string_view piece(TokenId token) const;  ///< empty if there is none; valid until add()
  bool contains(TokenId token) const;
  std::int32_t size() const {
    return static_cast<std::int32_t>(places_.size());
  }  ///< largest id + 1
  std::int32_t count() const { return count_; }
  std::size_t longest_bytes() const { return longest_bytes_; }

 private:
  struct Place {
    std::uint32_t begin = 0;
    std::uint32_t bytes = absent;
  };
  static constexpr std::uint32_t absent = 0xFFFFFFFF;

  std::size_t slot_of(std::string_view piece) const;
  std::string_view text_of(Place place) const;
  void grow();

  std::string texts_;
  std::vector<Place> places_;        // by id
  std::vector<std::int32_t> slots_;  // open addressing: id, or -1
  std::uint64_t seed_;               // random: hostile files cannot construct colliding pieces
  std::int32_t count_ = 0;
  std::size_t longest_bytes_ = 0;
};

/// GPT-2's spelling of bytes in vocabularies: printable Latin-1 bytes are spelled as themselves,
/// the other 68 as U+0100 and up in order of their value. A space is U+0120.
char32_t byte_level_character(unsigned char byte);

/// The byte that a character spells; empty if it spells none.
std::optional<unsigned char> byte_level_byte(char32_t character);

/// Spells every byte of `bytes` as its character, in UTF-8.
std::string to_byte_level(std::string_view bytes);

/// Appends the bytes that a well-formed `piece` spells; if any character spells none, appends the
/// piece unchanged.
void append_from_byte_level(std::string_view piece, std::string& bytes);

}  // namespace hyb
