#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace hyb {

/// A compiled regular expression in Oniguruma's Ruby syntax, which tokenizer.json uses; see
/// pattern_dialect.h for the supported subset. Thread-safe.
class Pattern {
 public:
  using Found = std::function<void(std::size_t begin, std::size_t end)>;

  /// Throws Error(model) that begins with `source` for what cannot be translated or compiled.
  Pattern(std::string_view oniguruma, std::string_view source);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  /// The pattern that matches exactly `text`.
  static Pattern literal(std::string_view text, std::string_view source);

  /// Calls `found` for every match in `text`, left to right, without overlaps. An empty match
  /// directly after another match is skipped. `text` must be well-formed UTF-8. Throws Error(model)
  /// when a match exceeds its limits.
  void each_match(std::string_view text, const Found& found) const;

 private:
  struct Compiled;
  class Search;

  std::string written_;  // as in the file, for errors
  std::string source_;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace hyb
