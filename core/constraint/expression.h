#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace hyb {

/// A set of characters as ranges, both ends included, in order, with gaps between them.
class CharSet {
 public:
  static constexpr char32_t last = 0x10FFFF;
  using Range = std::pair<char32_t, char32_t>;

  CharSet() = default;
  explicit CharSet(std::vector<Range> ranges);  ///< in any order, overlapping or not
  static CharSet all() { return CharSet({{0, last}}); }

  CharSet complement() const;
  CharSet both(const CharSet& other) const;
  CharSet either(const CharSet& other) const;
  const std::vector<Range>& ranges() const& { return ranges_; }
  std::vector<Range> ranges() && { return std::move(ranges_); }
  bool empty() const { return ranges_.empty(); }
  bool operator==(const CharSet&) const = default;
  auto operator<=>(const CharSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

/// A regular expression over characters that may also call rules: what all grammars are read into.
struct Expression {
  enum class Kind {
    chars,     ///< one character of a set; none where the set is empty
    sequence,  ///< the parts one after the other
    choice,    ///< one of the parts
    repeat,    ///< the only part, min to max times
    call,      ///< a rule
    begin,     ///< the start of the text (regular expressions only)
    end,       ///< the end of the text (regular expressions only)
  };
  static constexpr int unbounded = -1;

  Kind kind = Kind::sequence;
  CharSet chars;
  std::vector<Expression> parts;
  int min = 0;
  int max = unbounded;
  int rule = 0;

  static Expression of(CharSet set);
  static Expression text(std::string_view text);  ///< well-formed UTF-8
  static Expression sequence(std::vector<Expression> parts);
  static Expression choice(std::vector<Expression> parts);
  static Expression repeat(Expression part, int min, int max);
  static Expression optional(Expression part) { return repeat(std::move(part), 0, 1); }
  static Expression call(int rule);
};

}  // namespace hyb
