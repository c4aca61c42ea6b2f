#include "core/text/jinja/methods.h"

#include <algorithm>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"

namespace hyb::jinja {
namespace {

const FunctionEntry* find_in(std::span<const FunctionEntry> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const FunctionEntry& entry) { return entry.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const FunctionEntry* find_entry(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::text: {
      const FunctionEntry* found = find_in(text_methods(), name);
      return found != nullptr ? found : find_in(text_predicate_methods(), name);
    }
    case Kind::list:
      return find_in(list_methods(), name);
    case Kind::tuple:
    case Kind::range:
      return find_in(tuple_methods(), name);
    case Kind::dict:
      return find_in(dict_methods(), name);
    case Kind::loop:
      return find_in(loop_methods(), name);
    case Kind::callable:
      return object.callable().kind == Callable::Kind::cycler ? find_in(cycler_methods(), name)
                                                              : nullptr;
    default:
      return nullptr;
  }
}

Value loop_cycle(Runtime&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) throw Fault("loop.cycle needs values");
  return arguments.positional[self.loop().index0 % arguments.positional.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Loop& loop = self.loop();
  bool same = loop.ever_changed && loop.last_changed.size() == arguments.positional.size();
  for (std::size_t i = 0; same && i < loop.last_changed.size(); ++i) {
    same = equals(runtime, loop.last_changed[i], arguments.positional[i]);
  }
  loop.ever_changed = true;
  loop.last_changed = arguments.positional;
  return Value(!same);
}

Value cycler_next(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "next", {});
  Callable& cycler = self.callable();
  const Value value = cycler.values[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.values.size();
  return value;
}

Value cycler_reset(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "reset", {});
  self.callable().position = 0;
  return Value::none();
}

}  // namespace

std::span<const FunctionEntry> loop_methods() {
  static constexpr FunctionEntry table[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};
  return table;
}

std::span<const FunctionEntry> cycler_methods() {
  static constexpr FunctionEntry table[] = {{"next", cycler_next}, {"reset", cycler_reset}};
  return table;
}

std::string_view find_method(const Value& object, std::string_view name) {
  const FunctionEntry* entry = find_entry(object, name);
  return entry == nullptr ? std::string_view{} : entry->name;
}

Value call_method(Runtime& runtime, const Value& object, std::string_view name,
                  const Arguments& arguments) {
  const FunctionEntry* entry = find_entry(object, name);
  if (entry == nullptr) throw Fault(type_name(object) + " has no method " + std::string(name));
  return entry->function(runtime, object, arguments);
}

}  // namespace hyb::jinja
