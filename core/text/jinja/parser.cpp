#include "core/text/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/text/jinja/lexer.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

constexpr int source_depth_max = 200;
/// Trees are traversed and freed recursively.
constexpr int tree_depth_max = 500;

int depth_of(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->depth;
}

int deepest(const std::vector<ExpressionPtr>& expressions) {
  int depth = 0;
  for (const ExpressionPtr& expression : expressions) depth = std::max(depth, depth_of(expression));
  return depth;
}

int deepest(const CallArguments& arguments, int depth) {
  const auto widen = [&](const ExpressionPtr& expression) {
    if (expression != nullptr) depth = std::max(depth, expression->depth);
  };
  for (const ExpressionPtr& value : arguments.positional) widen(value);
  for (const auto& [name, value] : arguments.named) widen(value);
  widen(arguments.star);
  return depth;
}

/// A cursor over the lexemes.
class LexemeStream {
 public:
  LexemeStream(std::string_view source, std::string_view source_name)
      : source_(source), source_name_(source_name), lexemes_(read_lexemes(source, source_name)) {}

  const Lexeme& current() const { return lexemes_[at_]; }
  const Lexeme& ahead() const { return lexemes_[at_ + 1 < lexemes_.size() ? at_ + 1 : at_]; }
  Place place() const { return current().place; }

  Lexeme take() {
    if (at_ + 1 >= lexemes_.size()) return lexemes_.back();
    return std::move(lexemes_[at_++]);
  }

  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_symbol(std::string_view symbol) const { return at_pair(TokenKind::symbol, symbol); }
  bool at_name(std::string_view name) const { return at_pair(TokenKind::name, name); }
  bool skip_symbol(std::string_view symbol) { return skip_if(at_symbol(symbol)); }
  bool skip_name(std::string_view name) { return skip_if(at_name(name)); }

  void expect(TokenKind kind, std::string_view what) {
    if (!at(kind)) fail("expected " + std::string(what) + ", got " + describe());
    if (at_ + 1 < lexemes_.size()) ++at_;
  }

