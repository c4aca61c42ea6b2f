#include "core/text/jinja/interpreter.h"

#include <algorithm>

#include "core/text/jinja/builtins.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/value.h"

namespace hyb::jinja {
namespace {

Value make_literal(Runtime& runtime, const Literal& literal) {
  struct Maker {
    Runtime& runtime;
    Value operator()(std::monostate) const { return Value::none(); }
    Value operator()(bool boolean) const { return Value(boolean); }
    Value operator()(std::int64_t integer) const { return Value(integer); }
    Value operator()(double real) const { return Value(real); }
    Value operator()(const std::string& text) const { return runtime.text_value(text); }
  };
  return std::visit(Maker{runtime}, literal.value);
}

/// Renders a template once.
class Interpreter {
 public:
  enum class Signal { none, stop_loop, next_item };

  /// All references must outlive the interpreter.
  Interpreter(const Template& parsed, Runtime& runtime, Scope& root, MarkedBuffer& output,
              Place& place)
      : runtime_(runtime),
        scope_(&root),
        output_(&output),
        literals_(parsed.literals),
        place_(place) {}

  Signal execute(const Body& body) {
    for (const Statement& statement : body) {
      const Signal signal = execute(statement);
      if (signal != Signal::none) return signal;
    }
    return Signal::none;
  }

 private:
  Value evaluate(const Expression& expression) {
    runtime_.meter().step();
    const Nested nested(runtime_.meter());
    const Place outer = std::exchange(place_, expression.place);
    const Value value =
        std::visit([&](const auto& node) { return value_of(node); }, expression.node);
    place_ = outer;  // not reached after a Fault: place() is then the innermost place
    return value;
  }

  Value value_of(const Literal& node) {
    Value& value = literals_[node.number];
    if (value.is_undefined()) value = make_literal(runtime_, node);
    return value;
  }

  Value value_of(const Name& node) {
    if (const Value* value = scope_->find(node.name)) return *value;
    const std::string_view global = find_global(node.name);
    if (global.empty()) return Value::undefined(runtime_.text(node.name));
    return Value(&runtime_.new_callable({.kind = Callable::Kind::function, .name = global}));
  }

  Value value_of(const Captured&) { return captured_; }

  Value value_of(const SequenceLiteral& node) {
    List& list = runtime_.new_list();
    for (const ExpressionPtr& item : node.items) runtime_.push(list, evaluate(*item));
    return Value(node.tuple ? Kind::tuple : Kind::list, &list);
  }

  Value value_of(const DictLiteral& node) {
    Dict& dict = runtime_.new_dict();
    for (const auto& [key, value] : node.entries) {
      const Value made = evaluate(*key);
      runtime_.set(dict, made, evaluate(*value));
    }
    return Value(Kind::dict, &dict);
  }

  Value value_of(const Unary& node) {
    const Value operand = evaluate(*node.operand);
    switch (node.op) {
      case UnaryOperator::negate:
        return negate(operand);
      case UnaryOperator::logical_not:
        return Value(!is_true(operand));
    }
    return {};
  }

  Value value_of(const Binary& node) {
    const Value left = evaluate(*node.left);
    return binary(runtime_, node.op, left, evaluate(*node.right));
  }

  Value value_of(const Logical& node) {
    const Value left = evaluate(*node.left);
    return is_true(left) == node.conjunction ? evaluate(*node.right) : left;
  }

  Value value_of(const Concatenation& node) {
    // All parts are evaluated first: evaluating one may extend the buffer of another.
    std::vector<Value> parts;
    parts.reserve(node.parts.size());
    for (const ExpressionPtr& part : node.parts) parts.push_back(evaluate(*part));
    Text text = to_text(runtime_, parts.front());
    for (std::size_t i = 1; i < parts.size(); ++i) {
      text = runtime_.concatenate(text, to_text(runtime_, parts[i]));
    }
    return Value(text);
  }

  Value value_of(const Compare& node) {
    Value left = evaluate(*node.first);
    for (const auto& [op, expression] : node.rest) {
      const Value right = evaluate(*expression);
      if (!compare(runtime_, op, left, right)) return Value(false);
      left = right;
    }
    return Value(true);
  }

  Value value_of(const Conditional& node) {
    if (is_true(evaluate(*node.condition))) return evaluate(*node.chosen);
    return node.otherwise == nullptr ? Value{} : evaluate(*node.otherwise);
  }

