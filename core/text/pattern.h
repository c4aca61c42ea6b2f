#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace hyb {

/// A compiled regular expression. Written in Oniguruma's Ruby syntax, as tokenizer.json has it; see
/// pattern_dialect.h for what is understood. May be used from several threads at a time.
class Pattern {
 public:
  using Found = std::function<void(std::size_t begin, std::size_t end)>;

  /// Throws Error(model) beginning with `source` for what cannot be translated or compiled.
  Pattern(std::string_view oniguruma, std::string_view source);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  /// The pattern that matches `text` and nothing else.
  static Pattern literal(std::string_view text, std::string_view source);

  /// Calls `found` for every match in `text`, from left to right, none overlapping. An empty match
  /// directly behind another match is passed over. `text` has to be well-formed UTF-8. Throws
  /// Error(model) when a match exceeds its limits.
  void each_match(std::string_view text, const Found& found) const;

 private:
  struct Compiled;
  class Search;

  std::string written_;  // as the file has it, for errors
  std::string source_;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace hyb
