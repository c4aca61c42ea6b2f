// The arithmetic operators of operators.h.
#include <cmath>
#include <limits>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/percent_format.h"
#include "core/text/jinja/runtime.h"

namespace hyb::jinja {
namespace {

std::string_view symbol_of(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::add:
      return "+";
    case BinaryOperator::subtract:
      return "-";
    case BinaryOperator::multiply:
      return "*";
    case BinaryOperator::divide:
      return "/";
    case BinaryOperator::floor_divide:
      return "//";
    case BinaryOperator::modulo:
      return "%";
    case BinaryOperator::power:
      return "**";
  }
  return "";
}

[[noreturn]] void overflow() { throw Fault("an integer is over 64 bits"); }
[[noreturn]] void zero_division() { throw Fault("division by zero"); }

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return result;
}

Value floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) zero_division();
  if (a == std::numeric_limits<std::int64_t>::min() && b == -1) overflow();
  const std::int64_t quotient = a / b;
  return Value(quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
}

Value modulo(std::int64_t a, std::int64_t b) {
  if (b == 0) zero_division();
  if (b == -1) return Value(std::int64_t{0});
  const std::int64_t rest = a % b;
  return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Value on_integers(BinaryOperator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case BinaryOperator::add:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return Value(result);
    case BinaryOperator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return Value(result);
    case BinaryOperator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return Value(result);
    case BinaryOperator::divide:
      if (b == 0) zero_division();
      return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOperator::floor_divide:
      return floor_divide(a, b);
    case BinaryOperator::modulo:
      return modulo(a, b);
    case BinaryOperator::power:
      break;
  }
  if (b >= 0) return Value(integer_power(a, b));
  if (a == 0) zero_division();
  return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

/// As float.__divmod__: the rest has the sign of the divisor.
std::pair<double, double> divide_reals(double a, double b) {
  if (b == 0) zero_division();
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1.0;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (quotient != 0) {
    const double down = std::floor(quotient);
    quotient = quotient - down > 0.5 ? down + 1.0 : down;
  } else {
    quotient = std::copysign(0.0, a / b);
  }
  return {quotient, rest};
}

Value on_reals(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::add:
      return Value(a + b);
    case BinaryOperator::subtract:
      return Value(a - b);
    case BinaryOperator::multiply:
      return Value(a * b);
    case BinaryOperator::divide:
      if (b == 0) zero_division();
      return Value(a / b);
    case BinaryOperator::floor_divide:
      return Value(divide_reals(a, b).first);
    case BinaryOperator::modulo:
      return Value(divide_reals(a, b).second);
    case BinaryOperator::power:
      break;
  }
  if (a == 0 && b < 0) zero_division();
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
    throw Fault("a fractional power of a negative number");
  }
  if (std::isinf(result) && !std::isinf(a) && !std::isinf(b))
    throw Fault("a power is out of range");
  return Value(result);
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t times) {
  const auto count = times > 0 ? static_cast<std::size_t>(times) : 0;
  if (value.is_text()) {
    const std::size_t bytes = value.text().size();
    if (bytes > 0 && count > 0) {
      runtime.meter().expect(count > (std::size_t{1} << 40) / bytes ? std::size_t{1} << 40
                                                                    : count * bytes);
    }
    MarkedBuffer& buffer = runtime.new_buffer();
    for (std::size_t i = 0; i < count && bytes > 0; ++i) {
      runtime.meter().step();
      append(runtime.meter(), buffer, value.text());
    }
    return Value(Runtime::whole(buffer));
  }
  List& list = runtime.new_list();
  const std::size_t items = value.list().items.size();
  for (std::size_t i = 0; i < count && items > 0; ++i) {
    for (std::size_t item = 0; item < items; ++item) runtime.push(list, value.list().items[item]);
  }
  return Value(value.kind(), &list);
}

Value join_lists(Runtime& runtime, const Value& a, const Value& b) {
  List& list = runtime.new_list();
  for (const Value& item : a.list().items) runtime.push(list, item);
  for (const Value& item : b.list().items) runtime.push(list, item);
  return Value(a.kind(), &list);
}

bool is_repeatable(const Value& value) {
  return value.is_text() || value.is(Kind::list) || value.is(Kind::tuple);
}

}  // namespace

Value binary(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return on_integers(op, a.integer(), b.integer());
    return on_reals(op, a.real(), b.real());
  }
  if (op == BinaryOperator::modulo && a.is_text()) {
    return Value(format_percent(runtime, a.text(), b));
  }
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (op == BinaryOperator::add && a.kind() == b.kind()) {
    if (a.is_text()) return Value(runtime.concatenate(a.text(), b.text()));
    if (a.is(Kind::list) || a.is(Kind::tuple)) return join_lists(runtime, a, b);
  }
  if (op == BinaryOperator::multiply) {
    if (is_repeatable(a) && b.is_integral()) return repeat(runtime, a, b.integer());
    if (is_repeatable(b) && a.is_integral()) return repeat(runtime, b, a.integer());
  }
  throw Fault("'" + std::string(symbol_of(op)) + "' between " + type_name(a) + " and " +
              type_name(b));
}

Value negate(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is(Kind::real)) return Value(-value.real());
  if (!value.is_integral()) throw Fault("'-' of " + type_name(value));
  return on_integers(BinaryOperator::subtract, 0, value.integer());
}

Value plus(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is(Kind::real)) return value;
  if (!value.is_integral()) throw Fault("'+' of " + type_name(value));
  return Value(value.integer());
}

}  // namespace hyb::jinja