  void expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol)) fail("expected '" + std::string(symbol) + "', got " + describe());
  }

  std::string expect_name() {
    if (!at(TokenKind::name)) fail("expected a name, got " + describe());
    return take().text;
  }

  [[noreturn]] void fail(const std::string& text) const { fail(place(), text); }

  [[noreturn]] void fail(Place place, const std::string& text) const {
    throw Error(ErrorKind::model, where(source_name_, source_, place) + "template: " + text);
  }

  /// The current lexeme, for messages.
  std::string describe() const {
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

  /// Throws beyond 200 nested tags, brackets and operators.
  void enter() {
    if (++depth_ > source_depth_max) {
      fail("nested deeper than " + std::to_string(source_depth_max) + " levels");
    }
  }

  void leave() { --depth_; }

 private:
  bool at_pair(TokenKind kind, std::string_view text) const {
    return current().kind == kind && current().text == text;
  }
  bool skip_if(bool matches) {
    if (matches) ++at_;
    return matches;
  }

  std::string_view source_;
  std::string_view source_name_;
  std::vector<Lexeme> lexemes_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

/// One level of nesting in the source for the lifetime of the object.
class ParseLevel {
 public:
  explicit ParseLevel(LexemeStream& stream) : stream_(stream) { stream.enter(); }
  ParseLevel(const ParseLevel&) = delete;
  ParseLevel& operator=(const ParseLevel&) = delete;
  ~ParseLevel() { stream_.leave(); }

 private:
  LexemeStream& stream_;
};

/// Expressions, with Jinja's precedence: conditional, or, and, not, comparison, + -, ~, * / // %,
/// unary, postfix, filter and test.
class ExpressionParser {
 public:
  explicit ExpressionParser(LexemeStream& stream) : stream_(stream) {}

  ExpressionPtr expression() {
    const ParseLevel level(stream_);
    ExpressionPtr chosen = logical(false);
    while (stream_.at_name("if")) {
      const Place place = stream_.take().place;
      ExpressionPtr condition = logical(false);
      ExpressionPtr otherwise = stream_.skip_name("else") ? expression() : nullptr;
      const int depth = std::max({chosen->depth, condition->depth, depth_of(otherwise)});
      chosen = make(
          place, Conditional{std::move(condition), std::move(chosen), std::move(otherwise)}, depth);
    }
    return chosen;
  }

  /// An expression, or several separated by commas, which form a tuple. Ends at the end of the tag
  /// and at a closing parenthesis.
  ExpressionPtr tuple(bool conditional = true) {
    const ParseLevel level(stream_);
    const Place place = stream_.place();
    std::vector<ExpressionPtr> items;
    bool comma = false;
    do {
      const bool ended = stream_.at(TokenKind::print_end) || stream_.at(TokenKind::tag_end) ||
                         stream_.at_symbol(")");
      if (ended && comma) break;
      items.push_back(conditional ? expression() : logical(false));
      comma = comma || stream_.at_symbol(",");
    } while (stream_.skip_symbol(","));
    if (!comma) return std::move(items.front());
    const int depth = deepest(items);
    return make(place, SequenceLiteral{true, std::move(items)}, depth);
  }

  /// a, (b, c), or namespace.attribute if `attribute_allowed`. Ends at the name `stop` if given.
  Target target(bool attribute_allowed, std::string_view stop = {}) {
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

  /// `| filter(...) | ...` applied to Captured; null if there is none. `first_inline`: the first
  /// one has no bar.
  ExpressionPtr captured_filters(bool first_inline) {
    ExpressionPtr input = make(stream_.place(), Captured{}, 0);
    if (first_inline)
      input = filter(std::move(input));
    else if (!stream_.at_symbol("|"))
      return nullptr;
    while (stream_.skip_symbol("|")) input = filter(std::move(input));
    return input;
  }

  /// The number for the next literal or data.
  std::size_t next_literal() { return literals_++; }
  std::size_t literals() const { return literals_; }
  /// All names read so far.
  const std::set<std::string>& names() const { return names_; }
  std::set<std::string> take_names() { return std::exchange(names_, {}); }
  void add_names(const std::set<std::string>& names) { names_.insert(names.begin(), names.end()); }

 private:
  ExpressionPtr make(Place place, Expression::Node node, int depth_below) {
    if (depth_below >= tree_depth_max) {
      stream_.fail(place, "an expression of over " + std::to_string(tree_depth_max) + " levels");
    }
    return std::make_unique<Expression>(
        Expression{.node = std::move(node), .place = place, .depth = depth_below + 1});
  }

  ExpressionPtr binary(Place place, BinaryOperator op, ExpressionPtr left, ExpressionPtr right) {
    const int depth = std::max(left->depth, right->depth);
    return make(place, Binary{op, std::move(left), std::move(right)}, depth);
  }

  /// a and b and c, or operands of `or`, each of which may be such.
  ExpressionPtr logical(bool conjunction) {
    const auto operand = [&] { return conjunction ? negation() : logical(true); };
    ExpressionPtr left = operand();
    while (stream_.at_name(conjunction ? "and" : "or")) {
      const Place place = stream_.take().place;
      ExpressionPtr right = operand();
      const int depth = std::max(left->depth, right->depth);
      left = make(place, Logical{conjunction, std::move(left), std::move(right)}, depth);
    }
    return left;
  }

  ExpressionPtr negation() {
    if (!stream_.at_name("not")) return comparison();
    const ParseLevel level(stream_);
    const Place place = stream_.take().place;
    ExpressionPtr operand = negation();
    const int depth = operand->depth;
    return make(place, Unary{UnaryOperator::logical_not, std::move(operand)}, depth);
  }

  ExpressionPtr comparison() {
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

  ExpressionPtr sum() {
    ExpressionPtr left = concatenation();
    while (stream_.at_symbol("+") || stream_.at_symbol("-")) {
      const Lexeme symbol = stream_.take();
      const auto op = symbol.text == "+" ? BinaryOperator::add : BinaryOperator::subtract;
      left = binary(symbol.place, op, std::move(left), concatenation());
    }
    return left;
  }

  ExpressionPtr concatenation() {
    const Place place = stream_.place();
    std::vector<ExpressionPtr> parts;
    parts.push_back(product());
    while (stream_.skip_symbol("~")) parts.push_back(product());
    if (parts.size() == 1) return std::move(parts.front());
    const int depth = deepest(parts);
    return make(place, Concatenation{std::move(parts)}, depth);
  }

  ExpressionPtr product() {
    static constexpr std::array<std::pair<std::string_view, BinaryOperator>, 4> symbols{
        {{"*", BinaryOperator::multiply},
         {"/", BinaryOperator::divide},
         {"//", BinaryOperator::floor_divide},
         {"%", BinaryOperator::modulo}}};
    ExpressionPtr left = unary(true);
    while (stream_.at(TokenKind::symbol)) {
      const auto* found = std::find_if(symbols.begin(), symbols.end(), [&](const auto& symbol) {
        return stream_.at_symbol(symbol.first);
      });
      if (found == symbols.end()) break;
      const Place place = stream_.take().place;
      left = binary(place, found->second, std::move(left), unary(true));
    }
    return left;
  }

  ExpressionPtr unary(bool with_filters) {
    ExpressionPtr node;
    if (stream_.at_symbol("-")) {
      const ParseLevel level(stream_);
      const Place place = stream_.take().place;
      ExpressionPtr operand = unary(false);
      const int depth = operand->depth;
      node = make(place, Unary{UnaryOperator::negate, std::move(operand)}, depth);
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
  }

  ExpressionPtr primary() {
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

  ExpressionPtr literal(Place place, decltype(Literal::value) value) {
    return make(place, Literal{std::move(value), next_literal()}, 0);
  }

  /// Adjacent strings are concatenated.
  ExpressionPtr string_literal() {
    const Place place = stream_.place();
    std::string value;
    while (stream_.at(TokenKind::text)) value += stream_.take().text;
    return literal(place, std::move(value));
  }

  ExpressionPtr parenthesised() {
    const Place place = stream_.take().place;
    if (stream_.skip_symbol(")")) return make(place, SequenceLiteral{true, {}}, 0);
    ExpressionPtr inside = tuple();
    stream_.expect_symbol(")");
    return inside;
  }

  ExpressionPtr list() {
    const Place place = stream_.take().place;
    std::vector<ExpressionPtr> items;
    while (!stream_.at_symbol("]")) {
      items.push_back(expression());
      if (!stream_.skip_symbol(",")) break;
    }
    stream_.expect_symbol("]");
    const int depth = deepest(items);
    return make(place, SequenceLiteral{false, std::move(items)}, depth);
  }

  ExpressionPtr dict() {
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

  ExpressionPtr postfix(ExpressionPtr object) {
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

  ExpressionPtr filters_and_tests(ExpressionPtr input) {
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

  ExpressionPtr filter(ExpressionPtr input) {
    const Place place = stream_.place();
    std::string name = stream_.expect_name();
    CallArguments arguments;
    if (stream_.at_symbol("(")) arguments = call_arguments();
    const int depth = deepest(arguments, input->depth);
    return make(place, FilterCall{std::move(input), std::move(name), std::move(arguments)}, depth);
  }

  ExpressionPtr test(ExpressionPtr input) {
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

  CallArguments test_arguments() {
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

  ExpressionPtr call(ExpressionPtr callee) {
    const Place place = stream_.place();
    CallArguments arguments = call_arguments();
    const int depth = deepest(arguments, callee->depth);
    return make(place, Call{std::move(callee), std::move(arguments)}, depth);
  }

  ExpressionPtr dotted(ExpressionPtr object) {
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

  ExpressionPtr subscript(ExpressionPtr object) {
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
      key = make(place, SequenceLiteral{true, std::move(keys)}, depth);
    }
    return make(place, Subscript{std::move(object), std::move(key)}, depth + 1);
  }

  ExpressionPtr subscript_key() {
    const Place place = stream_.place();
    const auto bound = [&]() -> ExpressionPtr {
      const bool absent =
          stream_.at_symbol(":") || stream_.at_symbol("]") || stream_.at_symbol(",");
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

  CallArguments call_arguments() {
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

  void call_argument(CallArguments& arguments) {
    if (arguments.star != nullptr) stream_.fail("an argument after '*'");
    if (stream_.skip_symbol("*")) {
      arguments.star = expression();
    } else if (stream_.at(TokenKind::name) && stream_.ahead().kind == TokenKind::symbol &&
               stream_.ahead().text == "=") {
      std::string name = stream_.take().text;
      stream_.take();
      arguments.named.emplace_back(std::move(name), expression());
    } else {
      if (!arguments.named.empty()) stream_.fail("arguments in a wrong order");
      arguments.positional.push_back(expression());
    }
  }

  Target to_target(const Expression& expression) {
    if (const auto* name = std::get_if<Name>(&expression.node)) return {.name = name->name};
    const auto* sequence = std::get_if<SequenceLiteral>(&expression.node);
    if (sequence == nullptr || !sequence->tuple) {
      stream_.fail(expression.place, "only a name or a tuple of names can be assigned to");
    }
    Target target;
    for (const ExpressionPtr& item : sequence->items) target.parts.push_back(to_target(*item));
    return target;
  }

  LexemeStream& stream_;
  std::size_t literals_ = 0;
  std::set<std::string> names_;
};

/// Parses tags and their bodies.
class StatementParser {
 public:
  explicit StatementParser(LexemeStream& stream) : stream_(stream), expressions_(stream) {}

  Body whole() {
    Body body = statements({});
    if (!stream_.at(TokenKind::end)) stream_.fail("unexpected " + stream_.describe());
    return body;
  }

  std::size_t literals() const { return expressions_.literals(); }
  const std::set<std::string>& names() const { return expressions_.names(); }

 private:
  using Names = std::initializer_list<std::string_view>;

  /// Reads up to a tag with one of the names; that name is then the current lexeme.
  Body statements(Names stops) {
    const ParseLevel level(stream_);
    Body body;
    while (!stream_.at(TokenKind::end)) {
      const Place place = stream_.place();
      if (stream_.at(TokenKind::data)) {
        body.push_back({Data{expressions_.next_literal(), stream_.take().text}, place});
      } else if (stream_.at(TokenKind::print_begin)) {
        stream_.take();
        body.push_back({Print{expressions_.tuple()}, place});
        stream_.expect(TokenKind::print_end, "'}}'");
      } else {
        stream_.expect(TokenKind::tag_begin, "a tag");
        const bool stop = std::any_of(stops.begin(), stops.end(),
                                      [&](std::string_view name) { return stream_.at_name(name); });
        if (stop) return body;
        body.push_back({statement(), place});
        stream_.expect(TokenKind::tag_end, "'%}'");
      }
    }
    if (stops.size() > 0) {
      stream_.fail("the template ends, but '" + std::string(*std::prev(stops.end())) +
                   "' is missing");
    }
    return body;
  }

  /// The rest of the opening tag, and the body.
  Body body_until(Names stops) {
    stream_.skip_symbol(":");
    stream_.expect(TokenKind::tag_end, "'%}'");
    return statements(stops);
  }

  /// Does what body_until does, with the closing name taken.
  Body whole_body(std::string_view stop) {
    Body body = body_until({stop});
    stream_.take();
    return body;
  }

  Statement::Node statement() {
    const Place place = stream_.place();
    if (!stream_.at(TokenKind::name)) stream_.fail("expected the name of a tag");
    const std::string name = stream_.take().text;
    if (name == "if") return if_statement();
    if (name == "for") return for_statement();
    if (name == "set") return set_statement();
    if (name == "macro") return DefineMacro{macro()};
    if (name == "filter") return filter_statement();
    if (name == "generation") return Generation{outside_loops("endgeneration")};
    if (name == "break" || name == "continue") {
      if (loops_ == 0) stream_.fail(place, "'" + name + "' outside a loop");
      return Leave{name == "break"};
    }
    stream_.fail(place, "unknown tag '" + name + "'");
  }

  /// A body from which the enclosing loops can't be left.
  Body outside_loops(std::string_view stop) {
    const int loops = std::exchange(loops_, 0);
    Body body = whole_body(stop);
    loops_ = loops;
    return body;
  }

  Statement::Node if_statement() {
    If node;
    while (true) {
      ExpressionPtr condition = expressions_.tuple(false);
      node.branches.emplace_back(std::move(condition), body_until({"elif", "else", "endif"}));
      if (stream_.skip_name("elif")) continue;
      if (stream_.at_name("else")) {
        stream_.take();
        node.otherwise = whole_body("endif");
      } else {
        stream_.take();  // endif
      }
      return node;
    }
  }

  Statement::Node for_statement() {
    For node{};
    const Place place = stream_.place();
    node.target = expressions_.target(false, "in");
    if (node.target.name == "loop") stream_.fail(place, "'loop' can't be the variable of a loop");
    if (!stream_.skip_name("in")) stream_.fail("expected 'in', got " + stream_.describe());
    node.iterable = expressions_.tuple(false);
    if (stream_.skip_name("if")) node.condition = expressions_.expression();
    ++loops_;
    node.body = body_until({"else", "endfor"});
    --loops_;
    if (stream_.take().text == "else") node.otherwise = whole_body("endfor");
    return node;
  }

  Statement::Node set_statement() {
    Target target = expressions_.target(true);
    if (stream_.skip_symbol("=")) return Set{std::move(target), expressions_.tuple()};
    ExpressionPtr filters = expressions_.captured_filters(false);
    return SetBody{std::move(target), std::move(filters), whole_body("endset")};
  }

  std::vector<MacroParameter> parameters() {
    std::vector<MacroParameter> out;
    stream_.expect_symbol("(");
    while (!stream_.at_symbol(")")) {
      if (!out.empty()) stream_.expect_symbol(",");
      MacroParameter parameter{stream_.expect_name(), nullptr};
      if (stream_.skip_symbol("=")) {
        parameter.fallback = expressions_.expression();
      } else if (!out.empty() && out.back().fallback != nullptr) {
        stream_.fail("a parameter without a default follows one with a default");
      }
      out.push_back(std::move(parameter));
    }
    stream_.expect_symbol(")");
    return out;
  }

  /// In Jinja a macro has these without saying so.
  void refuse_implicit_names(const Macro& macro) const {
    for (const char* const name : {"varargs", "kwargs"}) {
      if (!expressions_.names().contains(name)) continue;
      const auto is_own = [&](const MacroParameter& parameter) { return parameter.name == name; };
      if (std::any_of(macro.parameters.begin(), macro.parameters.end(), is_own)) continue;
      stream_.fail(std::string(name) + " of a macro is not supported");
    }
  }

  std::unique_ptr<Macro> macro() {
    auto made = std::make_unique<Macro>();
    made->name = stream_.expect_name();
    made->parameters = parameters();
    const std::set<std::string> outside = expressions_.take_names();
    made->body = outside_loops("endmacro");
    refuse_implicit_names(*made);
    expressions_.add_names(outside);
    return made;
  }

  Statement::Node filter_statement() {
    ExpressionPtr filters = expressions_.captured_filters(true);
    return FilterBody{std::move(filters), whole_body("endfilter")};
  }

  LexemeStream& stream_;
  ExpressionParser expressions_;
  int loops_ = 0;
};

}  // namespace

Template parse_template(std::string_view source, std::string_view source_name) {
  Template parsed{.name = std::string(source_name), .source = normalise_lines(source)};
  if (!is_well_formed(source)) {
    throw Error(ErrorKind::model, parsed.name + ": the template is not valid UTF-8");
  }
  if (parsed.source.size() > (std::size_t{64} << 20)) {
    throw Error(ErrorKind::model, parsed.name + ": a template of over 64 MiB");
  }
  LexemeStream stream(parsed.source, parsed.name);
  StatementParser parser(stream);
  parsed.body = parser.whole();
  parsed.literals = parser.literals();
  parsed.names = parser.names();
  return parsed;
}

}  // namespace hyb::jinja
