// What follows a primary expression: attributes, subscripts, calls, filters, tests; and targets.
#include <algorithm>

#include "core/text/jinja/expression_parser.h"

namespace hyb::jinja {
namespace {

int deepest(const CallArguments& arguments, int depth) {
  const auto widen = [&](const ExpressionPtr& expression) {
    if (expression != nullptr) depth = std::max(depth, expression->depth);
  };
  for (const ExpressionPtr& value : arguments.positional) widen(value);
  for (const auto& [name, value] : arguments.named) widen(value);
  widen(arguments.star);
  widen(arguments.double_star);
  return depth;
}

}  // namespace

ExpressionPtr ExpressionParser::postfix(ExpressionPtr object) {
  while (true) {
    if (stream_.at_symbol("."))
      object = dotted(std::move(object));
    else if (stream_.at_symbol("["))
      object = subscript(std::move(object));
    else if (stream_.at_symbol("("))
      object = call(std::move(object));
    else
      return object;
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr input) {
  while (true) {
    if (stream_.at_symbol("|")) {
      stream_.take();
      input = filter(std::move(input));
    } else if (stream_.at_name("is")) {
      input = test(std::move(input));
    } else if (stream_.at_symbol("(")) {
      input = call(std::move(input));
    } else {
      return input;
    }
  }
}

ExpressionPtr ExpressionParser::captured_filters(bool first_inline) {
  ExpressionPtr input = make(stream_.place(), Captured{}, 0);
  if (first_inline)
    input = filter(std::move(input));
  else if (!stream_.at_symbol("|"))
    return nullptr;
  while (stream_.skip_symbol("|")) input = filter(std::move(input));
  return input;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr input) {
  const Place place = stream_.place();
  std::string name = stream_.expect_name();
  CallArguments arguments;
  if (stream_.at_symbol("(")) arguments = call_arguments();
  const int depth = deepest(arguments, input->depth);
  return make(place, FilterCall{std::move(input), std::move(name), std::move(arguments)}, depth);
}

CallArguments ExpressionParser::test_arguments() {
  CallArguments arguments;
  if (stream_.at_symbol("(")) return call_arguments();
  const bool name = stream_.at(TokenKind::name) && !stream_.at_name("else") &&
                    !stream_.at_name("or") && !stream_.at_name("and");
  if (name || stream_.at(TokenKind::text) || stream_.at(TokenKind::integer) ||
      stream_.at(TokenKind::real) || stream_.at_symbol("[") || stream_.at_symbol("{")) {
    if (stream_.at_name("is")) stream_.fail("tests with 'is' can't be chained");
    arguments.positional.push_back(postfix(primary()));
  }
  return arguments;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  const Place place = stream_.take().place;
  const bool negated = stream_.skip_name("not");
  std::string name = stream_.expect_name();
  CallArguments arguments = test_arguments();
  const int depth = deepest(arguments, input->depth);
  ExpressionPtr node =
      make(place, TestCall{std::move(input), std::move(name), std::move(arguments)}, depth);
  if (!negated) return node;
  return make(place, Unary{UnaryOperator::logical_not, std::move(node)}, depth + 1);
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  const Place place = stream_.place();
  CallArguments arguments = call_arguments();
  const int depth = deepest(arguments, callee->depth);
  return make(place, Call{std::move(callee), std::move(arguments)}, depth);
}

ExpressionPtr ExpressionParser::dotted(ExpressionPtr object) {
  const Place place = stream_.take().place;
  const int depth = object->depth;
  if (stream_.at(TokenKind::integer)) {
    ExpressionPtr key = literal(place, stream_.take().integer);
    return make(place, Subscript{std::move(object), std::move(key)}, depth);
  }
  if (!stream_.at(TokenKind::name)) {
    stream_.fail("expected a name or a number after '.', got " + stream_.describe());
  }
  return make(place, Attribute{std::move(object), stream_.take().text}, depth);
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const ParseLevel level(stream_);
  const Place place = stream_.take().place;
  std::vector<ExpressionPtr> keys;
  int depth = object->depth;
  do {
    if (stream_.at_symbol("]") && !keys.empty()) break;
    keys.push_back(subscript_key());
    depth = std::max(depth, keys.back()->depth);
  } while (stream_.skip_symbol(","));
  stream_.expect_symbol("]");
  ExpressionPtr key = std::move(keys.front());
  if (keys.size() > 1) {
    keys.front() = std::move(key);
    key = make(place, Sequence{true, std::move(keys)}, depth);
  }
  return make(place, Subscript{std::move(object), std::move(key)}, depth + 1);
}

ExpressionPtr ExpressionParser::subscript_key() {
  const Place place = stream_.place();
  const auto bound = [&]() -> ExpressionPtr {
    const bool absent = stream_.at_symbol(":") || stream_.at_symbol("]") || stream_.at_symbol(",");
    return absent ? nullptr : expression();
  };
  ExpressionPtr start = stream_.at_symbol(":") ? nullptr : expression();
  if (start != nullptr && !stream_.at_symbol(":")) return start;
  stream_.expect_symbol(":");
  Slice slice{std::move(start), bound(), nullptr};
  if (stream_.skip_symbol(":")) slice.step = bound();
  int depth = 0;
  for (const ExpressionPtr* part : {&slice.start, &slice.stop, &slice.step}) {
    if (*part != nullptr) depth = std::max(depth, (*part)->depth);
  }
  return make(place, std::move(slice), depth);
}

void ExpressionParser::call_argument(CallArguments& arguments) {
  const bool after_star = arguments.star != nullptr || arguments.double_star != nullptr;
  const Place place = stream_.place();
  const auto ensure = [&](bool rule) {
    if (!rule) stream_.fail(place, "arguments in a wrong order");
  };
  if (stream_.skip_symbol("*")) {
    ensure(!after_star);
    arguments.star = expression();
  } else if (stream_.skip_symbol("**")) {
    ensure(arguments.double_star == nullptr);
    arguments.double_star = expression();
  } else if (stream_.at(TokenKind::name) && stream_.ahead().kind == TokenKind::symbol &&
             stream_.ahead().text == "=") {
    ensure(arguments.double_star == nullptr);
    std::string name = stream_.take().text;
    stream_.take();
    arguments.named.emplace_back(std::move(name), expression());
  } else {
    ensure(!after_star && arguments.named.empty());
    arguments.positional.push_back(expression());
  }
}

CallArguments ExpressionParser::call_arguments() {
  const ParseLevel level(stream_);
  stream_.expect_symbol("(");
  CallArguments arguments;
  while (!stream_.at_symbol(")")) {
    call_argument(arguments);
    if (!stream_.skip_symbol(",")) break;
  }
  stream_.expect_symbol(")");
  return arguments;
}

Target ExpressionParser::to_target(const Expression& expression) {
  if (const auto* name = std::get_if<Name>(&expression.node)) return {.name = name->name};
  const auto* sequence = std::get_if<Sequence>(&expression.node);
  if (sequence == nullptr || !sequence->tuple) {
    stream_.fail(expression.place, "only a name or a tuple of names can be assigned to");
  }
  Target target;
  for (const ExpressionPtr& item : sequence->items) target.parts.push_back(to_target(*item));
  return target;
}

Target ExpressionParser::target(bool attribute_allowed, std::string_view stop) {
  if (attribute_allowed && stream_.at(TokenKind::name) &&
      stream_.ahead().kind == TokenKind::symbol && stream_.ahead().text == ".") {
    Target target{.name = stream_.take().text};
    stream_.take();
    target.attribute = stream_.expect_name();
    return target;
  }
  std::vector<Target> parts;
  bool comma = false;
  do {
    const bool ended = stream_.at(TokenKind::tag_end) || stream_.at_symbol("=") ||
                       (!stop.empty() && stream_.at_name(stop));
    if (ended && comma) break;
    parts.push_back(to_target(*primary()));
    comma = comma || stream_.at_symbol(",");
  } while (stream_.skip_symbol(","));
  if (!comma) return std::move(parts.front());
  return {.parts = std::move(parts)};
}

}  // namespace hyb::jinja
