#include "core/text/jinja/operators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/strings.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

bool is_sequence_pair(const Value& a, const Value& b) {
  return a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple));
}

bool equal_items(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equals(runtime, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equals(runtime, entry.second, *other);
  });
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.size != b.size) return false;
  return a.size == 0 || (a.start == b.start && (a.size == 1 || a.step == b.step));
}

bool is_nan(const Value& value) { return value.is(Kind::real) && std::isnan(value.real()); }

bool less_numbers(const Value& a, const Value& b) {
  return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) < 0;
}

bool equal_numbers(const Value& a, const Value& b) {
  return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
}

bool less_or_equal(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return less_numbers(a, b) || equal_numbers(a, b);
  return !less(runtime, b, a);
}

}  // namespace

std::string type_name(const Value& value) {
  if (value.is(Kind::view)) return std::string(value.list().label);
  constexpr std::string_view names =
      "an undefined value|none|bool|int|float|str|list|tuple|dict|range|generator|view|namespace|"
      "loop|function";
  return std::string(hyb::split(names, '|')[static_cast<std::size_t>(value.kind())]);
}

void fail_undefined(const Value& value) {
  const std::string_view name = value.view();
  throw Fault(name.empty() ? "an undefined value is used"
                           : "'" + std::string(name) + "' is undefined");
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    case Kind::text:
      return !value.text().empty();
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return !value.list().items.empty();
    case Kind::dict:
      return value.dict().size() > 0;
    case Kind::range:
      return value.range().size > 0;
    case Kind::loop:
      return !value.loop().items->empty();
    case Kind::generator:
    case Kind::space:
    case Kind::callable:
      return true;
  }
  return false;
}

bool equals(Runtime& runtime, const Value& a, const Value& b) {
  runtime.meter().step();
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  const Nested nested(runtime.meter());
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      runtime.meter().step_bytes(std::min(a.text().size(), b.text().size()));
      return a.view() == b.view();
    case Kind::list:
    case Kind::tuple:
      return equal_items(runtime, a.list().items, b.list().items);
    case Kind::dict:
      return equal_dicts(runtime, a.dict(), b.dict());
    case Kind::range:
      return equal_ranges(a.range(), b.range());
    default:
      return a.pointer() == b.pointer();
  }
}

bool less(Runtime& runtime, const Value& a, const Value& b) {
  runtime.meter().step();
  if (a.is_number() && b.is_number()) return less_numbers(a, b);
  if (a.is_text() && b.is_text()) {
    runtime.meter().step_bytes(std::min(a.text().size(), b.text().size()));
    return a.view() < b.view();  // UTF-8 sorts as its code points do
  }
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (!is_sequence_pair(a, b)) {
    throw Fault("'<' or '>' between " + type_name(a) + " and " + type_name(b));
  }
  const Nested nested(runtime.meter());
  const std::vector<Value>& left = a.list().items;
  const std::vector<Value>& right = b.list().items;
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (!equals(runtime, left[i], right[i])) return less(runtime, left[i], right[i]);
  }
  return left.size() < right.size();
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::undefined:
      return false;
    case Kind::text: {
      if (!item.is_text()) throw Fault("'in' a string takes a string, got " + type_name(item));
      runtime.meter().step_bytes(container.text().size());
      return find_first(container.view(), item.view()) != std::string_view::npos;
    }
    case Kind::dict:
      return container.dict().find(item) != nullptr;
    case Kind::range:
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
    case Kind::generator:
      break;
    default:
      throw Fault("'in' takes a string, list or dict on its right, got " + type_name(container));
  }
  const List& items = iterate(runtime, container);
  return std::any_of(items.items.begin(), items.items.end(),
                     [&](const Value& value) { return equals(runtime, value, item); });
}

bool compare(Runtime& runtime, Comparison op, const Value& a, const Value& b) {
  switch (op) {
    case Comparison::equal:
      return equals(runtime, a, b);
    case Comparison::unequal:
      return !equals(runtime, a, b);
    case Comparison::less:
      return less(runtime, a, b);
    case Comparison::greater:
      return less(runtime, b, a);
    case Comparison::less_equal:
      return less_or_equal(runtime, a, b);
    case Comparison::greater_equal:
      return less_or_equal(runtime, b, a);
    case Comparison::in:
      return contains(runtime, b, a);
    case Comparison::not_in:
      return !contains(runtime, b, a);
  }
  return false;
}

std::int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return static_cast<std::int64_t>(character_count(value.text()));
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return static_cast<std::int64_t>(value.list().items.size());
    case Kind::dict:
      return static_cast<std::int64_t>(value.dict().size());
    case Kind::range:
      return value.range().size;
    case Kind::loop:
      return static_cast<std::int64_t>(value.loop().items->size());
    default:
      throw Fault(type_name(value) + " has no length");
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
    case Kind::space:
    case Kind::callable:
      return false;
    default:
      return true;
  }
}

