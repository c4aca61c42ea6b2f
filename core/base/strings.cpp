#include "core/base/strings.h"

#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace hyb {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    words.push_back(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(words.back().size() + 1, text.size()));
  }
  return words;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts = {text};
  for (auto at = text.find(separator); at != text.npos; at = parts.back().find(separator)) {
    const std::string_view rest = parts.back();
    parts.back() = rest.substr(0, at);
    parts.push_back(rest.substr(at + 1));
  }
  return parts;
}

std::string in_small_letters(std::string text) {
  for (char& letter : text) {
    if (letter >= 'A' && letter <= 'Z') letter += 'a' - 'A';
  }
  return text;
}

std::string names_by_size(const std::map<std::string_view, double>& sizes) {
  std::vector<std::string_view> names;
  for (const auto& [name, unused] : sizes) names.push_back(name);
  std::ranges::stable_sort(names, std::greater<>(), [&](auto name) { return sizes.at(name); });
  return fmt::format("{}", fmt::join(names, ", "));
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1), before_last, last;
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = last[j] + (a[i] == b[j] ? 0 : 1);
      row[j + 1] = std::min({changed, row[j] + 1, last[j + 1] + 1});
      const bool are_swapped = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (are_swapped) row[j + 1] = std::min(row[j + 1], before_last[j - 1] + 1);
    }
  }
  return row[b.size()];
}

std::string_view nearest_name(std::string_view word, std::span<const std::string> known) {
  constexpr std::size_t letters_max = 64;  // a word of a megabyte would take long to compare
  std::string_view nearest;
  if (word.size() > letters_max) return nearest;
  std::size_t least = word.size() / 3 + 1;
  for (const std::string& name : known) {
    const std::size_t distance = edit_distance(word, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

}  // namespace hyb
