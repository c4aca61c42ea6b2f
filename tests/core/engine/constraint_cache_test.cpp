#include "core/engine/constraint_cache.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "tests/sim/toy_model.h"
#include "tests/support/error_text.h"

namespace constraint_cache_test {

using namespace hyb;
using namespace hyb::testing;
using Form = AnswerRule::Form;

namespace {

AnswerRule regex(const std::string& text) {
  return {.form = Form::regex, .text = text, .source = "rule"};
}

bool allows(const ConstraintCache::Use& use, std::string_view text) {
  GrammarMatcher matcher(*use.get());
  return matcher.accept_bytes(text) && matcher.is_complete();
}

}  // namespace

TEST_SUITE("core/engine/constraint_cache") {
  TEST_CASE("a rule is compiled once, and those in use stay however many come") {
    ConstraintCache cache(sim::toy_tokenizer(), {sim::toy_end}, 16);
    const ConstraintCache::Use first = cache.get(regex("a+"));
    Constraint* const constraint = first.get();
    for (int i = 0; i < 5'000; ++i) CHECK(cache.get(regex("a+")).get() == constraint);
    CHECK(cache.compiled() == 1);
    CHECK(cache.get({.form = Form::one_of, .text = R"(["a+"])"}).get() != constraint);

    std::vector<ConstraintCache::Use> used;
    for (int i = 0; i < 40; ++i)
      used.push_back(cache.get(regex("b{" + std::to_string(i + 1) + "}")));
    CHECK(cache.compiled() == 42);
    used.erase(used.begin() + 1, used.end());
    for (int i = 0; i < 40; ++i) cache.get(regex("c{" + std::to_string(i + 1) + "}"));
    cache.get(regex("b{39}"));  // was dropped
    CHECK(cache.compiled() == 83);
    for (int i = 0; i < 40; ++i) cache.get(regex("ab{" + std::to_string(i + 1) + "}"));
    CHECK(first.get() == constraint);
    CHECK(allows(first, "aaa"));
    CHECK(allows(used.front(), "b"));
    ConstraintCache::Use copy = first, moved = std::move(copy);
    CHECK(moved.get() == constraint);
    CHECK(ConstraintCache::Use().get() == nullptr);
  }

  TEST_CASE("every form is read, and what is wrong begins with where it was written") {
    ConstraintCache cache(sim::toy_tokenizer(), {sim::toy_end}, 16);
    CHECK(allows(cache.get({.form = Form::one_of, .text = R"(["ab","c"])", .source = "x"}), "ab"));
    CHECK(allows(cache.get({.form = Form::gbnf, .text = "root ::= \"a\" root?", .source = "x"}),
                 "aa"));
    CHECK(allows(cache.get({.form = Form::json_object, .source = "x"}), R"({"a":1})"));
    CHECK(allows(cache.get({.form = Form::json_schema, .text = R"({"const":7})", .source = "x"}),
                 "7"));
    for (const AnswerRule& wrong :
         {AnswerRule{.form = Form::regex, .text = "(", .source = "here"},
          AnswerRule{.form = Form::gbnf, .text = "", .source = "here"},
          AnswerRule{.form = Form::json_schema, .text = R"({"not":{}})", .source = "here"},
          AnswerRule{
              .form = Form::json_schema, .text = R"({"$ref":"http://x/y"})", .source = "here"},
          AnswerRule{.form = Form::json_schema, .text = "false", .source = "here"}}) {
      CAPTURE(wrong.text);
      CHECK(error_text([&] { cache.get(wrong); }).starts_with("here"));
    }
  }

  TEST_CASE("a special token that no answer shows spells nothing") {
    ConstraintCache cache(sim::toy_tokenizer(), {sim::toy_end}, 16);
    const ConstraintCache::Use any = cache.get(regex("[^a]*"));
    CHECK(any.get()->vocabulary().bytes(TokenId{1}) == "b");
    GrammarMatcher matcher(*any.get());
    REQUIRE(matcher.accept(sim::toy_end));
    CHECK(matcher.has_ended());
  }
}

}  // namespace constraint_cache_test
