#include "core/text/split.h"

#include <utility>

#include "core/text/utf8.h"

namespace hyb {
namespace {

/// Joins stretches into pieces as a behaviour asks. A piece is given out when the next one begins.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, const Splitter::Piece& piece)
      : behavior_(behavior), piece_(piece) {}

  void add(std::size_t begin, std::size_t end, bool is_match) {
    if (behavior_ == SplitBehavior::removed && is_match) return;
    if (open_ && joins_last(is_match)) {
      end_ = end;
    } else {
      flush();
      begin_ = begin;
      end_ = end;
      open_ = true;
    }
    last_is_match_ = is_match;
  }

  void flush() {
    if (open_ && begin_ < end_) piece_(begin_, end_);
    open_ = false;
  }

 private:
  bool joins_last(bool is_match) const {
    switch (behavior_) {
      case SplitBehavior::contiguous:
        return is_match == last_is_match_;
      case SplitBehavior::merged_with_previous:
        return is_match && !last_is_match_;
      case SplitBehavior::merged_with_next:
        return last_is_match_ && !is_match;
      case SplitBehavior::removed:
      case SplitBehavior::isolated:
        return false;
    }
    return false;
  }

  SplitBehavior behavior_;
  const Splitter::Piece& piece_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool open_ = false;
  bool last_is_match_ = false;
};

}  // namespace

Splitter::Splitter(Pattern pattern, SplitBehavior behavior, bool invert)
    : where_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

Splitter::Splitter(Character character, SplitBehavior behavior)
    : where_(character), behavior_(behavior), invert_(false) {}

template <typename Stretch>
void Splitter::stretches(std::string_view text, const Stretch& stretch) const {
  std::size_t done = 0;
  const auto match = [&](std::size_t begin, std::size_t end) {
    if (done < begin) stretch(done, begin, invert_);
    stretch(begin, end, !invert_);
    done = end;
  };
  if (const Pattern* pattern = std::get_if<Pattern>(&where_)) {
    pattern->each_match(text, match);
  } else {
    const Character character = std::get<Character>(where_);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      if (character(next_code_point(text, at))) match(begin, at);
    }
  }
  if (done < text.size()) stretch(done, text.size(), invert_);
}

void Splitter::split(std::string_view text, const Piece& piece) const {
  if (behavior_ == SplitBehavior::isolated) {
    return stretches(text, [&](std::size_t begin, std::size_t end, bool) {
      if (begin < end) piece(begin, end);
    });
  }
  Joiner joiner(behavior_, piece);
  stretches(text, [&](std::size_t begin, std::size_t end, bool is_match) {
    joiner.add(begin, end, is_match);
  });
  joiner.flush();
}

}  // namespace hyb
