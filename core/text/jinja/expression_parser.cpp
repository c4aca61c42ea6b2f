#include "core/text/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/error.h"

namespace hyb::jinja {
namespace {

constexpr int source_depth_max = 200;
/// Trees are walked and freed by recursion.
constexpr int tree_depth_max = 500;

int depth_of(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->depth;
}

int deepest(const std::vector<ExpressionPtr>& expressions) {
  int depth = 0;
  for (const ExpressionPtr& expression : expressions) depth = std::max(depth, depth_of(expression));
  return depth;
}

}  // namespace

LexemeStream::LexemeStream(std::string_view source, std::string_view source_name)
    : source_(source), source_name_(source_name), lexemes_(read_lexemes(source, source_name)) {}

Lexeme LexemeStream::take() {
  if (at_ + 1 >= lexemes_.size()) return lexemes_.back();
  return std::move(lexemes_[at_++]);
}

void LexemeStream::expect(TokenKind kind, std::string_view what) {
  if (!at(kind)) fail("expected " + std::string(what) + ", got " + describe());
  if (at_ + 1 < lexemes_.size()) ++at_;
}

void LexemeStream::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) fail("expected '" + std::string(symbol) + "', got " + describe());
}

std::string LexemeStream::expect_name() {
  if (!at(TokenKind::name)) fail("expected a name, got " + describe());
  return take().text;
}

void LexemeStream::fail(Place place, const std::string& text) const {
  throw Error(ErrorKind::model, where(source_name_, source_, place) + "template: " + text);
}

std::string LexemeStream::describe() const {
  switch (current().kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::print_begin:
      return "'{{'";
    case TokenKind::print_end:
      return "'}}'";
    case TokenKind::tag_begin:
      return "'{%'";
    case TokenKind::tag_end:
      return "'%}'";
    case TokenKind::integer:
    case TokenKind::real:
      return "a number";
    case TokenKind::text:
      return "a string";
    case TokenKind::name:
    case TokenKind::symbol:
      return "'" + current().text + "'";
    case TokenKind::end:
      return "the end of the template";
  }
  return "";
}

void LexemeStream::enter() {
  if (++depth_ > source_depth_max) {
    fail("nested deeper than " + std::to_string(source_depth_max) + " levels");
  }
}

ExpressionPtr ExpressionParser::make(Place place, Expression::Node node, int depth_below) {
  if (depth_below >= tree_depth_max) {
    stream_.fail(place, "an expression of over " + std::to_string(tree_depth_max) + " levels");
  }
  return std::make_unique<Expression>(
      Expression{.node = std::move(node), .place = place, .depth = depth_below + 1});
}

ExpressionPtr ExpressionParser::binary(Place place, BinaryOperator op, ExpressionPtr left,
                                       ExpressionPtr right) {
  const int depth = std::max(left->depth, right->depth);
  return make(place, Binary{op, std::move(left), std::move(right)}, depth);
}

