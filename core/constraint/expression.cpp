#include "core/constraint/expression.h"

#include <algorithm>

#include "core/text/unicode.h"

namespace hyb {

CharSet::CharSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (const Range& range : ranges) {
    if (ranges_.empty() || range.first > ranges_.back().second + 1)
      ranges_.push_back(range);
    else
      ranges_.back().second = std::max(ranges_.back().second, range.second);
  }
}

CharSet CharSet::complement() const {
  CharSet rest;
  char32_t next = 0;
  for (const auto& [low, high] : ranges_) {
    if (low > next) rest.ranges_.push_back({next, low - 1});
    next = high + 1;
  }
  if (next <= last) rest.ranges_.push_back({next, last});
  return rest;
}

CharSet CharSet::both(const CharSet& other) const {
  CharSet shared;
  for (std::size_t i = 0, k = 0; i < ranges_.size() && k < other.ranges_.size();) {
    const Range a = ranges_[i], b = other.ranges_[k];
    const char32_t low = std::max(a.first, b.first), high = std::min(a.second, b.second);
    if (low <= high) shared.ranges_.push_back({low, high});
    ++(a.second < b.second ? i : k);
  }
  return shared;
}

CharSet CharSet::either(const CharSet& other) const {
  std::vector<Range> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(ranges));
}

Expression Expression::of(CharSet set) {
  Expression result;
  result.kind = Kind::chars;
  result.chars = std::move(set);
  return result;
}

Expression Expression::text(std::string_view text) {
  Expression result;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = next_code_point(text, at);
    result.parts.push_back(of(CharSet({{character, character}})));
  }
  return result;
}

Expression Expression::sequence(std::vector<Expression> parts) {
  Expression result;
  result.parts = std::move(parts);
  return result;
}

Expression Expression::choice(std::vector<Expression> parts) {
  Expression result = sequence(std::move(parts));
  result.kind = Kind::choice;
  return result;
}

Expression Expression::repeat(Expression part, int min, int max) {
  Expression result;
  result.kind = Kind::repeat;
  result.parts.push_back(std::move(part));
  result.min = min;
  result.max = max;
  return result;
}

Expression Expression::call(int rule) {
  Expression result;
  result.kind = Kind::call;
  result.rule = rule;
  return result;
}

}  // namespace hyb
