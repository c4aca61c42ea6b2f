#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace hyb::jinja {

/// Byte offset in the template's source (line ends normalised).
using Place = std::uint32_t;

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
/// A list of statements: the whole template, or the body of a tag.
using Body = std::vector<Statement>;

/// `monostate` is None.
struct Literal {
  std::variant<std::monostate, bool, std::int64_t, double, std::string> value;
  std::size_t number;  ///< unique within the template
};
struct Name {
  std::string name;
};
/// The rendered body of a filter or set tag: the innermost input of its filters.
struct Captured {};
struct SequenceLiteral {
  bool tuple;
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class UnaryOperator { negate, logical_not };
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
enum class BinaryOperator { add, subtract, multiply, divide, floor_divide, modulo };
struct Binary {
  BinaryOperator op;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Logical {
  bool conjunction;  ///< and, else or
  ExpressionPtr left;
  ExpressionPtr right;
};
/// a ~ b ~ c
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
enum class Comparison { equal, unequal, less, less_equal, greater, greater_equal, in, not_in };
/// a < b <= c
struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
/// chosen if condition else otherwise; `otherwise` may be null.
struct Conditional {
  ExpressionPtr condition;
  ExpressionPtr chosen;
  ExpressionPtr otherwise;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
/// Bounds may be null. Occurs only as the key of a Subscript.
struct Slice {
  ExpressionPtr start;
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct Subscript {
  ExpressionPtr object;
  ExpressionPtr key;
};
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;  ///< *args, may be null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterCall {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};
struct TestCall {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};

struct Expression {
  using Node = std::variant<Literal, Name, Captured, SequenceLiteral, DictLiteral, Unary, Binary,
                            Logical, Concatenation, Compare, Conditional, Attribute, Slice,
                            Subscript, Call, FilterCall, TestCall>;
  Node node;
  Place place;
  int depth;  ///< levels of the tree below and including this one
};

/// The target of a set or for tag: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name{};
  std::string attribute{};      ///< empty unless `name.attribute`
  std::vector<Target> parts{};  ///< a tuple if `name` is empty
};

struct Data {
  std::size_t number;  ///< of the literal
  std::string text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  ///< may be null
  Body body;
  Body otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
/// {% set x %}...{% endset %}; `filters` takes the rendered text (Captured), null if there are
/// none.
struct SetBody {
  Target target;
  ExpressionPtr filters;
  Body body;
};
struct MacroParameter {
  std::string name;
  ExpressionPtr fallback;  ///< may be null
};
struct Macro {
  std::string name;
  std::vector<MacroParameter> parameters;
  Body body;
};
struct DefineMacro {
  std::unique_ptr<Macro> macro;
};
struct FilterBody {
  ExpressionPtr filters;
  Body body;
};
/// {% generation %}: a scope of its own, rendered unchanged.
struct Generation {
  Body body;
};
/// break of the loop, or continue.
struct Leave {
  bool loop;  ///< all of it, else the round
};

struct Statement {
  using Node =
      std::variant<Data, Print, If, For, Set, SetBody, DefineMacro, FilterBody, Generation, Leave>;
  Node node;
  Place place;
};

/// A parsed template.
struct Template {
  std::string name;    ///< of the file, for messages
  std::string source;  ///< with line ends normalised
  Body body{};
  std::size_t literals = 0;       ///< literals and data are numbered below it
  std::set<std::string> names{};  ///< that its expressions read: variables, functions, parameters
};

}  // namespace hyb::jinja
