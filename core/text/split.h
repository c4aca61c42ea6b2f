#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "core/text/pattern.h"

namespace hyb {

/// What becomes of the matches that a text is split at.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Splits texts at the matches of a pattern or at characters of a class.
class Splitter {
 public:
  using Character = bool (*)(char32_t);
  using Piece = std::function<void(std::size_t begin, std::size_t end)>;

  /// `invert`: what does not match is what the text is split at.
  Splitter(Pattern pattern, SplitBehavior behavior, bool invert = false);
  Splitter(Character character, SplitBehavior behavior);

  /// Calls `piece` for every piece that is not empty, in order.
  void split(std::string_view text, const Piece& piece) const;

 private:
  /// Calls `stretch(begin, end, is_match)` for matches and what lies between, in order.
  template <typename Stretch>
  void stretches(std::string_view text, const Stretch& stretch) const;

  std::variant<Pattern, Character> where_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace hyb