  Value value_of(const Attribute& node) {
    return get_attribute(runtime_, evaluate(*node.object), node.name);
  }

  Value value_of(const Slice&) { throw Fault("a slice must be the only key"); }

  Value value_of(const Subscript& node) {
    const Value object = evaluate(*node.object);
    if (const auto* slice = std::get_if<Slice>(&node.key->node)) {
      const auto bound = [&](const ExpressionPtr& bound_or_none) {
        return bound_or_none == nullptr ? Value::none() : evaluate(*bound_or_none);
      };
      const Value start = bound(slice->start);
      const Value stop = bound(slice->stop);
      return get_slice(runtime_, object, {start, stop, bound(slice->step)});
    }
    return get_item(runtime_, object, evaluate(*node.key));
  }

  Value value_of(const Call& node) {
    if (const auto* attribute = std::get_if<Attribute>(&node.callee->node)) {
      // A method call needs no bound method object.
      const Value object = evaluate(*attribute->object);
      if (object.is_undefined()) fail_undefined(object);
      const bool is_method = !find_method(object, attribute->name).empty();
      const Value callee = is_method ? Value{} : get_attribute(runtime_, object, attribute->name);
      const Arguments arguments = evaluate(node.arguments);
      // Without such an attribute it is a method of the object, or call_method says that there is
      // none.
      return callee.is_undefined() ? call_method(runtime_, object, attribute->name, arguments)
                                   : call_value(callee, arguments);
    }
    const Value callee = evaluate(*node.callee);
    return call_value(callee, evaluate(node.arguments));
  }

  Value value_of(const FilterCall& node) {
    const Value input = evaluate(*node.input);
    return apply_filter(runtime_, node.name, input, evaluate(node.arguments));
  }

  Value value_of(const TestCall& node) {
    const Value input = evaluate(*node.input);
    return Value(apply_test(runtime_, node.name, input, evaluate(node.arguments)));
  }

  Arguments evaluate(const CallArguments& arguments) {
    Arguments out;
    for (const ExpressionPtr& value : arguments.positional)
      out.positional.push_back(evaluate(*value));
    for (const auto& [name, value] : arguments.named)
      out.named.emplace_back(name, evaluate(*value));
    if (arguments.star == nullptr) return out;
    for (const Value& value : iterate(runtime_, evaluate(*arguments.star)).items) {
      out.positional.push_back(value);
    }
    return out;
  }

  Value call_value(const Value& callee, const Arguments& arguments) {
    if (callee.is_undefined()) fail_undefined(callee);
    if (!callee.is(Kind::callable)) throw Fault(type_name(callee) + " can't be called");
    const Callable& callable = callee.callable();
    switch (callable.kind) {
      case Callable::Kind::method:
        return call_method(runtime_, callable.self, callable.name, arguments);
      case Callable::Kind::function:
        return call_global(runtime_, callable.name, arguments);
      case Callable::Kind::macro:
        return call_macro(callable, arguments);
    }
    return {};
  }

  Value call_macro(const Callable& callable, const Arguments& arguments) {
    const Nested nested(runtime_.meter());
    const Macro& macro = *callable.macro;
    Scope& scope = runtime_.new_scope(callable.scope);
    Scope* const outer = std::exchange(scope_, &scope);
    bind_parameters(macro, arguments, scope);
    const Text text = capture([&] { execute(macro.body); });
    scope_ = outer;
    runtime_.free_scope(scope);
    return Value(text);
  }

  /// Binds the arguments first, then the defaults in order: defaults see all parameters, and no
  /// outer variable of the same name.
  void bind_parameters(const Macro& macro, const Arguments& arguments, Scope& scope) {
    if (arguments.positional.size() > macro.parameters.size()) {
      throw Fault("macro '" + macro.name + "' takes at most " +
                  std::to_string(macro.parameters.size()) + " arguments");
    }
    for (const auto& [name, value] : arguments.named) {
      const bool known = std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                     [&](const MacroParameter& p) { return p.name == name; });
      if (!known)
        throw Fault("macro '" + macro.name + "' has no parameter '" + std::string(name) + "'");
    }
    std::vector<const MacroParameter*> open;
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      const MacroParameter& parameter = macro.parameters[i];
      const auto named =
          std::find_if(arguments.named.begin(), arguments.named.end(),
                       [&](const auto& argument) { return argument.first == parameter.name; });
      const bool positional = i < arguments.positional.size();
      if (positional && named != arguments.named.end()) {
        throw Fault("macro '" + macro.name + "' got '" + parameter.name + "' twice");
      }
      if (positional) {
        scope.set(parameter.name, arguments.positional[i]);
      } else if (named != arguments.named.end()) {
        scope.set(parameter.name, named->second);
      } else {
        scope.set(parameter.name, Value::undefined(runtime_.text(parameter.name)));
        if (parameter.fallback != nullptr) open.push_back(&parameter);
      }
    }
    for (const MacroParameter* parameter : open) {
      scope.set(parameter->name, evaluate(*parameter->fallback));
    }
  }