ExpressionPtr ExpressionParser::expression() {
  const ParseLevel level(stream_);
  ExpressionPtr chosen = disjunction();
  while (stream_.at_name("if")) {
    const Place place = stream_.take().place;
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise = stream_.skip_name("else") ? expression() : nullptr;
    const int depth = std::max({chosen->depth, condition->depth, depth_of(otherwise)});
    chosen = make(place, Conditional{std::move(condition), std::move(chosen), std::move(otherwise)},
                  depth);
  }
  return chosen;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr left = conjunction();
  while (stream_.at_name("or")) {
    const Place place = stream_.take().place;
    ExpressionPtr right = conjunction();
    const int depth = std::max(left->depth, right->depth);
    left = make(place, Logical{false, std::move(left), std::move(right)}, depth);
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr left = negation();
  while (stream_.at_name("and")) {
    const Place place = stream_.take().place;
    ExpressionPtr right = negation();
    const int depth = std::max(left->depth, right->depth);
    left = make(place, Logical{true, std::move(left), std::move(right)}, depth);
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!stream_.at_name("not")) return comparison();
  const ParseLevel level(stream_);
  const Place place = stream_.take().place;
  ExpressionPtr operand = negation();
  const int depth = operand->depth;
  return make(place, Unary{UnaryOperator::logical_not, std::move(operand)}, depth);
}

ExpressionPtr ExpressionParser::comparison() {
  static constexpr std::array<std::pair<std::string_view, Comparison>, 6> symbols{
      {{"==", Comparison::equal},
       {"!=", Comparison::unequal},
       {"<", Comparison::less},
       {"<=", Comparison::less_equal},
       {">", Comparison::greater},
       {">=", Comparison::greater_equal}}};
  const Place place = stream_.place();
  ExpressionPtr first = sum();
  int depth = first->depth;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  while (true) {
    std::optional<Comparison> found;
    if (stream_.skip_name("in")) {
      found = Comparison::in;
    } else if (stream_.at_name("not") && stream_.ahead().kind == TokenKind::name &&
               stream_.ahead().text == "in") {
      stream_.take();
      stream_.take();
      found = Comparison::not_in;
    }
    for (const auto& [symbol, op] : symbols) {
      if (!found && stream_.skip_symbol(symbol)) found = op;
    }
    if (!found) break;
    rest.emplace_back(*found, sum());
    depth = std::max(depth, rest.back().second->depth);
  }
  if (rest.empty()) return first;
  return make(place, Compare{std::move(first), std::move(rest)}, depth);
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (stream_.at_symbol("+") || stream_.at_symbol("-")) {
    const Lexeme symbol = stream_.take();
    const auto op = symbol.text == "+" ? BinaryOperator::add : BinaryOperator::subtract;
    left = binary(symbol.place, op, std::move(left), concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  const Place place = stream_.place();
  std::vector<ExpressionPtr> parts;
  parts.push_back(product());
  while (stream_.skip_symbol("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts.front());
  const int depth = deepest(parts);
  return make(place, Concatenation{std::move(parts)}, depth);
}

ExpressionPtr ExpressionParser::product() {
  static constexpr std::array<std::pair<std::string_view, BinaryOperator>, 4> symbols{
      {{"*", BinaryOperator::multiply},
       {"/", BinaryOperator::divide},
       {"//", BinaryOperator::floor_divide},
       {"%", BinaryOperator::modulo}}};
  ExpressionPtr left = power();
  while (stream_.at(TokenKind::symbol)) {
    const auto* found = std::find_if(symbols.begin(), symbols.end(), [&](const auto& symbol) {
      return stream_.at_symbol(symbol.first);
    });
    if (found == symbols.end()) break;
    const Place place = stream_.take().place;
    left = binary(place, found->second, std::move(left), power());
  }
  return left;
}

/// From left to right, as Jinja has it (Python goes from right to left).
ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (stream_.at_symbol("**")) {
    const Place place = stream_.take().place;
    left = binary(place, BinaryOperator::power, std::move(left), unary(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr node;
  if (stream_.at_symbol("-") || stream_.at_symbol("+")) {
    const ParseLevel level(stream_);
    const Lexeme sign = stream_.take();
    ExpressionPtr operand = unary(false);
    const int depth = operand->depth;
    const auto op = sign.text == "-" ? UnaryOperator::negate : UnaryOperator::plus;
    node = make(sign.place, Unary{op, std::move(operand)}, depth);
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::literal(Place place, decltype(Literal::value) value) {
  return make(place, Literal{std::move(value), next_literal()}, 0);
}

/// Strings that stand beside one another are one.
ExpressionPtr ExpressionParser::string_literal() {
  const Place place = stream_.place();
  std::string value;
  while (stream_.at(TokenKind::text)) value += stream_.take().text;
  return literal(place, std::move(value));
}

ExpressionPtr ExpressionParser::primary() {
  const Place place = stream_.place();
  switch (stream_.current().kind) {
    case TokenKind::text:
      return string_literal();
    case TokenKind::integer:
      return literal(place, stream_.take().integer);
    case TokenKind::real:
      return literal(place, stream_.take().real);
    case TokenKind::name:
      break;
    default:
      if (stream_.at_symbol("(")) return parenthesised();
      if (stream_.at_symbol("[")) return list();
      if (stream_.at_symbol("{")) return dict();
      stream_.fail("unexpected " + stream_.describe());
  }
  std::string name = stream_.take().text;
  if (name == "true" || name == "True") return literal(place, true);
  if (name == "false" || name == "False") return literal(place, false);
  if (name == "none" || name == "None") return literal(place, std::monostate{});
  names_.insert(name);
  return make(place, Name{std::move(name)}, 0);
}

ExpressionPtr ExpressionParser::parenthesised() {
  const Place place = stream_.take().place;
  if (stream_.skip_symbol(")")) return make(place, Sequence{true, {}}, 0);
  ExpressionPtr inside = tuple();
  stream_.expect_symbol(")");
  return inside;
}

ExpressionPtr ExpressionParser::tuple(bool conditional, std::string_view stop) {
  const ParseLevel level(stream_);
  const Place place = stream_.place();
  std::vector<ExpressionPtr> items;
  bool comma = false;
  do {
    const bool ended = stream_.at(TokenKind::print_end) || stream_.at(TokenKind::tag_end) ||
                       stream_.at_symbol(")") || (!stop.empty() && stream_.at_name(stop));
    if (ended && comma) break;
    items.push_back(conditional ? expression() : without_conditional());
    comma = comma || stream_.at_symbol(",");
  } while (stream_.skip_symbol(","));
  if (!comma) return std::move(items.front());
  const int depth = deepest(items);
  return make(place, Sequence{true, std::move(items)}, depth);
}

ExpressionPtr ExpressionParser::list() {
  const Place place = stream_.take().place;
  std::vector<ExpressionPtr> items;
  while (!stream_.at_symbol("]")) {
    items.push_back(expression());
    if (!stream_.skip_symbol(",")) break;
  }
  stream_.expect_symbol("]");
  const int depth = deepest(items);
  return make(place, Sequence{false, std::move(items)}, depth);
}

ExpressionPtr ExpressionParser::dict() {
  const Place place = stream_.take().place;
  DictLiteral literal;
  int depth = 0;
  while (!stream_.at_symbol("}")) {
    ExpressionPtr key = expression();
    stream_.expect_symbol(":");
    ExpressionPtr value = expression();
    depth = std::max({depth, key->depth, value->depth});
    literal.entries.emplace_back(std::move(key), std::move(value));
    if (!stream_.skip_symbol(",")) break;
  }
  stream_.expect_symbol("}");
  return make(place, std::move(literal), depth);
}

}  // namespace hyb::jinja
