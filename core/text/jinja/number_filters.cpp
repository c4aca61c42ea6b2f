// Filters that work on numbers (filters.h).
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/filters.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

constexpr std::int64_t precision_max = 300;

std::string_view stripped(std::string_view text) {
  while (!text.empty() && is_space(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_space(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

/// Takes single underscores between digits out; nothing if they stand elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto alphanumeric = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !alphanumeric(i - 1) || !alphanumeric(i + 1)) return std::nullopt;
  }
  return out;
}

/// int(text, base) of Python; nothing if the text is no integer.
std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  text = stripped(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int marked = mark == 'x' ? 16 : (mark == 'o' ? 8 : (mark == 'b' ? 2 : 0));
    if (marked != 0 && marked == base) text.remove_prefix(text[2] == '_' ? 3 : 2);
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  const std::string signed_digits = negative ? "-" + *digits : *digits;
  std::int64_t value = 0;
  const char* end = signed_digits.data() + signed_digits.size();
  const auto read = std::from_chars(signed_digits.data(), end, value, base);
  if (read.ec == std::errc::invalid_argument || read.ptr != end) return std::nullopt;
  if (read.ec != std::errc{}) throw Fault("int: the integer is over 64 bits");
  return value;
}

/// float(text) of Python.
std::optional<double> parse_real(std::string_view text) {
  text = stripped(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  double value = 0;
  const char* end = digits->data() + digits->size();
  const auto read = std::from_chars(digits->data(), end, value);
  if (read.ptr != end || read.ec == std::errc::invalid_argument) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) value = std::strtod(digits->c_str(), nullptr);
  if (digits->find('(') != std::string::npos) return std::nullopt;  // nan(...)
  return negative ? -value : value;
}

std::int64_t truncated(double real) {
  if (std::isnan(real)) throw Fault("int: not a number");
  if (!(std::abs(real) < 9223372036854775808.0)) throw Fault("int: the number is over 64 bits");
  return static_cast<std::int64_t>(real);
}

Value filter_int(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "int", {"default", "base"});
  const Value fallback = in.has(0) ? in[0] : Value(std::int64_t{0});
  if (input.is_undefined()) fail_undefined(input);
  if (input.is_integral()) return Value(input.integer());
  if (input.is(Kind::real)) {
    return std::isnan(input.real()) ? fallback : Value(truncated(input.real()));
  }
  if (!input.is_text()) return fallback;
  const std::int64_t base = in.integer(1, 10);
  if (base < 2 || base > 36) throw Fault("int: 'base' is 2 to 36");
  if (const auto integer = parse_integer(input.view(), static_cast<int>(base))) {
    return Value(*integer);
  }
  const auto real = parse_real(input.view());
  return real && !std::isnan(*real) ? Value(truncated(*real)) : fallback;
}

Value filter_float(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "float", {"default"});
  const Value fallback = in.has(0) ? in[0] : Value(0.0);
  if (input.is_undefined()) fail_undefined(input);
  if (input.is_number()) return Value(input.real());
  if (!input.is_text()) return fallback;
  const auto real = parse_real(input.view());
  return real ? Value(*real) : fallback;
}

Value filter_abs(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "abs", {});
  if (input.is_undefined()) fail_undefined(input);
  if (input.is(Kind::real)) return Value(std::abs(input.real()));
  if (!input.is_integral()) throw Fault("abs takes a number, got " + type_name(input));
  return input.integer() < 0 ? negate(input) : Value(input.integer());
}

/// round(real, precision) of Python: the nearest decimal, ties to even, of the exact value.
double round_real(double real, std::int64_t precision) {
  if (!std::isfinite(real)) return real;
  if (precision > precision_max) return real;
  if (precision >= 0) {
    std::string text(512 + 2 * precision_max, '\0');
    const int size =
        std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), real);
    text.resize(static_cast<std::size_t>(size));
    return std::strtod(text.c_str(), nullptr);
  }
  if (precision < -precision_max) return std::copysign(0.0, real);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(real / unit) * unit;
}

Value round_integer(std::int64_t value, std::int64_t precision) {
  if (precision >= 0) return Value(value);
  if (precision < -18) return Value(std::int64_t{0});
  std::int64_t unit = 1;
  for (std::int64_t i = precision; i < 0; ++i) unit *= 10;
  std::int64_t rest = value % unit;
  if (rest < 0) rest += unit;
  const std::int64_t low = (value - rest) / unit;
  const bool up = rest > unit / 2 || (rest == unit / 2 && unit > 1 && low % 2 != 0);
  std::int64_t rounded = 0;
  if (__builtin_mul_overflow(low + (up ? 1 : 0), unit, &rounded))
    throw Fault("round: over 64 bits");
  return Value(rounded);
}

Value filter_round(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "round", {"precision", "method"});
  if (input.is_undefined()) fail_undefined(input);
  if (!input.is_number()) throw Fault("round takes a number, got " + type_name(input));
  const std::int64_t precision = in.integer(0, 0);
  const std::string_view method = in.has(1) ? in.text(1).view() : "common";
  if (method == "common") {
    return input.is_integral() ? round_integer(input.integer(), precision)
                               : Value(round_real(input.real(), precision));
  }
  if (method != "ceil" && method != "floor")
    throw Fault("round: 'method' is common, ceil or floor");
  // As Jinja does it: func(value * 10**precision) / 10**precision.
  const Value unit =
      binary(runtime, BinaryOperator::power, Value(std::int64_t{10}), Value(precision));
  const Value scaled = binary(runtime, BinaryOperator::multiply, input, unit);
  const double real = scaled.real();
  if (!std::isfinite(real)) throw Fault("round: the number is not finite");
  const Value whole = scaled.is_integral()
                          ? scaled
                          : Value(truncated(method == "ceil" ? std::ceil(real) : std::floor(real)));
  return binary(runtime, BinaryOperator::divide, whole, unit);
}

}  // namespace

std::span<const FunctionEntry> number_filters() {
  static constexpr FunctionEntry table[] = {
      {"int", filter_int}, {"float", filter_float}, {"abs", filter_abs}, {"round", filter_round}};
  return table;
}

}  // namespace hyb::jinja
