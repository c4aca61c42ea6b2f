#include "core/text/jinja/operators.h"

#include <algorithm>

#include "core/text/jinja/fault.h"
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

bool less_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  const auto widen = [](const Value& value) {
    return value.is_integral() ? static_cast<long double>(value.integer())
                               : static_cast<long double>(value.real());
  };
  return widen(a) < widen(b);
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  return !less_numbers(a, b) && !less_numbers(b, a) && a.real() == a.real() && b.real() == b.real();
}

bool less_or_equal(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return less_numbers(a, b) || equal_numbers(a, b);
  return !less(runtime, b, a);
}

}  // namespace

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "an undefined value";
    case Kind::none:
      return "none";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::generator:
      return "generator";
    case Kind::view:
      return std::string(value.list().label);
    case Kind::space:
      return "namespace";
    case Kind::loop:
      return "loop";
    case Kind::callable:
      return "function";
  }
  return "";
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

}  // namespace hyb::jinja
