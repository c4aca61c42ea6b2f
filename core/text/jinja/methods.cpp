#include "core/text/jinja/methods.h"

#include <algorithm>
#include <optional>
#include <span>

#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/strings.h"
#include "core/text/jinja/unicode.h"
#include "core/text/jinja/value.h"

namespace hyb::jinja {
namespace {

// Methods of lists, tuples and dicts. Lists and dicts are mutable: the reference environment
// refuses that, other engines allow it, and published templates rely on it.

/// A position, clamped as by list.insert.
std::size_t clamped(std::int64_t position, std::size_t count) {
  const auto size = static_cast<std::int64_t>(count);
  if (position < 0) position = std::max<std::int64_t>(position, -size) + size;
  return static_cast<std::size_t>(std::min(position, size));
}

Value list_append(Runtime& runtime, const Value& self, const Bound& in) {
  runtime.push(self.list(), in[0]);
  return Value::none();
}

Value list_extend(Runtime& runtime, const Value& self, const Bound& in) {
  for (const Value& item : iterate(runtime, in[0]).items) runtime.push(self.list(), item);
  return Value::none();
}

Value list_insert(Runtime& runtime, const Value& self, const Bound& in) {
  std::vector<Value>& items = self.list().items;
  const std::size_t place = clamped(in.integer(0, 0), items.size());
  runtime.meter().step(items.size() / 64);
  runtime.push(self.list(), in[1]);
  std::rotate(items.begin() + static_cast<std::ptrdiff_t>(place), items.end() - 1, items.end());
  return Value::none();
}

Value list_pop(Runtime& runtime, const Value& self, const Bound& in) {
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

Value list_clear(Runtime&, const Value& self, const Bound&) {
  self.list().items.clear();
  return Value::none();
}

Value list_reverse(Runtime& runtime, const Value& self, const Bound&) {
  runtime.meter().step(self.list().items.size() / 16);
  std::reverse(self.list().items.begin(), self.list().items.end());
  return Value::none();
}

Value list_copy(Runtime& runtime, const Value& self, const Bound&) {
  return Value(Kind::list, &iterate(runtime, self));
}

Value sequence_count(Runtime& runtime, const Value& self, const Bound& in) {
  std::int64_t count = 0;
  for (const Value& item : iterate(runtime, self).items) {
    count += equals(runtime, item, in[0]) ? 1 : 0;
  }
  return Value(count);
}

Value sequence_index(Runtime& runtime, const Value& self, const Bound& in) {
  const std::vector<Value>& items = iterate(runtime, self).items;
  const std::size_t start = clamped(in.integer(1, 0), items.size());
  const std::size_t stop =
      clamped(in.integer(2, static_cast<std::int64_t>(items.size())), items.size());
  for (std::size_t i = start; i < stop; ++i) {
    if (equals(runtime, items[i], in[0])) return Value(static_cast<std::int64_t>(i));
  }
  throw Fault("index: the item is not in the list");
}

Value dict_get(Runtime&, const Value& self, const Bound& in) {
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

Value dict_items(Runtime& runtime, const Value& self, const Bound&) {
  List& view = runtime.new_list();
  view.label = "dict_items";
  for (const auto& [key, value] : self.dict().entries()) {
    runtime.push(view, pair(runtime, key, value));
  }
  return Value(Kind::view, &view);
}

Value dict_keys(Runtime& runtime, const Value& self, const Bound&) {
  List& view = runtime.new_list();
  view.label = "dict_keys";
  for (const auto& [key, value] : self.dict().entries()) runtime.push(view, key);
  return Value(Kind::view, &view);
}

Value dict_values(Runtime& runtime, const Value& self, const Bound&) {
  List& view = runtime.new_list();
  view.label = "dict_values";
  for (const auto& [key, value] : self.dict().entries()) runtime.push(view, value);
  return Value(Kind::view, &view);
}

Value dict_copy(Runtime& runtime, const Value& self, const Bound&) {
  Dict& dict = runtime.new_dict();
  for (const auto& [key, value] : self.dict().entries()) runtime.set(dict, key, value);
  return Value(Kind::dict, &dict);
}

Value dict_pop(Runtime& runtime, const Value& self, const Bound& in) {
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

Value dict_setdefault(Runtime& runtime, const Value& self, const Bound& in) {
  if (const Value* found = self.dict().find(in[0])) return *found;
  const Value value = in.has(1) ? in[1] : Value::none();
  runtime.set(self.dict(), in[0], value);
  return value;
}

Value dict_update(Runtime& runtime, const Value& self, const Bound& in) {
  const Arguments& arguments = in.arguments();
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

std::span<const Function> list_methods() {
  static constexpr Function table[] = {{"append", "item", list_append},
                                       {"pop", "index?", list_pop},
                                       {"extend", "items", list_extend},
                                       {"insert", "index item", list_insert},
                                       {"index", "item start? stop?", sequence_index},
                                       {"count", "item", sequence_count},
                                       {"copy", "", list_copy},
                                       {"reverse", "", list_reverse},
                                       {"clear", "", list_clear}};
  return table;
}

std::span<const Function> tuple_methods() {
  static constexpr Function table[] = {{"index", "item start? stop?", sequence_index},
                                       {"count", "item", sequence_count}};
  return table;
}

std::span<const Function> dict_methods() {
  static constexpr Function table[] = {
      {"get", "key default?", dict_get}, {"items", "", dict_items},
      {"keys", "", dict_keys},           {"values", "", dict_values},
      {"copy", "", dict_copy},           {"update", "*", dict_update},
      {"pop", "key default?", dict_pop}, {"setdefault", "key default?", dict_setdefault}};
  return table;
}

// Methods of the loop variable and of cyclers.

Value loop_cycle(Runtime&, const Value& self, const Bound& in) {
  const std::vector<Value>& values = in.arguments().positional;
  if (values.empty()) throw Fault("loop.cycle needs values");
  return values[self.loop().index0 % values.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, const Bound& in) {
  const std::vector<Value>& values = in.arguments().positional;
  Loop& loop = self.loop();
  const auto equal = [&](const Value& a, const Value& b) { return equals(runtime, a, b); };
  const bool same =
      loop.ever_changed && std::equal(loop.last_changed.begin(), loop.last_changed.end(),
                                      values.begin(), values.end(), equal);
  loop.ever_changed = true;
  loop.last_changed = values;
  return Value(!same);
}

Value cycler_next(Runtime&, const Value& self, const Bound&) {
  Callable& cycler = self.callable();
  const Value value = cycler.values[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.values.size();
  return value;
}

Value cycler_reset(Runtime&, const Value& self, const Bound&) {
  self.callable().position = 0;
  return Value::none();
}

std::span<const Function> loop_methods() {
  static constexpr Function table[] = {{"cycle", "*", loop_cycle}, {"changed", "*", loop_changed}};
  return table;
}

std::span<const Function> cycler_methods() {
  static constexpr Function table[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}};
  return table;
}

const Function* find_method_entry(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::text:
      return find_function(text_methods(), name);
    case Kind::list:
      return find_function(list_methods(), name);
    case Kind::tuple:
    case Kind::range:
      return find_function(tuple_methods(), name);
    case Kind::dict:
      return find_function(dict_methods(), name);
    case Kind::loop:
      return find_function(loop_methods(), name);
    case Kind::callable:
      return object.callable().kind == Callable::Kind::cycler
                 ? find_function(cycler_methods(), name)
                 : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

std::string_view find_method(const Value& object, std::string_view name) {
  const Function* entry = find_method_entry(object, name);
  return entry == nullptr ? std::string_view{} : entry->name;
}

Value call_method(Runtime& runtime, const Value& object, std::string_view name,
                  const Arguments& arguments) {
  const Function* entry = find_method_entry(object, name);
  if (entry == nullptr) throw Fault(type_name(object) + " has no method " + std::string(name));
  return call(runtime, *entry, object, arguments);
}

}  // namespace hyb::jinja
