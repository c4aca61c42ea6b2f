#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyb {

inline constexpr std::string_view white_space = " \t\r\n";

/// `text` without leading white space.
inline std::string_view trim_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
  return text;
}

/// `text` without white space at both ends.
inline std::string_view trim(std::string_view text) {
  text = trim_left(text);
  return text.substr(0, text.find_last_not_of(white_space) + 1);
}

/// The number that `text` is as a whole, decimal; nothing: it is none, or does not fit.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// ASCII letters alone.
std::string in_small_letters(std::string text);

/// "largest, smaller".
std::string names_by_size(const std::map<std::string_view, double>& sizes);

/// The words of a text in which one space is between two.
std::vector<std::string_view> words_of(std::string_view text);

/// Returns what is between the separators: one part more than there are of these.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Number of letters to insert, delete or change, or of neighbours to swap, between two words.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The one of `known` that `word` was most likely meant to be; empty: none is near, as more than a
/// third of its letters differ.
std::string_view nearest_name(std::string_view word, std::span<const std::string> known);

/// "1 line", "2 lines".
inline std::string counted(std::int64_t count, std::string_view noun) {
  std::string text = std::to_string(count) + ' ';
  text += noun;
  return count == 1 ? text : text + 's';
}

}  // namespace hyb