  Signal execute(const Statement& statement) {
    runtime_.meter().step();
    const Nested nested(runtime_.meter());
    place_ = statement.place;
    return std::visit([&](const auto& node) { return perform(node); }, statement.node);
  }

  Signal perform(const Data& node) {
    runtime_.meter().check_output(output_->size() + node.text.size());
    output_->append(runtime_.meter(), node.text, TextSource::tmpl);
    return Signal::none;
  }

  Signal perform(const Print& node) {
    write(to_text(runtime_, evaluate(*node.value)));
    return Signal::none;
  }

  Signal perform(const If& node) {
    for (const auto& [condition, body] : node.branches) {
      if (is_true(evaluate(*condition))) return execute(body);
    }
    return execute(node.otherwise);
  }

  Signal perform(const For& node) {
    Scope& around = *scope_;
    const List& items = loop_items(node);
    Loop& loop = runtime_.new_loop(items);
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

  Signal perform(const Set& node) {
    assign(node.target, evaluate(*node.value), *scope_);
    return Signal::none;
  }

  Signal perform(const SetBody& node) {
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

  Signal perform(const DefineMacro& node) {
    for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
      scope->captured = true;
    }
    const Macro& macro = *node.macro;
    scope_->set(macro.name,
                Value(&runtime_.new_callable(
                    {.kind = Callable::Kind::macro, .macro = &macro, .scope = scope_})));
    return Signal::none;
  }

  Signal perform(const FilterBody& node) {
    Signal signal = Signal::none;
    captured_ = Value(capture([&] { signal = execute_in(runtime_.new_scope(scope_), node.body); }));
    write(to_text(runtime_, evaluate(*node.filters)));
    return signal;
  }

  Signal perform(const Generation& node) {
    return execute_in(runtime_.new_scope(scope_), node.body);
  }

  Signal perform(const Leave& node) { return node.loop ? Signal::stop_loop : Signal::next_item; }

  /// Runs a body in a scope of its own below `parent`.
  Signal execute_in(Scope& scope, const Body& body) {
    Scope* const outer = std::exchange(scope_, &scope);
    const Signal signal = execute(body);
    scope_ = outer;
    runtime_.free_scope(scope);
    return signal;
  }

  List& loop_items(const For& node) {
    List& items = iterate(runtime_, evaluate(*node.iterable));
    if (node.condition == nullptr) return items;
    List& kept = runtime_.new_list();
    Scope* const outer = scope_;
    for (const Value& item : items.items) {
      Scope& scope = runtime_.new_scope(outer);
      scope_ = &scope;
      assign(node.target, item, scope);
      if (is_true(evaluate(*node.condition))) runtime_.push(kept, item);
      scope_ = outer;
      runtime_.free_scope(scope);
    }
    return kept;
  }

  void assign(const Target& target, const Value& value, Scope& scope) {
    if (!target.attribute.empty()) {
      const Value* space = scope.find(target.name);
      if (space == nullptr || !space->is(Kind::space)) {
        throw Fault("'" + target.name + "' is not a namespace: its attributes can't be set");
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

  void write(const Text& text) {
    runtime_.meter().check_output(output_->size() + text.size());
    append(runtime_.meter(), *output_, text);
  }

  template <typename Run>
  Text capture(Run run) {
    MarkedBuffer& buffer = runtime_.new_buffer();
    MarkedBuffer* const outer = std::exchange(output_, &buffer);
    run();
    output_ = outer;
    return Runtime::whole(buffer);
  }

  Runtime& runtime_;
  Scope* scope_;
  MarkedBuffer* output_;
  Value captured_;
  std::vector<Value> literals_;  ///< created on first use
  Place& place_;
};

}  // namespace

void render(const Template& parsed, Runtime& runtime, Scope& root, MarkedBuffer& output,
            Place& place) {
  Interpreter(parsed, runtime, root, output, place).execute(parsed.body);
}

}  // namespace hyb::jinja
