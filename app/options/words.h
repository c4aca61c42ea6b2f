#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hyb::app {

/// A word of the command line and what it means.
template <typename Value>
struct Word {
  std::string_view word;
  Value value;
};

/// The words of an option in the order in which help lists them. Parsing, help, completion,
/// messages and what is written to JSON and files go by such a table alone.
template <typename Value, std::size_t count>
using Words = std::array<Word<Value>, count>;

/// The word for a value; empty: it has none.
template <typename Value, std::size_t count>
constexpr std::string_view word_of(const Words<Value, count>& words, const Value& value) {
  for (const Word<Value>& one : words) {
    if (one.value == value) return one.word;
  }
  return {};
}

/// Returns the value of a word; nullopt if it is none of these.
template <typename Value, std::size_t count>
constexpr std::optional<Value> value_of(const Words<Value, count>& words, std::string_view word) {
  for (const Word<Value>& one : words) {
    if (one.word == word) return one.value;
  }
  return std::nullopt;
}

/// Adds an option that takes one of `words`; `take` gets the number of the one that was given.
/// Help shows `usual` as the default unless it is empty.
CLI::Option* add_word_option(CLI::App& cli, const char* names,
                             std::span<const std::string_view> words, std::string_view usual,
                             std::function<void(std::size_t)> take, const std::string& help);

/// The same of a field, which outlives `cli`. What it holds now is the default, if that is a word.
template <typename Field, typename Value, std::size_t count>
CLI::Option* add_choice(CLI::App& cli, const char* names, Field& field,
                        const Words<Value, count>& words, const std::string& help) {
  std::array<std::string_view, count> names_of_values;
  std::string_view usual;
  for (std::size_t i = 0; i < count; ++i) {
    names_of_values[i] = words[i].word;
    if (field == words[i].value) usual = words[i].word;
  }
  return add_word_option(
      cli, names, names_of_values, usual,
      [&field, &words](std::size_t number) { field = words[number].value; }, help);
}

}  // namespace hyb::app
