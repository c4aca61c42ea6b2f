#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hyb::jinja {

struct Number {
  std::size_t bytes = 0;
  bool real = false;
  std::int64_t integer_value = 0;
  double real_value = 0;
  std::string problem{};  ///< empty if the number is good
};

/// Reads the number that `text` begins with, as Jinja spells them: 12, 1_000, 0x1F, 0b1, 0o7, 1.5,
/// 2e3. Where `real_allowed` is false (after a dot, as in items.0.5) only an integer is taken.
Number read_number_literal(std::string_view text, bool real_allowed);

/// The inside of a string literal with Python's escapes resolved; `problem` says what is wrong.
std::string resolve_escapes(std::string_view inside, std::string& problem);

/// Bytes of the identifier that `text` begins with; 0 if there is none.
std::size_t name_length(std::string_view text);

}  // namespace hyb::jinja
