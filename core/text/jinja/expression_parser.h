#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/lexer.h"

namespace hyb::jinja {

/// The lexemes with a position, and the names that were read so far.
class LexemeStream {
 public:
  LexemeStream(std::string_view source, std::string_view source_name);

  const Lexeme& current() const { return lexemes_[at_]; }
  const Lexeme& ahead() const { return lexemes_[at_ + 1 < lexemes_.size() ? at_ + 1 : at_]; }
  Place place() const { return current().place; }
  Lexeme take();

  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_symbol(std::string_view symbol) const { return at_pair(TokenKind::symbol, symbol); }
  bool at_name(std::string_view name) const { return at_pair(TokenKind::name, name); }
  bool skip_symbol(std::string_view symbol) { return skip_if(at_symbol(symbol)); }
  bool skip_name(std::string_view name) { return skip_if(at_name(name)); }
  void expect(TokenKind kind, std::string_view what);
  void expect_symbol(std::string_view symbol);
  std::string expect_name();

  [[noreturn]] void fail(const std::string& text) const { fail(place(), text); }
  [[noreturn]] void fail(Place place, const std::string& text) const;
  /// The current lexeme as a message shows it.
  std::string describe() const;

  /// Throws past 200 levels of tags, brackets and operators inside one another.
  void enter();
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

/// One level of nesting in the source for the life of the object.
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
/// **, unary, postfix, filter and test.
class ExpressionParser {
 public:
  explicit ExpressionParser(LexemeStream& stream) : stream_(stream) {}

  ExpressionPtr expression();
  ExpressionPtr without_conditional() { return disjunction(); }
  /// An expression, or several with commas between them, which make a tuple. It ends at the end of
  /// the tag, at `stop` (a name) where given, and at a closing parenthesis.
  ExpressionPtr tuple(bool conditional = true, std::string_view stop = {});
  /// a, (b, c) or namespace.attribute where `attribute_allowed`.
  Target target(bool attribute_allowed, std::string_view stop = {});
  /// `| filter(...) | ...` applied to Captured; null if there is none. `first_inline`: the first
  /// one comes without a bar.
  ExpressionPtr captured_filters(bool first_inline);
  /// The number for the next literal or data.
  std::size_t next_literal() { return literals_++; }
  std::size_t literals() const { return literals_; }
  /// Every name read since the set was emptied: tells which special names a macro uses.
  std::set<std::string>& names() { return names_; }

 private:
  ExpressionPtr make(Place place, Expression::Node node, int depth_below);
  ExpressionPtr binary(Place place, BinaryOperator op, ExpressionPtr left, ExpressionPtr right);
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr literal(Place place, decltype(Literal::value) value);
  ExpressionPtr string_literal();
  ExpressionPtr parenthesised();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr filters_and_tests(ExpressionPtr input);
  ExpressionPtr filter(ExpressionPtr input);
  ExpressionPtr test(ExpressionPtr input);
  CallArguments test_arguments();
  ExpressionPtr call(ExpressionPtr callee);
  ExpressionPtr dotted(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr subscript_key();
  CallArguments call_arguments();
  void call_argument(CallArguments& arguments);
  Target to_target(const Expression& expression);

  LexemeStream& stream_;
  std::size_t literals_ = 0;
  std::set<std::string> names_;
};

}  // namespace hyb::jinja
