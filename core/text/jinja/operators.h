#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/value.h"

namespace hyb::jinja {

class Runtime;

// Python's operators on values. Python's exceptions are Faults; so is an overflow of 64-bit
// integers.

/// "str", "int", "list", ... for messages.
std::string type_name(const Value& value);

/// Throws the Fault for using an undefined value.
[[noreturn]] void fail_undefined(const Value& value);

bool is_true(const Value& value);
bool equals(Runtime& runtime, const Value& a, const Value& b);
/// a < b for numbers, texts, lists and tuples.
bool less(Runtime& runtime, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);
bool compare(Runtime& runtime, Comparison op, const Value& a, const Value& b);

Value binary(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b);
Value negate(const Value& value);

/// len(): characters, items or entries.
std::int64_t length(const Value& value);

bool is_iterable(const Value& value);
/// A new list of what iteration yields: characters, items, keys. Consumes a generator.
List& iterate(Runtime& runtime, const Value& value);

/// object.name: a method first, then an item of that name, else undefined. An attribute of an
/// undefined value is a Fault. `name` must live as long as the template.
Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);

/// object[key]: an item first; for text keys then a method, else undefined.
Value get_item(Runtime& runtime, const Value& object, const Value& key);

/// Bounds are integers or None.
struct SliceBounds {
  Value start = Value::none();
  Value stop = Value::none();
  Value step = Value::none();
};
/// Takes a string, list, tuple or range; anything else is a Fault.
Value get_slice(Runtime& runtime, const Value& object, const SliceBounds& bounds);

/// Looks up "a.b.0", the form of attribute arguments of filters.
Value get_path(Runtime& runtime, const Value& object, const Value& path);

}  // namespace hyb::jinja