List& iterate(Runtime& runtime, const Value& value) {
  List& out = runtime.new_list();
  switch (value.kind()) {
    case Kind::undefined:
      break;
    case Kind::text: {
      const Text text = value.text();
      const std::string_view view = text.view();
      for (std::size_t at = 0; at < view.size();) {
        const std::size_t end = at + character_bytes(view, at);
        runtime.push(out, Value(text.slice(at, end)));
        at = end;
      }
      break;
    }
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      for (const Value& item : value.list().items) runtime.push(out, item);
      break;
    case Kind::generator: {
      List& from = value.list();
      while (from.next < from.items.size()) runtime.push(out, from.items[from.next++]);
      break;
    }
    case Kind::dict:
      for (const auto& [key, item] : value.dict().entries()) runtime.push(out, key);
      break;
    case Kind::range:
      for (std::int64_t i = 0; i < value.range().size; ++i) {
        runtime.push(out, Value(value.range().at(i)));
      }
      break;
    default:
      throw Fault(type_name(value) + " can't be iterated over");
  }
  return out;
}

namespace {

std::string_view symbol_of(BinaryOperator op) {
  constexpr std::array<std::string_view, 6> symbols = {"+", "-", "*", "/", "//", "%"};
  return symbols[static_cast<std::size_t>(op)];
}

[[noreturn]] void overflow() { throw Fault("an integer is over 64 bits"); }
[[noreturn]] void zero_division() { throw Fault("division by zero"); }

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
  }
  return {};
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
    case BinaryOperator::modulo:
      throw Fault("'//' and '%' take integers");
  }
  return {};
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

