// Expressions of the interpreter.
#include "core/text/jinja/access.h"
#include "core/text/jinja/fault.h"
#include "core/text/jinja/filters.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/globals.h"
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/methods.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/predicates.h"

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

}  // namespace

Value Interpreter::evaluate(const Expression& expression) {
  runtime_.meter().step();
  const Nested nested(runtime_.meter());
  const Place outer = std::exchange(place_, expression.place);
  const Value value = std::visit([&](const auto& node) { return value_of(node); }, expression.node);
  place_ = outer;  // not after a Fault, which so keeps the innermost place
  return value;
}

Value Interpreter::optional_value(const ExpressionPtr& expression) {
  return expression == nullptr ? Value::none() : evaluate(*expression);
}

Value Interpreter::value_of(const Literal& node) {
  Value& value = literal(node.number);
  if (value.is_undefined()) value = make_literal(runtime_, node);
  return value;
}

Value Interpreter::value_of(const Name& node) {
  if (const Value* value = scope_->find(node.name)) return *value;
  const std::string_view global = find_global(node.name);
  if (global.empty()) return Value::undefined(runtime_.text(node.name));
  return Value(&runtime_.new_callable({.kind = Callable::Kind::function, .name = global}));
}

Value Interpreter::value_of(const Captured&) { return captured_; }

Value Interpreter::value_of(const Sequence& node) {
  List& list = runtime_.new_list();
  for (const ExpressionPtr& item : node.items) runtime_.push(list, evaluate(*item));
  return Value(node.tuple ? Kind::tuple : Kind::list, &list);
}

Value Interpreter::value_of(const DictLiteral& node) {
  Dict& dict = runtime_.new_dict();
  for (const auto& [key, value] : node.entries) {
    const Value made = evaluate(*key);
    runtime_.set(dict, made, evaluate(*value));
  }
  return Value(Kind::dict, &dict);
}

Value Interpreter::value_of(const Unary& node) {
  const Value operand = evaluate(*node.operand);
  switch (node.op) {
    case UnaryOperator::negate:
      return negate(operand);
    case UnaryOperator::plus:
      return plus(operand);
    case UnaryOperator::logical_not:
      return Value(!is_true(operand));
  }
  return {};
}

Value Interpreter::value_of(const Binary& node) {
  const Value left = evaluate(*node.left);
  return binary(runtime_, node.op, left, evaluate(*node.right));
}

Value Interpreter::value_of(const Logical& node) {
  const Value left = evaluate(*node.left);
  return is_true(left) == node.conjunction ? evaluate(*node.right) : left;
}

Value Interpreter::value_of(const Concatenation& node) {
  // All parts come first: evaluating one may continue the buffer of another.
  std::vector<Value> parts;
  parts.reserve(node.parts.size());
  for (const ExpressionPtr& part : node.parts) parts.push_back(evaluate(*part));
  Text text = to_text(runtime_, parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    text = runtime_.concatenate(text, to_text(runtime_, parts[i]));
  }
  return Value(text);
}

Value Interpreter::value_of(const Compare& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, expression] : node.rest) {
    const Value right = evaluate(*expression);
    if (!compare(runtime_, op, left, right)) return Value(false);
    left = right;
  }
  return Value(true);
}

Value Interpreter::value_of(const Conditional& node) {
  if (is_true(evaluate(*node.condition))) return evaluate(*node.chosen);
  return node.otherwise == nullptr ? Value{} : evaluate(*node.otherwise);
}

Value Interpreter::value_of(const Attribute& node) {
  return get_attribute(runtime_, evaluate(*node.object), node.name);
}

Value Interpreter::value_of(const Slice&) { throw Fault("a slice stands among several keys"); }

Value Interpreter::value_of(const Subscript& node) {
  const Value object = evaluate(*node.object);
  if (const auto* slice = std::get_if<Slice>(&node.key->node)) {
    const Value start = optional_value(slice->start);
    const Value stop = optional_value(slice->stop);
    return get_slice(runtime_, object, {start, stop, optional_value(slice->step)});
  }
  return get_item(runtime_, object, evaluate(*node.key));
}

Value Interpreter::value_of(const Call& node) { return call(node, nullptr); }

Value Interpreter::value_of(const FilterCall& node) {
  const Value input = evaluate(*node.input);
  return apply_filter(runtime_, node.name, input, evaluate(node.arguments));
}

Value Interpreter::value_of(const TestCall& node) {
  const Value input = evaluate(*node.input);
  return Value(apply_test(runtime_, node.name, input, evaluate(node.arguments)));
}

Arguments Interpreter::evaluate(const CallArguments& arguments) {
  Arguments out;
  for (const ExpressionPtr& value : arguments.positional)
    out.positional.push_back(evaluate(*value));
  for (const auto& [name, value] : arguments.named) out.named.emplace_back(name, evaluate(*value));
  if (arguments.star != nullptr) {
    for (const Value& value : iterate(runtime_, evaluate(*arguments.star)).items) {
      out.positional.push_back(value);
    }
  }
  if (arguments.double_star == nullptr) return out;
  const Value named = evaluate(*arguments.double_star);
  if (!named.is(Kind::dict)) throw Fault("'**' takes a dict, got " + type_name(named));
  for (const auto& [key, value] : named.dict().entries()) {
    if (!key.is_text()) throw Fault("'**' takes a dict with string keys");
    // A buffer of its own: names are looked at while other buffers grow.
    out.named.emplace_back(runtime_.text(key.view()).view(), value);
  }
  return out;
}

Value Interpreter::call(const Call& node, const Value* caller) {
  if (const auto* attribute = std::get_if<Attribute>(&node.callee->node)) {
    // A method call needs no bound object.
    const Value object = evaluate(*attribute->object);
    if (object.is_undefined()) fail_undefined(object);
    const std::string_view method = find_method(object, attribute->name);
    const Value callee =
        method.empty() ? get_attribute(runtime_, object, attribute->name) : Value{};
    Arguments arguments = evaluate(node.arguments);
    if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
    return method.empty() ? call_value(callee, arguments)
                          : call_method(runtime_, object, method, arguments);
  }
  const Value callee = evaluate(*node.callee);
  Arguments arguments = evaluate(node.arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return call_value(callee, arguments);
}

Value Interpreter::call_value(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) fail_undefined(callee);
  if (callee.is(Kind::loop)) return call_loop(callee.loop(), arguments);
  if (!callee.is(Kind::callable)) throw Fault(type_name(callee) + " can't be called");
  Callable& callable = callee.callable();
  switch (callable.kind) {
    case Callable::Kind::method:
      return call_method(runtime_, callable.self, callable.name, arguments);
    case Callable::Kind::function:
      return call_global(runtime_, callable.name, arguments);
    case Callable::Kind::macro:
      return call_macro(callable, arguments);
    case Callable::Kind::joiner:
      return call_joiner(callable);
    case Callable::Kind::cycler:
      break;
  }
  throw Fault("a cycler can't be called: use next()");
}

}  // namespace hyb::jinja
