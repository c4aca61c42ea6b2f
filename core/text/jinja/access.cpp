#include "core/text/jinja/access.h"

#include <algorithm>
#include <charconv>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/methods.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
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
  if (name == "depth") return Value(std::int64_t{loop.depth0 + 1});
  if (name == "depth0") return Value(std::int64_t{loop.depth0});
  if (name == "previtem") return index0 > 0 ? (*loop.items)[loop.index0 - 1] : Value{};
  if (name == "nextitem") return index0 + 1 < count ? (*loop.items)[loop.index0 + 1] : Value{};
  found = false;
  return {};
}

Value callable_attribute(Runtime& runtime, const Callable& callable, std::string_view name,
                         bool& found) {
  found = true;
  if (callable.kind == Callable::Kind::macro && name == "name") {
    return runtime.text_value(callable.macro->name);
  }
  if (callable.kind == Callable::Kind::cycler && name == "current") {
    return callable.values[callable.position];
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
    const Value value = callable_attribute(runtime, object.callable(), name, found);
    if (found) return value;
  }
  if (object.is(Kind::space)) {
    const Value* value = object.dict().find(name);
    found = value != nullptr;
    return found ? *value : Value{};
  }
  if (object.is(Kind::tuple) && object.list().label == "group") {
    found = name == "grouper" || name == "list";
    if (found) return object.list().items[name == "list" ? 1 : 0];
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
    std::int64_t position = 0;
    const std::string_view view = part.view();
    const auto read = std::from_chars(view.data(), view.data() + view.size(), position);
    const bool number = !view.empty() && view[0] != '-' && read.ec == std::errc{} &&
                        read.ptr == view.data() + view.size();
    value = get_item(runtime, value, number ? Value(position) : Value(part));
    begin = end + 1;
  }
  return value;
}

}  // namespace hyb::jinja
