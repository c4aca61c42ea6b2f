#include "core/engine/token_masks.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "core/engine/request.h"
#include "tests/sim/toy_model.h"
#include "tests/support/ambiguous_grammar.h"
#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

namespace token_masks_test {

using namespace hyb;
using namespace hyb::testing;
using Ids = std::set<int>;

namespace {

constexpr std::int32_t vocab = 16;

Request bound_by(const std::string& regex) {
  Request request;
  request.prompt = {TokenId{1}};
  request.stop_tokens = {sim::toy_end};
  request.rule =
      sim::toy_rules().get({.form = AnswerRule::Form::regex, .text = regex, .source = "rule"});
  return request;
}

/// The masks of rows after each of the drafts, from `first` drafts on.
std::vector<Ids> masks_of(TokenMasks& masks, const std::vector<TokenId>& drafts = {},
                          std::size_t first = 0, std::uint64_t drawn = 0) {
  std::vector<SampleRow> rows(drafts.size() + 1 - first, SampleRow{.params = nullptr});
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].draw = drawn + first + i;
  masks.set(rows, drafts);
  std::vector<Ids> all;
  for (const SampleRow& row : rows) {
    Ids& ids = all.emplace_back();
    for (int id = 0; id < vocab; ++id) {
      if (row.mask.empty() || (row.mask[0] >> id & 1U) != 0) ids.insert(id);
    }
  }
  return all;
}

}  // namespace

