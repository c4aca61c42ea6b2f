#include "core/text/jinja/builtins.h"

#include <array>
#include <ctime>
#include <optional>

#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/value.h"

namespace hyb::jinja {
namespace {

/// The limit of Jinja's sandbox.
constexpr std::int64_t range_max = 100'000;
/// Excludes overflow in start + index * step.
constexpr std::int64_t bound_max = std::int64_t{1} << 60;

Value global_range(Runtime& runtime, const Value&, const Bound& in) {
  const Arguments& arguments = in.arguments();
  const std::size_t count = arguments.positional.size();
  if (!arguments.named.empty() || count < 1 || count > 3)
    throw Fault("range takes 1 to 3 integers");
  for (const Value& value : arguments.positional) {
    if (!value.is_integral()) throw Fault("range takes integers, got " + type_name(value));
    if (value.integer() > bound_max || value.integer() < -bound_max) {
      throw Fault("range: an integer is over 2**60");
    }
  }
  const std::int64_t start = count > 1 ? arguments.positional[0].integer() : 0;
  const std::int64_t stop = arguments.positional[count > 1 ? 1 : 0].integer();
  const std::int64_t step = count > 2 ? arguments.positional[2].integer() : 1;
  if (step == 0) throw Fault("range: the step is zero");
  const std::int64_t distance = step > 0 ? stop - start : start - stop;
  const std::int64_t stride = step > 0 ? step : -step;
  const std::int64_t size = distance > 0 ? (distance - 1) / stride + 1 : 0;
  if (size > range_max) {
    throw Fault("range of over " + std::to_string(range_max) + " items", FaultKind::limit);
  }
  return runtime.new_range({.start = start, .stop = stop, .step = step, .size = size});
}

/// dict(other or pairs, name=value...)
Dict& build_dict(Runtime& runtime, const Arguments& arguments) {
  Dict& dict = runtime.new_dict();
  if (arguments.positional.size() > 1) throw Fault("dict takes one mapping or list of pairs");
  if (!arguments.positional.empty() && arguments.positional[0].is(Kind::dict)) {
    for (const auto& [key, value] : arguments.positional[0].dict().entries()) {
      runtime.set(dict, key, value);
    }
  } else if (!arguments.positional.empty()) {
    for (const Value& item : iterate(runtime, arguments.positional[0]).items) {
      const List& pair = iterate(runtime, item);
      if (pair.items.size() != 2) throw Fault("dict takes pairs of a key and a value");
      runtime.set(dict, pair.items[0], pair.items[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    runtime.set(dict, runtime.text_value(name), value);
  }
  return dict;
}

Value global_dict(Runtime& runtime, const Value&, const Bound& in) {
  return Value(Kind::dict, &build_dict(runtime, in.arguments()));
}

Value global_namespace(Runtime& runtime, const Value&, const Bound& in) {
  return Value(Kind::space, &build_dict(runtime, in.arguments()));
}

Value global_raise(Runtime& runtime, const Value&, const Bound& in) {
  throw Fault(std::string(to_text(runtime, in[0]).view()), FaultKind::raised);
}

Value global_strftime_now(Runtime& runtime, const Value&, const Bound& in) {
  const std::string format(in.text(0).view());
  if (format.empty()) return Value(Text{});
  std::tm now{};
  if (runtime.now()) {
    now = *runtime.now();
    std::mktime(&now);  // fills in the day of the week and of the year
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  std::array<char, 4096> out{};
  const std::size_t size = std::strftime(out.data(), out.size(), format.c_str(), &now);
  if (size == 0) throw Fault("strftime_now: the result is empty or over 4096 bytes");
  return runtime.text_value({out.data(), size});
}

constexpr Function globals[] = {{"range", "*", global_range},
                                {"dict", "*", global_dict},
                                {"namespace", "*", global_namespace},
                                {"raise_exception", "message", global_raise},
                                {"strftime_now", "format", global_strftime_now}};

}  // namespace

std::string_view find_global(std::string_view name) {
  const Function* function = find_function(globals, name);
  return function == nullptr ? std::string_view{} : function->name;
}

Value call_global(Runtime& runtime, std::string_view name, const Arguments& arguments) {
  const Function* function = find_function(globals, name);
  if (function == nullptr) throw Fault("unknown function " + std::string(name));
  return call(runtime, *function, {}, arguments);
}

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

/// Tests without arguments.
std::optional<bool> test_alone(std::string_view name, const Value& value) {
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

}  // namespace

bool apply_test(Runtime& runtime, std::string_view name, const Value& value,
                const Arguments& arguments) {
  if (const auto answer = test_alone(name, value)) {
    const Bound in(arguments, name, "");
    return *answer;
  }
  if (name == "odd" || name == "even") {
    const Bound in(arguments, name, "");
    const Value rest = binary(runtime, BinaryOperator::modulo, value, Value(std::int64_t{2}));
    return equals(runtime, rest, Value(std::int64_t{name == "odd" ? 1 : 0}));
  }
  if (const auto comparison = comparison_of(name)) {
    const Bound in(arguments, name, "other");
    return compare(runtime, *comparison, value, in[0]);
  }
  throw Fault("unknown test '" + std::string(name) + "'");
}

}  // namespace hyb::jinja
