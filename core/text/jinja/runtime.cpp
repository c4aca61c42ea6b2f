#include "core/text/jinja/runtime.h"

#include <algorithm>
#include <string>

#include "core/text/jinja/operators.h"

namespace hyb::jinja {
namespace {

/// Approximate memory per entry in the map and the vector of a Dict.
constexpr std::size_t entry_bytes = sizeof(Dict::Entry) + sizeof(Value) + 56;

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->names) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, const Value& value) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (found == names.end())
    names.emplace_back(name, value);
  else
    found->second = value;
}

MarkedBuffer& Runtime::new_buffer() {
  meter_.hold(sizeof(MarkedBuffer));
  return buffers_.emplace_back();
}

List& Runtime::new_list() {
  meter_.hold(sizeof(List));
  return lists_.emplace_back();
}

Dict& Runtime::new_dict() {
  meter_.hold(sizeof(Dict));
  return dicts_.emplace_back();
}

Scope& Runtime::new_scope(Scope* parent) {
  if (!free_scopes_.empty()) {
    Scope& scope = *free_scopes_.back();
    free_scopes_.pop_back();
    scope.parent = parent;
    return scope;
  }
  meter_.hold(sizeof(Scope) + 4 * sizeof(Value));
  return scopes_.emplace_back(Scope{.parent = parent});
}

void Runtime::free_scope(Scope& scope) {
  if (scope.captured) return;
  scope.names.clear();
  free_scopes_.push_back(&scope);
}

Loop& Runtime::new_loop(const List& items) {
  meter_.hold(sizeof(Loop));
  return loops_.emplace_back(Loop{.items = &items.items});
}

Callable& Runtime::new_callable(Callable callable) {
  meter_.hold(sizeof(Callable));
  return callables_.emplace_back(std::move(callable));
}

Value Runtime::new_range(const Range& range) {
  meter_.hold(sizeof(Range));
  return Value(&ranges_.emplace_back(range));
}

void Runtime::push(List& list, const Value& value) {
  meter_.step();
  meter_.hold(sizeof(Value));
  list.items.push_back(value);
}

Value Runtime::pair(const Value& key, const Value& value) {
  List& list = new_list();
  push(list, key);
  push(list, value);
  return Value(Kind::tuple, &list);
}

void Runtime::set(Dict& dict, const Value& key, const Value& value) {
  meter_.step();
  meter_.hold(entry_bytes);
  dict.set(key, value);
}

Text Runtime::text(std::string_view bytes, TextSource source) {
  if (bytes.empty()) return {};
  MarkedBuffer& buffer = new_buffer();
  buffer.append(meter_, bytes, source);
  return whole(buffer);
}

Text Runtime::concatenate(const Text& a, const Text& b) {
  if (b.empty()) return a;
  if (a.empty()) return b;
  if (a.at_end_of_buffer()) {
    append(meter_, *a.buffer(), b);
    return {a.buffer(), a.begin(), a.buffer()->size()};
  }
  MarkedBuffer& buffer = new_buffer();
  append(meter_, buffer, a);
  append(meter_, buffer, b);
  return whole(buffer);
}

Bound::Bound(const Arguments& arguments, std::string_view function, std::string_view parameters)
    : arguments_(arguments), function_(function) {
  if (parameters == "*") return;
  std::size_t required = 0;
  while (!parameters.empty()) {
    const std::size_t space = std::min(parameters.find(' '), parameters.size());
    std::string_view parameter = parameters.substr(0, space);
    parameters.remove_prefix(std::min(space + 1, parameters.size()));
    if (parameter.ends_with('?')) {
      parameter.remove_suffix(1);
    } else {
      ++required;
    }
    parameters_.push_back(parameter);
  }
  values_.resize(parameters_.size());
  const std::string subject(function);
  if (arguments.positional.size() > parameters_.size()) {
    throw Fault(subject + " takes at most " + std::to_string(parameters_.size()) +
                " arguments, got " + std::to_string(arguments.positional.size()));
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end()) {
      throw Fault(subject + " has no parameter '" + std::string(name) + "'");
    }
    auto& place = values_[static_cast<std::size_t>(found - parameters_.begin())];
    if (place) throw Fault(subject + " got '" + std::string(name) + "' twice");
    place = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i]) throw Fault(subject + " needs '" + std::string(parameters_[i]) + "'");
  }
}

void Bound::fail_type(std::size_t parameter, const char* expected) const {
  throw Fault(std::string(function_) + ": '" + std::string(parameters_[parameter]) + "' is " +
              expected + ", got " + type_name((*this)[parameter]));
}

bool Bound::truth(std::size_t parameter, bool fallback) const {
  return has(parameter) ? is_true(*values_[parameter]) : fallback;
}

std::int64_t Bound::integer(std::size_t parameter, std::int64_t fallback) const {
  if (!given(parameter)) return fallback;
  if (!values_[parameter]->is_integral()) fail_type(parameter, "an integer");
  return values_[parameter]->integer();
}

Text Bound::text(std::size_t parameter) const {
  if (!(*this)[parameter].is_text()) fail_type(parameter, "a string");
  return values_[parameter]->text();
}

std::optional<Text> Bound::optional_text(std::size_t parameter) const {
  return given(parameter) ? std::optional<Text>(text(parameter)) : std::nullopt;
}

const Function* find_function(std::span<const Function> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Function& function) { return function.name == name; });
  return found == table.end() ? nullptr : &*found;
}

Value call(Runtime& runtime, const Function& function, const Value& input,
           const Arguments& arguments) {
  const Bound in(arguments, function.name, function.parameters);
  return function.body(runtime, input, in);
}

}  // namespace hyb::jinja
