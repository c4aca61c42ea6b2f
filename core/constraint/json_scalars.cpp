#include "core/constraint/json_scalars.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/constraint/regex.h"

namespace hyb {
namespace {

using Id = Expressions::Id;

constexpr std::size_t digits_max = 60;

/// Regular expression of the numbers without a sign that are larger than `bound`, or equal to it.
std::string magnitudes_from(std::string bound, bool strict) {
  const std::size_t whole = std::min(bound.find('.'), bound.size());
  const auto count = [](std::size_t n) { return "[0-9]{" + std::to_string(n) + "}"; };
  // More digits before the point.
  std::string result = "[1-9]" + count(bound[0] == '0' ? 0 : whole) + "[0-9]*(\\.[0-9]+)?";
  // A larger digit after the same ones.
  for (std::size_t i = 0; i < bound.size(); ++i) {
    if (i == whole || bound[i] == '9') continue;
    result += "|" + bound.substr(0, i) + '[' + static_cast<char>(bound[i] + 1) + "-9]";
    result += i < whole ? count(whole - i - 1) + "(\\.[0-9]+)?" : "[0-9]*";
  }
  // The same digits, and any after them.
  if (strict)
    result += "|" + bound + (whole == bound.size() ? "\\." : "") + "[0-9]*[1-9][0-9]*";
  else
    result += "|" + bound + (whole == bound.size() ? "(\\.[0-9]+)?" : "[0-9]*");
  return result;
}

std::map<std::string_view, std::string> format_table() {
  const std::string date =
      "([1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
      "02-(0[1-9]|1[0-9]|2[0-8]))|([1-9][0-9](0[48]|[2468][048]|[13579][26])|"
      "([2468][048]|[13579][26])00)-02-29)";
  const std::string time =
      "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5]["
      "0-9])";
  const auto label_of = [](int length) {
    return "[A-Za-z0-9]([A-Za-z0-9-]{0," + std::to_string(length - 2) + "}[A-Za-z0-9])?";
  };
  const std::string label = label_of(63), dot_label = "(\\." + label + ")";
  const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  const std::string ipv4 = byte + "(\\." + byte + "){3}";
  const std::string h = "[0-9A-Fa-f]{1,4}", g = "(" + h + ":)",
                    tail = "(" + h + ":" + h + "|" + ipv4 + ")";
  std::string ipv6 = g + "{6}" + tail + "|::" + g + "{5}" + tail;
  for (int before = 1; before <= 5; ++before) {
    const std::string n = std::to_string(before - 1), m = std::to_string(5 - before);
    ipv6 += "|(" + g + "{0," + n + "}" + h + ")?::" + g + "{" + m + "}" + tail;
  }
  ipv6 += "|(" + g + "{0,5}" + h + ")?::" + h + "|(" + g + "{0,6}" + h + ")?::";
  const std::string hex = "%[0-9A-Fa-f]{2}", pchar = "([A-Za-z0-9._~!$&'()*+,;=:@-]|" + hex + ")";
  const std::string host = "([A-Za-z0-9._~!$&'()*+,;=-]|" + hex + ")*";
  const std::string user = "(([A-Za-z0-9._~!$&'()*+,;=:-]|" + hex + ")*@)?";
  const std::string path = "(/" + pchar + "*)*", rest = "([/?]|" + pchar + ")*";
  const std::string uri = "[A-Za-z][A-Za-z0-9+.-]*:(//" + user + host + "(:[0-9]*)?" + path +
                          "|/(" + pchar + "+" + path + ")?|" + pchar + "+" + path + ")?(\\?" +
                          rest + ")?(#" + rest + ")?";
  const std::string clock = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)";
  const std::string days = "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)";
  return {{"date", date},
          {"time", time},
          {"date-time", date + "[tT]" + time},
          {"duration", "P(" + days + "(" + clock + ")?|" + clock + "|[0-9]+W)"},
          {"email", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" +
                        label + dot_label + "*"},
          {"hostname", label + "(" + dot_label + "{0,2}|(\\." + label_of(30) + "){0,6})"},
          {"ipv4", ipv4},
          {"ipv6", ipv6},
          {"uri", uri},
          {"uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"}};
}

}  // namespace

std::string_view regex_of_format(std::string_view format) {
  static const std::map<std::string_view, std::string> table = format_table();
  const auto found = table.find(format);
  return found == table.end() ? std::string_view() : std::string_view(found->second);
}