namespace {

Value loop_attribute(const Loop& loop, std::string_view name, bool& found) {
  const auto count = static_cast<std::int64_t>(loop.items->size());
  const auto index0 = static_cast<std::int64_t>(loop.index0);
  found = true;
  if (name == "index") return Value(index0 + 1);
  if (name == "index0") return Value(index0);
  if (name == "revindex") return Value(count - index0);
  if (name == "revindex0") return Value(count - index0 - 1);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(index0 == count - 1);
  if (name == "length") return Value(count);
  if (name == "previtem") return index0 > 0 ? (*loop.items)[loop.index0 - 1] : Value{};
  if (name == "nextitem") return index0 + 1 < count ? (*loop.items)[loop.index0 + 1] : Value{};
  for (const char* const other : {"depth", "depth0", "cycle", "changed"}) {
    if (name == other) throw Fault("loop." + std::string(name) + " is not supported");
  }
  found = false;
  return {};
}

/// Attributes that are no items: methods and the properties of our own objects.
Value own_attribute(Runtime& runtime, const Value& object, std::string_view name, bool& found) {
  found = false;
  if (object.is(Kind::loop)) {
    const Value value = loop_attribute(object.loop(), name, found);
    if (found) return value;
  }
  if (object.is(Kind::callable)) {
    throw Fault("attributes of macros and functions are not supported: " + std::string(name));
  }
  if (object.is(Kind::space)) {
    const Value* value = object.dict().find(name);
    found = value != nullptr;
    return found ? *value : Value{};
  }
  const std::string_view method = find_method(object, name);
  if (method.empty()) return {};
  found = true;
  return Value(
      &runtime.new_callable({.kind = Callable::Kind::method, .self = object, .name = method}));
}

Value at_position(Runtime& runtime, const Value& object, std::int64_t position) {
  const std::int64_t count = length(object);
  if (object.is_text() && !object.text().surely_ascii()) {
    runtime.meter().step_bytes(object.text().size());
  }
  if (position < 0) position += count;
  if (position < 0 || position >= count) return {};
  if (object.is(Kind::range)) return Value(object.range().at(position));
  const auto place = static_cast<std::size_t>(position);
  if (!object.is_text()) return object.list().items[place];
  const Text text = object.text();
  const std::size_t begin = byte_offset(text, place);
  return Value(text.slice(begin, begin + character_bytes(text.view(), begin)));
}

bool is_indexed(const Value& value) {
  return value.is_text() || value.is(Kind::list) || value.is(Kind::tuple) || value.is(Kind::range);
}

/// slice.indices(count) of Python.
struct Indices {
  std::int64_t start;
  std::int64_t stop;
  std::int64_t step;
};

std::optional<std::int64_t> bound_of(const Value& value) {
  if (value.is_none()) return std::nullopt;
  if (!value.is_integral()) throw Fault("a slice's bound is an integer, got " + type_name(value));
  return value.integer();
}

Indices indices_of(const SliceBounds& bounds, std::int64_t count) {
  const auto start = bound_of(bounds.start);
  const auto stop = bound_of(bounds.stop);
  const std::int64_t step = bound_of(bounds.step).value_or(1);
  if (step == 0) throw Fault("a slice's step can't be zero");
  const std::int64_t low = step < 0 ? -1 : 0;
  const std::int64_t high = step < 0 ? count - 1 : count;
  const auto clamp = [&](std::int64_t value) {
    if (value < 0) value = value < -count ? -1 - count : value;
    return std::clamp(value < 0 ? value + count : value, low, high);
  };
  const std::int64_t first = start ? clamp(*start) : (step < 0 ? high : low);
  const std::int64_t last = stop ? clamp(*stop) : (step < 0 ? low : high);
  return Indices{first, last, step};
}

Value slice_text(Runtime& runtime, const Text& text, const Indices& indices) {
  runtime.meter().step_bytes(text.size());
  if (indices.step == 1) {
    if (indices.stop <= indices.start) return Value(Text{});
    const std::size_t begin = byte_offset(text, static_cast<std::size_t>(indices.start));
    const auto count = static_cast<std::size_t>(indices.stop - indices.start);
    return Value(text.slice(begin, begin + byte_offset(text.from(begin), count)));
  }
  const List& characters = iterate(runtime, Value(text));
  MarkedBuffer& out = runtime.new_buffer();
  for (std::int64_t i = indices.start; indices.step > 0 ? i < indices.stop : i > indices.stop;) {
    append(runtime.meter(), out, characters.items[static_cast<std::size_t>(i)].text());
    if (__builtin_add_overflow(i, indices.step, &i)) break;
  }
  return Value(Runtime::whole(out));
}

Value slice_range(Runtime& runtime, const Range& range, const Indices& indices) {
  const std::int64_t distance =
      indices.step > 0 ? indices.stop - indices.start : indices.start - indices.stop;
  const std::int64_t stride = indices.step > 0 ? indices.step : -indices.step;
  const std::int64_t size = distance > 0 ? (distance - 1) / stride + 1 : 0;
  std::int64_t step = 0;
  if (__builtin_mul_overflow(range.step, indices.step, &step)) {
    throw Fault("a slice's step is over 64 bits");
  }
  return runtime.new_range({.start = range.at(indices.start),
                            .stop = range.at(indices.stop),
                            .step = step,
                            .size = size});
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  bool found = false;
  const Value value = own_attribute(runtime, object, name, found);
  if (found) return value;
  if (object.is(Kind::dict)) {
    if (const Value* item = object.dict().find(name)) return *item;
  }
  return Value::undefined(runtime.text(name));
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is(Kind::dict) && !key.is(Kind::list) && !key.is(Kind::dict)) {
    if (const Value* item = object.dict().find(key)) return *item;
  }
  if (is_indexed(object) && key.is_integral()) return at_position(runtime, object, key.integer());
  if (!key.is_text()) return {};
  bool found = false;
  const Value value = own_attribute(runtime, object, key.view(), found);
  return found ? value : Value::undefined(key.text());
}

Value get_slice(Runtime& runtime, const Value& object, const SliceBounds& bounds) {
  if (object.is_undefined()) fail_undefined(object);
  if (!is_indexed(object)) throw Fault(type_name(object) + " can't be sliced");
  const Indices indices = indices_of(bounds, length(object));
  if (object.is_text()) return slice_text(runtime, object.text(), indices);
  if (object.is(Kind::range)) return slice_range(runtime, object.range(), indices);
  List& out = runtime.new_list();
  const std::vector<Value>& items = object.list().items;
  for (std::int64_t i = indices.start; indices.step > 0 ? i < indices.stop : i > indices.stop;) {
    runtime.push(out, items[static_cast<std::size_t>(i)]);
    if (__builtin_add_overflow(i, indices.step, &i)) break;
  }
  return Value(object.kind(), &out);
}

Value get_path(Runtime& runtime, const Value& object, const Value& path) {
  if (path.is_none() || path.is_undefined()) return object;
  if (!path.is_text()) return get_item(runtime, object, path);
  Value value = object;
  const Text whole = path.text();
  for (std::size_t begin = 0; begin <= whole.size();) {
    const std::size_t end = std::min(whole.view().find('.', begin), whole.size());
    const Text part = whole.slice(begin, end);
    const auto number = parse_number<std::int64_t>(part.view());
    const bool is_position = number && part.view()[0] != '-';
    value = get_item(runtime, value, is_position ? Value(*number) : Value(part));
    begin = end + 1;
  }
  return value;
}

}  // namespace hyb::jinja
