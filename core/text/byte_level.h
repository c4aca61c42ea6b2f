#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hyb {

/// GPT-2's spelling of bytes in vocabularies: printable Latin-1 bytes stand for themselves, the
/// other 68 are U+0100 and up in order of their value. A space is U+0120.
char32_t byte_level_character(unsigned char byte);

/// The byte that a character spells, nothing where it spells none.
std::optional<unsigned char> byte_level_byte(char32_t character);

/// Every byte of `bytes` as its character, in UTF-8.
std::string to_byte_level(std::string_view bytes);

/// Appends the bytes that a well-formed `piece` spells; where one character spells none, the piece
/// stands for itself.
void append_from_byte_level(std::string_view piece, std::string& bytes);

}  // namespace hyb