std::string decimal_of(const Json& number, const Expressions& expressions) {
  std::string text = to_text(number);
  if (number.is_number_float()) {
    std::array<char, 400> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(),
                                   number.get<double>(), std::chars_format::fixed);
    text.assign(digits.data(), end.ptr);
  }
  if (text.size() > digits_max)
    throw Error(ErrorKind::usage,
                expressions.source() + ": the number " + to_text(number) +
                    " is not supported in limits or beside them: it has more than " +
                    std::to_string(digits_max) + " digits");
  return text;
}

bool is_same_value(const Json& a, const Json& b) {
  if (a.is_array() && b.is_array()) return std::ranges::equal(a, b, is_same_value);
  if (a.is_object() && b.is_object()) {
    const auto items = a.items();
    return a.size() == b.size() && std::all_of(items.begin(), items.end(), [&](const auto& item) {
             const auto found = b.find(item.key());
             return found != b.end() && is_same_value(item.value(), *found);
           });
  }
  if (a.is_number_integer() && b.is_number_integer()) {
    const auto is_negative = [](const Json& number) {
      return !number.is_number_unsigned() && number.get<std::int64_t>() < 0;
    };
    return is_negative(a) == is_negative(b) && a.get<std::uint64_t>() == b.get<std::uint64_t>();
  }
  return a == b;
}

std::string exact_text(const Json& value, const Expressions& expressions) {
  if (value.is_structured())
    for (const Json& part : value) exact_text(part, expressions);
  if (value.is_number_float() && std::abs(value.get<double>()) >= 0x1p63)
    throw Error(ErrorKind::usage, expressions.source() + ": the number " + to_text(value) +
                                      " in 'enum' or 'const' is not supported: it takes more "
                                      "than 64 bits");
  return to_text(value);
}

std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '%' && i + 2 < text.size();
    const std::string digits(text.substr(i + 1 < text.size() ? i + 1 : i, 2));
    result += is_escape ? static_cast<char>(std::strtol(digits.c_str(), nullptr, 16)) : text[i];
    if (is_escape) i += 2;
  }
  return result;
}

Id number_spellings(bool integer, bool plain, std::size_t digits, Expressions& expressions) {
  const std::string more = digits ? "{0," + std::to_string(digits - 1) + "}" : "*";
  std::string regex = "-?(0|[1-9][0-9]" + more + ")";
  if (!integer) regex += "(\\.[0-9][0-9]" + more + ")?";
  if (!integer && !plain) regex += "([eE][+-]?[0-9]{1,2})?";
  return read_regex(regex, expressions);
}

Id numbers_from(const Json& bound, bool strict, Expressions& expressions) {
  std::string text = decimal_of(bound, expressions);
  const bool is_zero = text.find_first_not_of("-0.") == std::string::npos;
  if (is_zero) text = "0";
  if (!text.starts_with('-')) {
    const std::string zero = is_zero && !strict ? "|-0(\\.0+)?" : "";
    return read_regex(magnitudes_from(text, strict) + zero, expressions);
  }
  // All without a sign, and what has one but is not beyond the bound.
  const Id beyond = read_regex("-(" + magnitudes_from(text.substr(1), !strict) + ")", expressions);
  return expressions.complement(beyond);
}

Id multiples_of(const Json& divisor, Expressions& expressions) {
  const std::string text = decimal_of(divisor, expressions);
  const auto whole =
      parse_number<int>(text.ends_with(".0") ? text.substr(0, text.size() - 2) : text);
  if (whole && 0 < *whole && *whole <= 10'000) {
    const Id sign = expressions.repeat(expressions.text("-"), 0, 1);
    return expressions.sequence(sign, expressions.multiples(*whole, 0));
  }
  if (!text.starts_with("0.") || text.substr(2).find_first_not_of('0') != text.size() - 3 ||
      !text.ends_with('1'))
    throw Error(ErrorKind::usage, expressions.source() +
                                      ": the keyword 'multipleOf' is supported for whole "
                                      "numbers of at most 10000 and for 0.1, 0.01, ...");
  const std::string places = std::to_string(text.size() - 2);
  return read_regex("-?(0|[1-9][0-9]*)(\\.[0-9]{1," + places + "})?", expressions);
}

}  // namespace hyb
