#include "core/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "core/base/error.h"
#include "core/text/jinja/expression_parser.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

/// Statements: what stands between {% and %}, and the bodies between them.
class StatementParser {
 public:
  explicit StatementParser(LexemeStream& stream) : stream_(stream), expressions_(stream) {}

  Body whole() {
    Body body = statements({});
    if (!stream_.at(TokenKind::end)) stream_.fail("unexpected " + stream_.describe());
    return body;
  }

  std::size_t literals() const { return expressions_.literals(); }

 private:
  using Names = std::initializer_list<std::string_view>;

  /// Reads until a tag with one of the names; that name is then current.
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

  /// As body_until, with the closing name taken.
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
    if (name == "call") return call_statement();
    if (name == "filter") return filter_statement();
    if (name == "with") return with_statement();
    if (name == "generation") return Generation{outside_loops("endgeneration")};
    if (name == "break" || name == "continue") {
      if (loops_ == 0) stream_.fail(place, "'" + name + "' outside a loop");
      if (name == "break") return Break{};
      return Continue{};
    }
    stream_.fail(place, "unknown tag '" + name + "'");
  }

  /// A body in which the loops around it can't be left.
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
    node.iterable = expressions_.tuple(false, "recursive");
    if (stream_.skip_name("if")) node.condition = expressions_.expression();
    node.recursive = stream_.skip_name("recursive");
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

  std::vector<Parameter> parameters() {
    std::vector<Parameter> out;
    stream_.expect_symbol("(");
    while (!stream_.at_symbol(")")) {
      if (!out.empty()) stream_.expect_symbol(",");
      Parameter parameter{stream_.expect_name(), nullptr};
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

  std::unique_ptr<Macro> macro() {
    std::string name = stream_.expect_name();
    std::vector<Parameter> list = parameters();
    return macro_body(std::move(name), std::move(list), "endmacro");
  }

  std::unique_ptr<Macro> macro_body(std::string name, std::vector<Parameter> list,
                                    std::string_view stop) {
    // Names that the body reads are gathered apart: they say what the macro accepts.
    std::set<std::string> outer = std::exchange(expressions_.names(), {});
    auto made = std::make_unique<Macro>();
    made->name = std::move(name);
    made->parameters = std::move(list);
    made->body = outside_loops(stop);
    std::set<std::string>& used = expressions_.names();
    const auto uses = [&](const char* special) {
      const bool parameter = std::any_of(made->parameters.begin(), made->parameters.end(),
                                         [&](const Parameter& p) { return p.name == special; });
      return used.contains(special) && !parameter;
    };
    made->uses_varargs = uses("varargs");
    made->uses_kwargs = uses("kwargs");
    made->uses_caller = uses("caller");
    used = std::move(outer);
    return made;
  }

  Statement::Node call_statement() {
    std::vector<Parameter> list;
    if (stream_.at_symbol("(")) list = parameters();
    const Place place = stream_.place();
    ExpressionPtr call = expressions_.expression();
    if (!std::holds_alternative<Call>(call->node)) stream_.fail(place, "expected a call");
    return CallBody{std::move(call), macro_body("", std::move(list), "endcall")};
  }

  Statement::Node filter_statement() {
    ExpressionPtr filters = expressions_.captured_filters(true);
    return FilterBody{std::move(filters), whole_body("endfilter")};
  }

  Statement::Node with_statement() {
    With node;
    while (!stream_.at(TokenKind::tag_end)) {
      if (!node.bindings.empty()) stream_.expect_symbol(",");
      Target target{.name = stream_.expect_name()};
      stream_.expect_symbol("=");
      node.bindings.emplace_back(std::move(target), expressions_.expression());
    }
    node.body = whole_body("endwith");
    return node;
  }

  LexemeStream& stream_;
  ExpressionParser expressions_;
  int loops_ = 0;
};

}  // namespace

Template parse_template(std::string_view source, std::string_view source_name) {
  Template parsed{.name = std::string(source_name), .source = normalise_lines(source)};
  if (!is_valid_utf8(source)) {
    throw Error(ErrorKind::model, parsed.name + ": the template is not valid UTF-8");
  }
  if (parsed.source.size() > (std::size_t{64} << 20)) {
    throw Error(ErrorKind::model, parsed.name + ": a template of over 64 MiB");
  }
  LexemeStream stream(parsed.source, parsed.name);
  StatementParser parser(stream);
  parsed.body = parser.whole();
  parsed.literals = parser.literals();
  return parsed;
}

}  // namespace hyb::jinja
