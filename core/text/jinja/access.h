#pragma once

#include <optional>
#include <string_view>

#include "core/text/jinja/value.h"

namespace hyb::jinja {

class Runtime;

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
/// Of a string, list, tuple or range; anything else is a Fault.
Value get_slice(Runtime& runtime, const Value& object, const SliceBounds& bounds);

/// "a.b.0": what the attribute arguments of filters name.
Value get_path(Runtime& runtime, const Value& object, const Value& path);

}  // namespace hyb::jinja
