#include "core/text/jinja/builtins.h"

#include <span>

#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/strings.h"
#include "core/text/jinja/unicode.h"
#include "core/text/jinja/value.h"

namespace hyb::jinja {
namespace {

// Methods of lists and dicts. Lists and dicts are mutable: the reference environment
// refuses that, other engines allow it, and published templates rely on it.

Value list_append(Runtime& runtime, const Value& self, const Bound& in) {
  runtime.push(self.list(), in[0]);
  return Value::none();
}

Value list_extend(Runtime& runtime, const Value& self, const Bound& in) {
  for (const Value& item : iterate(runtime, in[0]).items) runtime.push(self.list(), item);
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

Value dict_get(Runtime&, const Value& self, const Bound& in) {
  const Value* found = self.dict().find(in[0]);
  if (found != nullptr) return *found;
  return in.has(1) ? in[1] : Value::none();
}

Value dict_items(Runtime& runtime, const Value& self, const Bound&) {
  List& view = runtime.new_list();
  view.label = "dict_items";
  for (const auto& [key, value] : self.dict().entries()) {
    runtime.push(view, runtime.pair(key, value));
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
                                       {"extend", "items", list_extend}};
  return table;
}

std::span<const Function> dict_methods() {
  static constexpr Function table[] = {
      {"get", "key default?", dict_get}, {"items", "", dict_items},
      {"keys", "", dict_keys},           {"values", "", dict_values},
      {"update", "*", dict_update},      {"pop", "key default?", dict_pop}};
  return table;
}

const Function* find_method_entry(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::text:
      return find_function(text_methods(), name);
    case Kind::list:
      return find_function(list_methods(), name);
    case Kind::dict:
      return find_function(dict_methods(), name);
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
