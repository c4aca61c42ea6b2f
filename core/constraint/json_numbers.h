#pragma once

#include <string>
#include <string_view>

#include "core/constraint/char_automaton.h"

namespace hyb {

/// A decimal number without an exponent: the sign, and its digits without needless zeros.
struct Decimal {
  bool negative = false;
  std::string whole = "0";
  std::string fraction;

  /// Of a number as JSON spells it. Throws Error(usage) for exponents beyond 40.
  static Decimal of(std::string_view text, const std::string& source);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// JSON's numbers, spelled without exponents where `plain`.
CharAutomaton number_spellings(bool integer, bool plain, const std::string& source);

/// The plain spellings of numbers >= `bound` (`above`), or else <= it; without it where `strict`.
CharAutomaton numbers_beyond(const Decimal& bound, bool above, bool strict,
                             const std::string& source);

/// The plain spellings of the multiples of a number: a whole one of at most 10,000, or 0.1, 0.01
/// and so on. Throws Error(usage) for others.
CharAutomaton multiples_of(const Decimal& divisor, const std::string& source);

}  // namespace hyb
