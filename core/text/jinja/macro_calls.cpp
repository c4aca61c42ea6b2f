// Calls of the interpreter that run template code: macros and recursive loops.
#include <algorithm>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/interpreter.h"

namespace hyb::jinja {

Value Interpreter::call_loop(const Loop& loop, const Arguments& arguments) {
  const Bound in(arguments, "loop", {"iterable"}, 1);
  if (!loop.tag->recursive) throw Fault("a loop that is called needs 'recursive'");
  const Nested nested(runtime_.meter());
  Scope* const outer = scope_;
  const Text text = capture([&] { run_loop(*loop.tag, *loop.scope, in[0], loop.depth0 + 1); });
  scope_ = outer;
  return Value(text);
}

/// First what the call gives, then the defaults in order: those see all parameters, and never a
/// name outside that is spelled as one.
void Interpreter::bind_parameters(const Macro& macro, const Arguments& arguments, Scope& scope) {
  std::vector<const Parameter*> open;
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
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
  for (const Parameter* parameter : open) {
    scope.set(parameter->name, evaluate(*parameter->fallback));
  }
}

/// What no parameter took: varargs, kwargs and caller, where the macro uses them.
void Interpreter::bind_extras(const Macro& macro, Arguments arguments, Scope& scope) {
  std::erase_if(arguments.named, [&](const auto& argument) {
    return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                       [&](const Parameter& p) { return p.name == argument.first; });
  });
  if (macro.uses_caller) {
    const auto caller =
        std::find_if(arguments.named.begin(), arguments.named.end(),
                     [](const auto& argument) { return argument.first == "caller"; });
    const bool given = caller != arguments.named.end();
    scope.set("caller", given ? caller->second : Value::undefined(runtime_.text("caller")));
    if (given) arguments.named.erase(caller);
  }
  if (macro.uses_kwargs) {
    Dict& dict = runtime_.new_dict();
    for (const auto& [name, value] : arguments.named) {
      runtime_.set(dict, runtime_.text_value(name), value);
    }
    scope.set("kwargs", Value(Kind::dict, &dict));
  } else if (!arguments.named.empty()) {
    throw Fault("macro '" + macro.name + "' has no parameter '" +
                std::string(arguments.named.front().first) + "'");
  }
  const std::size_t taken = std::min(arguments.positional.size(), macro.parameters.size());
  if (macro.uses_varargs) {
    List& list = runtime_.new_list();
    for (std::size_t i = taken; i < arguments.positional.size(); ++i) {
      runtime_.push(list, arguments.positional[i]);
    }
    scope.set("varargs", Value(Kind::tuple, &list));
  } else if (arguments.positional.size() > taken) {
    throw Fault("macro '" + macro.name + "' takes at most " + std::to_string(taken) + " arguments");
  }
}

Value Interpreter::call_macro(const Callable& callable, const Arguments& arguments) {
  const Nested nested(runtime_.meter());
  const Macro& macro = *callable.macro;
  Scope& scope = runtime_.new_scope(callable.scope);
  Scope* const outer = std::exchange(scope_, &scope);
  bind_parameters(macro, arguments, scope);
  bind_extras(macro, arguments, scope);
  const Text text = capture([&] { execute(macro.body); });
  scope_ = outer;
  runtime_.free_scope(scope);
  return Value(text);
}

}  // namespace hyb::jinja
