#pragma once

#include <vector>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/runtime.h"

namespace hyb::jinja {

/// Renders a template once. Throws Fault; place() is then the position of the error.
class Interpreter {
 public:
  /// `root` has the variables; all references must outlive the interpreter.
  Interpreter(const Template& parsed, Runtime& runtime, Scope& root, MarkedBuffer& output);

  void run();

  Place place() const { return place_; }

 private:
  enum class Signal { none, stop_loop, next_item };

  Value evaluate(const Expression& expression);
  Value value_of(const Literal& node);
  Value value_of(const Name& node);
  Value value_of(const Captured& node);
  Value value_of(const Sequence& node);
  Value value_of(const DictLiteral& node);
  Value value_of(const Unary& node);
  Value value_of(const Binary& node);
  Value value_of(const Logical& node);
  Value value_of(const Concatenation& node);
  Value value_of(const Compare& node);
  Value value_of(const Conditional& node);
  Value value_of(const Attribute& node);
  Value value_of(const Slice& node);
  Value value_of(const Subscript& node);
  Value value_of(const Call& node);
  Value value_of(const FilterCall& node);
  Value value_of(const TestCall& node);
  Value optional_value(const ExpressionPtr& expression);
  Arguments evaluate(const CallArguments& arguments);

  Value call_value(const Value& callee, const Arguments& arguments);
  Value call_macro(const Callable& callable, const Arguments& arguments);
  void bind_parameters(const Macro& macro, const Arguments& arguments, Scope& scope);

  Signal execute(const Body& body);
  Signal execute(const Statement& statement);
  Signal perform(const Data& node);
  Signal perform(const Print& node);
  Signal perform(const If& node);
  Signal perform(const For& node);
  Signal perform(const Set& node);
  Signal perform(const SetBody& node);
  Signal perform(const DefineMacro& node);
  Signal perform(const FilterBody& node);
  Signal perform(const Generation& node);
  Signal perform(const Break& node);
  Signal perform(const Continue& node);

  /// Runs a body in a scope of its own below `parent`.
  Signal execute_in(Scope& scope, const Body& body);
  List& loop_items(const For& node);
  void assign(const Target& target, const Value& value, Scope& scope);
  void write(const Text& text);
  Value& literal(std::size_t number) { return literals_[number]; }

  template <typename Run>
  Text capture(Run run) {
    MarkedBuffer& buffer = runtime_.new_buffer();
    MarkedBuffer* const outer = std::exchange(output_, &buffer);
    run();
    output_ = outer;
    return Runtime::whole(buffer);
  }

  const Template& template_;
  Runtime& runtime_;
  Scope* scope_;
  MarkedBuffer* output_;
  Value captured_;
  std::vector<Value> literals_;  ///< created on first use
  Place place_ = 0;
};

}  // namespace hyb::jinja
