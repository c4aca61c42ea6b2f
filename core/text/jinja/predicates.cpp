#include "core/text/jinja/predicates.h"

#include <optional>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/filters.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/methods.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"

namespace hyb::jinja {
namespace {

bool is_sequence(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
      return true;
    default:
      return false;
  }
}

bool is_same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::none:
      return true;
    case Kind::undefined:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return a.integer() == b.integer();
    case Kind::real:
      return a.real() == b.real();
    case Kind::text:
      return a.text().same_stretch(b.text()) || a.view() == b.view();
    default:
      return a.pointer() == b.pointer();
  }
}

/// Tests of one value.
std::optional<bool> test_alone(Runtime& runtime, std::string_view name, const Value& value) {
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.is_text();
  if (name == "mapping") return value.is(Kind::dict);
  if (name == "sequence") return is_sequence(value);
  if (name == "iterable") return is_iterable(value);
  if (name == "number") return value.is_number();
  if (name == "integer") return value.is(Kind::integer);
  if (name == "float") return value.is(Kind::real);
  if (name == "boolean") return value.is(Kind::boolean);
  if (name == "true") return value.is(Kind::boolean) && value.boolean();
  if (name == "false") return value.is(Kind::boolean) && !value.boolean();
  if (name == "callable") {
    return value.is(Kind::callable) || value.is(Kind::loop) || value.is_undefined();
  }
  if (name == "escaped") return false;
  if (name == "filter") return value.is_text() && has_filter(value.view());
  if (name == "lower" || name == "upper") {
    const Value text(to_text(runtime, value));
    return call_method(runtime, text, name == "lower" ? "islower" : "isupper", {}).boolean();
  }
  return std::nullopt;
}

std::optional<Comparison> comparison_of(std::string_view name) {
  if (name == "==" || name == "eq" || name == "equalto") return Comparison::equal;
  if (name == "!=" || name == "ne") return Comparison::unequal;
  if (name == "<" || name == "lt" || name == "lessthan") return Comparison::less;
  if (name == "<=" || name == "le") return Comparison::less_equal;
  if (name == ">" || name == "gt" || name == "greaterthan") return Comparison::greater;
  if (name == ">=" || name == "ge") return Comparison::greater_equal;
  if (name == "in") return Comparison::in;
  return std::nullopt;
}

bool leaves_rest(Runtime& runtime, const Value& value, std::int64_t divisor, std::int64_t rest) {
  const Value left = binary(runtime, BinaryOperator::modulo, value, Value(divisor));
  return equals(runtime, left, Value(rest));
}

}  // namespace

bool apply_test(Runtime& runtime, std::string_view name, const Value& value,
                const Arguments& arguments) {
  if (const auto answer = test_alone(runtime, name, value)) {
    const Bound in(arguments, name, {});
    return *answer;
  }
  if (name == "odd" || name == "even") {
    const Bound in(arguments, name, {});
    return leaves_rest(runtime, value, 2, name == "odd" ? 1 : 0);
  }
  const auto comparison = comparison_of(name);
  if (comparison || name == "sameas" || name == "divisibleby") {
    const Bound in(arguments, name, {"other"}, 1);
    if (comparison) return compare(runtime, *comparison, value, in[0]);
    if (name == "sameas") return is_same(value, in[0]);
    const Value rest = binary(runtime, BinaryOperator::modulo, value, in[0]);
    return equals(runtime, rest, Value(std::int64_t{0}));
  }
  throw Fault("unknown test '" + std::string(name) + "'");
}

}  // namespace hyb::jinja