// a 0, b 1, c 2, ab 3, ba 4, 5-9 parts of characters, end 10, aab 11, cab 12, bb 13, aa 14, bca 15
TEST_SUITE("core/engine/token_masks") {
  TEST_CASE("rows have the masks of what was drawn and of the drafts before them") {
    const Request request = bound_by("ab*");
    TokenMasks masks(request, nullptr, vocab);
    const std::vector<TokenId> drafts = {TokenId{3}, TokenId{13}, TokenId{10}};
    const std::vector<Ids> all = masks_of(masks, drafts);
    CHECK(all[0] == Ids{0, 3});
    CHECK(all[1] == Ids{1, 10, 13});
    CHECK(all[2] == Ids{1, 10, 13});
    CHECK(all[3].empty());
    CHECK(masks_of(masks, drafts, 2) == std::vector<Ids>{all[2], all[3]});
    CHECK(masks.allowed(drafts) == 3);
    CHECK(masks.allowed(std::vector{TokenId{3}, TokenId{2}, TokenId{1}}) == 1);
    CHECK(masks.allowed(std::vector{TokenId{1}}) == 0);
    CHECK(masks_of(masks)[0] == Ids{0, 3});  // drafts were not drawn
    REQUIRE(masks.accept(TokenId{0}));
    CHECK(masks_of(masks)[0] == Ids{1, 10, 13});
    CHECK_FALSE(masks.has_ended());
    REQUIRE(masks.accept(TokenId{10}));
    CHECK(masks.has_ended());
  }

  TEST_CASE("earlier rows keep their masks until they are dropped, and no others are made") {
    const Request request = bound_by("a+");
    TokenMasks masks(request, nullptr, vocab);
    std::vector<SampleRow> first(1, SampleRow{.params = nullptr}), second = first;
    masks.set(first, {});
    masks.set(second, {});
    CHECK(first[0].mask.data() != second[0].mask.data());
    masks.clear();
    std::vector<SampleRow> third = first;
    masks.set(third, {});
    CHECK(third[0].mask.data() == first[0].mask.data());
    const Request free;
    TokenMasks none(free, nullptr, vocab);
    std::vector<SampleRow> row(1, SampleRow{.params = nullptr});
    none.set(row, {});
    CHECK(row[0].mask.empty());
  }

  TEST_CASE("what a rule leaves no choice about is cut by the tokenizer, up to the first choice") {
    const Request request = bound_by("abca(b|c)");
    TokenMasks masks(request, &sim::toy_tokenizer(), vocab);
    CHECK(masks.forced(7) == std::vector{TokenId{0}, TokenId{1}, TokenId{2}, TokenId{0}});
    CHECK(masks.forced(2) == std::vector{TokenId{0}, TokenId{1}});
    CHECK(masks.forced(0).empty());
    REQUIRE(masks.accept(TokenId{3}));
    CHECK(masks.forced(7) == std::vector{TokenId{2}, TokenId{0}});
    REQUIRE(masks.accept(TokenId{2}));
    CHECK(masks.forced(7).empty());  // a single byte
    REQUIRE(masks.accept(TokenId{0}));
    CHECK(masks.forced(7).empty());  // a choice
    CHECK(TokenMasks(request, nullptr, vocab).forced(7).empty());
    const Request free;
    CHECK(TokenMasks(free, &sim::toy_tokenizer(), vocab).forced(7).empty());
    CHECK(TokenMasks(bound_by("aé"), &sim::toy_tokenizer(), vocab).forced(2) ==
          std::vector{TokenId{0}, TokenId{5}});
  }

  TEST_CASE("allowed tokens and least lengths are masks; where a rule ends there is nothing else") {
    Request request;
    request.allowed = {TokenId{1}, TokenId{10}};
    request.stop_tokens = {sim::toy_end};
    request.min_tokens = 2;
    TokenMasks masks(request, nullptr, vocab);
    CHECK(masks_of(masks)[0] == Ids{1});
    CHECK(masks_of(masks, {}, 0, 2)[0] == Ids{1, 10});
    request.ignore_eos = true;
    CHECK(masks_of(masks)[0] == Ids{1, 10});

    Request least = bound_by("a?");
    least.min_tokens = 5;
    TokenMasks bound(least, nullptr, vocab);
    CHECK(masks_of(bound)[0] == Ids{0});
    REQUIRE(bound.accept(TokenId{0}));
    CHECK(masks_of(bound, {}, 0, 1)[0] == Ids{10});
  }

  TEST_CASE("a thought is free but for its end, and the answer is bound from its first byte") {
    const auto added = [](int id, const char* text, const char* special) {
      return fmt::format(R"({{"id":{},"content":"{}","single_word":false,"lstrip":false,)"
                         R"("rstrip":false,"normalized":false,"special":{}}})",
                         id, text, special);
    };
    TokenizerText text;
    text.added = "[" + added(7, "<think>", "false") + "," + added(8, "</think>", "true") + "," +
                 added(9, "<end>", "true") + "]";
    const Tokenizer tokenizer = Tokenizer::from_json(text.text(), "tokenizer");
    ConstraintCache cache(tokenizer, {TokenId{9}}, 10);
    const Ids all = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    Request request;
    request.rule = cache.get({.form = AnswerRule::Form::regex, .text = "ab*", .source = "rule"});
    request.stop_tokens = {TokenId{9}};
    request.start = {.may_think = true};
    const auto first_ten = [&](TokenMasks& masks, const std::vector<TokenId>& drafts = {}) {
      std::vector<Ids> found = masks_of(masks, drafts);
      for (Ids& ids : found) ids.erase(ids.upper_bound(9), ids.end());
      return found;
    };
    TokenMasks answers(request, &tokenizer, 10);
    CHECK(first_ten(answers)[0] == Ids{0, 3, 7});  // or it thinks first
    REQUIRE(answers.accept(TokenId{0}));
    CHECK(first_ten(answers)[0] == Ids{1, 9});

    TokenMasks thinks(request, &tokenizer, 10);
    const std::vector<TokenId> drafts = {TokenId{7}, TokenId{2}, TokenId{8}, TokenId{3},
                                         TokenId{2}};
    CHECK(thinks.allowed(drafts) == 4);
    const std::vector<Ids> masks = first_ten(thinks, drafts);
    CHECK(masks ==
          std::vector<Ids>{{0, 3, 7}, all, all, {0, 3, 7}, {1, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
    for (const int token : {7, 2, 9}) CHECK(thinks.accept(TokenId{token}) == (token != 9));
    CHECK(first_ten(thinks)[0] == all);

    request.start.opening = "<think>\n";
    TokenMasks opened(request, &tokenizer, 10);
    CHECK(first_ten(opened)[0] == all);
    REQUIRE(opened.accept(TokenId{2}));
    REQUIRE(opened.accept(TokenId{8}));
    CHECK(first_ten(opened)[0] == Ids{0, 3, 7});
    request.start = {};
    TokenMasks raw(request, &tokenizer, 10);
    CHECK(first_ten(raw)[0] == Ids{0, 3});
  }

  TEST_CASE("an answer goes on with what the prompt has of it") {
    Request request = bound_by("abc");
    request.start.begun = "ab";
    TokenMasks masks(request, nullptr, vocab);
    CHECK(masks_of(masks)[0] == Ids{2});
    request.start.begun = "b";
    CHECK(contains(error_text([&] { check(request, {vocab, 20, true}); }), "to be continued"));
  }

  TEST_CASE("a rule that can't be followed ends its own answer") {
    Request request;
    request.prompt = {TokenId{1}};
    request.rule = sim::toy_rules().get(
        {.form = AnswerRule::Form::gbnf, .text = ambiguous_grammar(), .source = "rule"});
    TokenMasks masks(request, nullptr, vocab);
    const std::vector<TokenId> drafts(12, TokenId{0});
    const std::size_t known = masks.allowed(drafts);
    CHECK(known >= 8);
    CHECK(known < 12);
    CHECK(masks.error().empty());  // none of that was drawn
    const std::vector<Ids> all = masks_of(masks, drafts);
    CHECK(all[0] == Ids{0, 14});
    CHECK(all[12].empty());
    CHECK(contains(masks.error(), "rule: too ambiguous"));
    masks.clear();
    CHECK(masks.error().empty());
    std::size_t drawn = 0;
    while (masks.accept(TokenId{0})) ++drawn;
    CHECK(drawn == known);
    CHECK(contains(masks.error(), "rule: too ambiguous"));
  }

  TEST_CASE("clashes are errors that say what to leave out") {
    const RequestLimits limits = {vocab, 20, true};
    const auto wrong = [&](const auto& change) {
      Request request = bound_by("a+");
      change(request);
      return error_text([&] { check(request, limits); });
    };
    CHECK(wrong([](Request&) {}).empty());
    CHECK(contains(wrong([](Request& r) { r.stop = {"x"}; }), "leave out stop strings"));
    CHECK(
        contains(wrong([](Request& r) { r.stop_tokens.push_back(TokenId{2}); }), "stop_token_ids"));
    CHECK(contains(wrong([](Request& r) { r.allowed = {TokenId{2}}; }), "allowed_token_ids"));
    CHECK(contains(wrong([](Request& r) { r.min_tokens = -1; }), "min_tokens"));
    CHECK(contains(wrong([](Request& r) {
                     r.rule = {};
                     r.min_tokens = 1;
                     r.stop = {"x"};
                   }),
                   "min_tokens holds stop tokens back"));
    CHECK(contains(wrong([](Request& r) {
                     r.rule = {};
                     r.allowed = {TokenId{99}};
                   }),
                   "allowed_token_ids holds token 99"));
  }
}

}  // namespace token_masks_test
