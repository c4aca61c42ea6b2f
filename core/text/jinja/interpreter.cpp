#include "core/text/jinja/interpreter.h"

#include "core/text/jinja/fault.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"

namespace hyb::jinja {

Interpreter::Interpreter(const Template& parsed, Runtime& runtime, Scope& root,
                         MarkedBuffer& output)
    : template_(parsed),
      runtime_(runtime),
      scope_(&root),
      output_(&output),
      literals_(parsed.literals) {}

void Interpreter::run() { execute(template_.body); }

Interpreter::Signal Interpreter::execute(const Body& body) {
  for (const Statement& statement : body) {
    const Signal signal = execute(statement);
    if (signal != Signal::none) return signal;
  }
  return Signal::none;
}

Interpreter::Signal Interpreter::execute(const Statement& statement) {
  runtime_.meter().step();
  const Nested nested(runtime_.meter());
  place_ = statement.place;
  return std::visit([&](const auto& node) { return perform(node); }, statement.node);
}

void Interpreter::write(const Text& text) {
  runtime_.meter().check_output(output_->size() + text.size());
  append(runtime_.meter(), *output_, text);
}

Interpreter::Signal Interpreter::perform(const Data& node) {
  runtime_.meter().check_output(output_->size() + node.text.size());
  output_->append(runtime_.meter(), node.text, TextSource::tmpl);
  return Signal::none;
}

Interpreter::Signal Interpreter::perform(const Print& node) {
  write(to_text(runtime_, evaluate(*node.value)));
  return Signal::none;
}

Interpreter::Signal Interpreter::perform(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    if (is_true(evaluate(*condition))) return execute(body);
  }
  return execute(node.otherwise);
}

Interpreter::Signal Interpreter::execute_in(Scope& scope, const Body& body) {
  Scope* const outer = std::exchange(scope_, &scope);
  const Signal signal = execute(body);
  scope_ = outer;
  runtime_.free_scope(scope);
  return signal;
}

List& Interpreter::loop_items(const For& node, Scope& around, const Value& iterable) {
  List& items = iterate(runtime_, iterable);
  if (node.condition == nullptr) return items;
  List& kept = runtime_.new_list();
  Scope* const outer = scope_;
  for (const Value& item : items.items) {
    Scope& scope = runtime_.new_scope(&around);
    scope_ = &scope;
    assign(node.target, item, scope);
    if (is_true(evaluate(*node.condition))) runtime_.push(kept, item);
    scope_ = outer;
    runtime_.free_scope(scope);
  }
  return kept;
}

Interpreter::Signal Interpreter::run_loop(const For& node, Scope& around, const Value& iterable,
                                          int depth0) {
  const List& items = loop_items(node, around, iterable);
  Loop& loop = runtime_.new_loop(node, around);
  loop.items = &items.items;
  loop.depth0 = depth0;
  // As in Jinja, else also runs when every round was cut short by break or continue.
  bool completed = false;
  for (std::size_t index = 0; index < items.items.size(); ++index) {
    runtime_.meter().step();
    loop.index0 = index;
    Scope& scope = runtime_.new_scope(&around);
    scope.set("loop", Value(&loop));
    assign(node.target, items.items[index], scope);
    const Signal signal = execute_in(scope, node.body);
    completed = completed || signal == Signal::none;
    if (signal == Signal::stop_loop) break;
  }
  return completed ? Signal::none : execute_in(runtime_.new_scope(&around), node.otherwise);
}

Interpreter::Signal Interpreter::perform(const For& node) {
  return run_loop(node, *scope_, evaluate(*node.iterable), 0);
}

void Interpreter::assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.attribute.empty()) {
    const Value* space = scope.find(target.name);
    if (space == nullptr || !space->is(Kind::space)) {
      throw Fault("'" + target.name + "' is no namespace: its attributes can't be set");
    }
    runtime_.set(space->dict(), runtime_.text_value(target.attribute), value);
    return;
  }
  if (!target.name.empty()) {
    scope.set(target.name, value);
    return;
  }
  const List& items = iterate(runtime_, value);
  if (items.items.size() != target.parts.size()) {
    throw Fault("can't unpack " + std::to_string(items.items.size()) + " values into " +
                std::to_string(target.parts.size()) + " names");
  }
  for (std::size_t i = 0; i < target.parts.size(); ++i) {
    assign(target.parts[i], items.items[i], scope);
  }
}

Interpreter::Signal Interpreter::perform(const Set& node) {
  assign(node.target, evaluate(*node.value), *scope_);
  return Signal::none;
}

Interpreter::Signal Interpreter::perform(const SetBody& node) {
  Signal signal = Signal::none;
  const Text text = capture([&] { signal = execute_in(runtime_.new_scope(scope_), node.body); });
  Value value(text);
  if (node.filters != nullptr) {
    captured_ = value;
    value = evaluate(*node.filters);
  }
  assign(node.target, value, *scope_);
  return signal;
}

Value Interpreter::macro_value(const Macro& macro) {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
  }
  return Value(
      &runtime_.new_callable({.kind = Callable::Kind::macro, .macro = &macro, .scope = scope_}));
}

Interpreter::Signal Interpreter::perform(const DefineMacro& node) {
  scope_->set(node.macro->name, macro_value(*node.macro));
  return Signal::none;
}

Interpreter::Signal Interpreter::perform(const CallBody& node) {
  const Value caller = macro_value(*node.caller);
  write(to_text(runtime_, call(std::get<Call>(node.call->node), &caller)));
  return Signal::none;
}

Interpreter::Signal Interpreter::perform(const FilterBody& node) {
  Signal signal = Signal::none;
  captured_ = Value(capture([&] { signal = execute_in(runtime_.new_scope(scope_), node.body); }));
  write(to_text(runtime_, evaluate(*node.filters)));
  return signal;
}

Interpreter::Signal Interpreter::perform(const With& node) {
  // The values don't see the names that stand beside them.
  std::vector<Value> values;
  for (const auto& [target, expression] : node.bindings) values.push_back(evaluate(*expression));
  Scope& scope = runtime_.new_scope(scope_);
  for (std::size_t i = 0; i < values.size(); ++i) assign(node.bindings[i].first, values[i], scope);
  return execute_in(scope, node.body);
}

Interpreter::Signal Interpreter::perform(const Generation& node) {
  return execute_in(runtime_.new_scope(scope_), node.body);
}

Interpreter::Signal Interpreter::perform(const Break&) { return Signal::stop_loop; }

Interpreter::Signal Interpreter::perform(const Continue&) { return Signal::next_item; }

}  // namespace hyb::jinja
