#include "app/verify/passages.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace passages_test {

using namespace hyb;
using namespace hyb::app;

TEST_SUITE("app/verify/passages") {
  TEST_CASE(
      "the shortest and the longest are there, ids are of the vocabulary, both ways of drawing") {
    const auto passages = make_passages(
        {.prompts = 20, .answer_tokens = 10, .length_max = 50, .vocab = 7, .seed = 2}, nullptr);
    REQUIRE(passages.size() == 20);
    CHECK(passages[0].prompt.size() == 1);
    CHECK(passages[1].prompt.size() == 40);
    std::size_t sampled = 0;
    for (const Passage& passage : passages) {
      CHECK(passage.prompt.size() >= 1);
      CHECK(passage.prompt.size() <= 40);
      CHECK(passage.answer_tokens == 10);
      for (const TokenId token : passage.prompt) {
        CHECK(index(token) >= 0);
        CHECK(index(token) < 7);
      }
      sampled += passage.sampling.temperature > 0;
    }
    CHECK(sampled == 10);
  }

  TEST_CASE("one seed, one set of prompts") {
    const PassageOptions passage_options = {.vocab = 1000, .seed = 5};
    const auto first = make_passages(passage_options, nullptr);
    const auto again = make_passages(passage_options, nullptr);
    const auto other = make_passages({.vocab = 1000, .seed = 6}, nullptr);
    CHECK(first[2].prompt == again[2].prompt);
    CHECK(first[2].prompt != other[2].prompt);
  }
}

}  // namespace passages_test
