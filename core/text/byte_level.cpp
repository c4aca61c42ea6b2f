#include "core/text/byte_level.h"

#include <array>

#include "core/text/utf8.h"

namespace hyb {
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
