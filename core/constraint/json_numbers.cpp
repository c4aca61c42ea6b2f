#include "core/constraint/json_numbers.h"

#include <cstdlib>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/constraint/regex.h"

namespace hyb {
namespace {

constexpr std::string_view any_whole = "(0|[1-9][0-9]*)", any_fraction = "(\\.[0-9]+)?";
constexpr std::string_view some_fraction = "\\.[0-9]*[1-9][0-9]*";  // not zero

std::string digit_count(std::size_t count) { return "[0-9]{" + std::to_string(count) + "}"; }

std::string digit_between(char low, char high) {
  return low > high ? "[^\\x00-\\u{10FFFF}]" : std::string("[") + low + '-' + high + ']';
}

/// Regular expression of the numbers without a sign that are >= or <= `bound`.
std::string magnitudes(const Decimal& bound, bool above, bool strict) {
  const std::string& w = bound.whole;
  const std::string& f = bound.fraction;
  std::string result;
  const auto add = [&](const std::string& part) { result += (result.empty() ? "" : "|") + part; };
  // Another whole part.
  if (above)
    add("[1-9]" + digit_count(w.size() - (w == "0" ? 1 : 0)) + "[0-9]*" +
        std::string(any_fraction));
  else if (w.size() > 1)
    add("(0|[1-9][0-9]{0," + std::to_string(w.size() - 2) + "})" + std::string(any_fraction));
  for (std::size_t i = 0; i < w.size(); ++i) {
    const char least = i == 0 && w.size() > 1 ? '1' : '0';
    add(w.substr(0, i) +
        (above ? digit_between(static_cast<char>(w[i] + 1), '9')
               : digit_between(least, static_cast<char>(w[i] - 1))) +
        digit_count(w.size() - i - 1) + std::string(any_fraction));
  }
  // The same whole part.
  for (std::size_t i = 0; i < f.size(); ++i) {
    const std::string begin = w + "\\." + f.substr(0, i);
    add(begin +
        (above ? digit_between(static_cast<char>(f[i] + 1), '9')
               : digit_between('0', static_cast<char>(f[i] - 1))) +
        "[0-9]*");
    if (!above) add(i == 0 ? w : begin);
  }
  const std::string same = w + (f.empty() ? "" : "\\." + f);
  const std::string zeros = f.empty() ? "(\\.0+)?" : "0*";
  if (!strict) add(same + zeros);
  if (above) add(same + (f.empty() ? std::string(some_fraction) : "[0-9]*[1-9][0-9]*"));
  return "(" + result + ")";
}

CharAutomaton of_regex(const std::string& regex, const std::string& source) {
  return {read_regex(regex, source), false, source};
}

}  // namespace

Decimal Decimal::of(std::string_view text, const std::string& source) {
  Decimal result;
  result.negative = text.starts_with('-');
  if (result.negative) text.remove_prefix(1);
  const std::size_t e = text.find_first_of("eE");
  std::string_view exponent = e == std::string_view::npos ? "0" : text.substr(e + 1);
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  const int shift = parse_number<int>(exponent).value_or(1000);
  if (std::abs(shift) > 40)
    throw Error(ErrorKind::usage,
                source + ": the limit " + std::string(text) + " is not supported");
  text = text.substr(0, e);
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string all(40, '0');
  all += text.substr(0, point);
  const std::size_t at = all.size();
  if (point < text.size()) all += text.substr(point + 1);
  all += std::string(40, '0');
  const auto cut = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(at) + shift);
  result.whole = all.substr(0, cut);
  result.fraction = all.substr(cut);
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size() - 1));
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  if (result.is_zero()) result.negative = false;
  return result;
}

CharAutomaton number_spellings(bool integer, bool plain, const std::string& source) {
  std::string regex = "-?" + std::string(any_whole);
  if (!integer) regex += any_fraction;
  if (!integer && !plain) regex += "([eE][+-]?[0-9]{1,2})?";
  return of_regex(regex, source);
}

CharAutomaton numbers_beyond(const Decimal& bound, bool above, bool strict,
                             const std::string& source) {
  // What is on the bound's own side of zero, and all of the other side where that is beyond it.
  const std::string near = magnitudes(bound, above != bound.negative, strict);
  const std::string others = magnitudes({}, true, !above);
  const bool has_others = bound.is_zero() ? !above : above == bound.negative;
  std::string regex = (bound.negative ? "-" : "") + near;
  if (has_others) regex += std::string("|") + (above ? "" : "-") + others;
  return of_regex(regex, source);
}

CharAutomaton multiples_of(const Decimal& divisor, const std::string& source) {
  const auto whole = parse_number<int>(divisor.whole).value_or(0);
  if (!divisor.negative && divisor.fraction.empty() && 0 < whole && whole <= 10'000)
    return CharAutomaton::of_multiples(whole);
  const std::size_t places = divisor.fraction.size();
  if (divisor.negative || whole != 0 || places == 0 ||
      divisor.fraction != std::string(places - 1, '0') + '1')
    throw Error(ErrorKind::usage, source +
                                      ": the keyword 'multipleOf' is supported for whole "
                                      "numbers of at most 10000 and for 0.1, 0.01, ...");
  return of_regex("-?" + std::string(any_whole) + "(\\.[0-9]{1," + std::to_string(places) + "}0*)?",
                  source);
}

}  // namespace hyb
