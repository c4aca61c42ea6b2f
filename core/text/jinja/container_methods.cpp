// Methods of lists, tuples and dicts (methods.h). Lists and dicts can be changed: the reference
// environment refuses that, other engines allow it and published templates do it.
#include <algorithm>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/methods.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"

namespace hyb::jinja {
namespace {

/// A position as list.insert takes it: clamped.
std::size_t clamped(std::int64_t position, std::size_t count) {
  const auto size = static_cast<std::int64_t>(count);
  if (position < 0) position = std::max<std::int64_t>(position, -size) + size;
  return static_cast<std::size_t>(std::min(position, size));
}

Value list_append(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "append", {"item"}, 1);
  runtime.push(self.list(), in[0]);
  return Value::none();
}

Value list_extend(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "extend", {"items"}, 1);
  for (const Value& item : iterate(runtime, in[0]).items) runtime.push(self.list(), item);
  return Value::none();
}

Value list_insert(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "insert", {"index", "item"}, 2);
  std::vector<Value>& items = self.list().items;
  const std::size_t place = clamped(in.integer(0, 0), items.size());
  runtime.meter().step(items.size() / 64);
  runtime.push(self.list(), in[1]);
  std::rotate(items.begin() + static_cast<std::ptrdiff_t>(place), items.end() - 1, items.end());
  return Value::none();
}

Value list_pop(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "pop", {"index"});
  std::vector<Value>& items = self.list().items;
  std::int64_t position = in.integer(0, -1);
  if (position < 0) position += static_cast<std::int64_t>(items.size());
  if (position < 0 || position >= static_cast<std::int64_t>(items.size())) {
    throw Fault("pop: the list has no such item");
  }
  const auto place = items.begin() + static_cast<std::ptrdiff_t>(position);
  const Value item = *place;
  runtime.meter().step(items.size() / 64);
  items.erase(place);
  return item;
}

Value list_clear(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "clear", {});
  self.list().items.clear();
  return Value::none();
}

Value list_reverse(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "reverse", {});
  runtime.meter().step(self.list().items.size() / 16);
  std::reverse(self.list().items.begin(), self.list().items.end());
  return Value::none();
}

Value list_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "copy", {});
  return Value(Kind::list, &iterate(runtime, self));
}

Value sequence_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "count", {"item"}, 1);
  std::int64_t count = 0;
  for (const Value& item : iterate(runtime, self).items) {
    count += equals(runtime, item, in[0]) ? 1 : 0;
  }
  return Value(count);
}

Value sequence_index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "index", {"item", "start", "stop"}, 1);
  const std::vector<Value>& items = iterate(runtime, self).items;
  const std::size_t start = clamped(in.integer(1, 0), items.size());
  const std::size_t stop =
      clamped(in.integer(2, static_cast<std::int64_t>(items.size())), items.size());
  for (std::size_t i = start; i < stop; ++i) {
    if (equals(runtime, items[i], in[0])) return Value(static_cast<std::int64_t>(i));
  }
  throw Fault("index: the item is not in the list");
}

Value dict_get(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "get", {"key", "default"}, 1);
  const Value* found = self.dict().find(in[0]);
  if (found != nullptr) return *found;
  return in.has(1) ? in[1] : Value::none();
}

Value pair(Runtime& runtime, const Value& key, const Value& value) {
  List& list = runtime.new_list();
  runtime.push(list, key);
  runtime.push(list, value);
  return Value(Kind::tuple, &list);
}

Value dict_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "items", {});
  List& view = runtime.new_list();
  view.label = "dict_items";
  for (const auto& [key, value] : self.dict().entries()) {
    runtime.push(view, pair(runtime, key, value));
  }
  return Value(Kind::view, &view);
}

Value dict_keys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "keys", {});
  List& view = runtime.new_list();
  view.label = "dict_keys";
  for (const auto& [key, value] : self.dict().entries()) runtime.push(view, key);
  return Value(Kind::view, &view);
}

Value dict_values(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "values", {});
  List& view = runtime.new_list();
  view.label = "dict_values";
  for (const auto& [key, value] : self.dict().entries()) runtime.push(view, value);
  return Value(Kind::view, &view);
}

Value dict_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "copy", {});
  Dict& dict = runtime.new_dict();
  for (const auto& [key, value] : self.dict().entries()) runtime.set(dict, key, value);
  return Value(Kind::dict, &dict);
}

Value dict_pop(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "pop", {"key", "default"}, 1);
  const Value* found = self.dict().find(in[0]);
  if (found == nullptr) {
    if (in.has(1)) return in[1];
    throw Fault("pop: the dict has no such key");
  }
  const Value value = *found;
  runtime.meter().step(self.dict().size());
  self.dict().erase(in[0]);
  return value;
}

Value dict_setdefault(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "setdefault", {"key", "default"}, 1);
  if (const Value* found = self.dict().find(in[0])) return *found;
  const Value value = in.has(1) ? in[1] : Value::none();
  runtime.set(self.dict(), in[0], value);
  return value;
}

Value dict_update(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (arguments.positional.size() > 1) throw Fault("update takes one dict");
  if (!arguments.positional.empty()) {
    const Value& other = arguments.positional[0];
    if (!other.is(Kind::dict)) throw Fault("update takes a dict, got " + type_name(other));
    if (other.pointer() != self.pointer()) {
      for (const auto& [key, value] : other.dict().entries()) {
        runtime.set(self.dict(), key, value);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    runtime.set(self.dict(), runtime.text_value(name), value);
  }
  return Value::none();
}

}  // namespace

std::span<const FunctionEntry> list_methods() {
  static constexpr FunctionEntry table[] = {
      {"append", list_append}, {"pop", list_pop},         {"extend", list_extend},
      {"insert", list_insert}, {"index", sequence_index}, {"count", sequence_count},
      {"copy", list_copy},     {"reverse", list_reverse}, {"clear", list_clear}};
  return table;
}

std::span<const FunctionEntry> tuple_methods() {
  static constexpr FunctionEntry table[] = {{"index", sequence_index}, {"count", sequence_count}};
  return table;
}

std::span<const FunctionEntry> dict_methods() {
  static constexpr FunctionEntry table[] = {{"get", dict_get},   {"items", dict_items},
                                            {"keys", dict_keys}, {"values", dict_values},
                                            {"copy", dict_copy}, {"update", dict_update},
                                            {"pop", dict_pop},   {"setdefault", dict_setdefault}};
  return table;
}

}  // namespace hyb::jinja
