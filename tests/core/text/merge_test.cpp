#include "core/text/merge.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace hyb;

namespace {

/// By the definition: the lowest rank, the leftmost of equal ones, again and again.
std::vector<TokenId> merged_plainly(std::vector<TokenId> symbols, const MergeTable& table) {
  while (true) {
    MergeTable::Rank lowest = MergeTable::none;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const MergeTable::Rank rank = table.rank(symbols[i], symbols[i + 1]);
      if (rank < lowest) {
        lowest = rank;
        where = i;
      }
    }
    if (lowest == MergeTable::none) return symbols;
    symbols[where] = table.merged(lowest);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

}  // namespace

TEST_SUITE("core/text/merge") {
  TEST_CASE("short and long words merge as the definition says") {
    std::mt19937 random(11);
    for (int round = 0; round < 300; ++round) {
      // Symbols 0-3 are letters; a merge joins two known symbols into a new one.
      MergeTable table(60);
      std::vector<std::pair<int, int>> pairs;
      for (int id = 4; id < 64; ++id) {
        const auto known = static_cast<unsigned>(id);
        const int left = static_cast<int>(random() % (random() % 2 ? 4 : known));
        const int right = static_cast<int>(random() % (random() % 2 ? 4 : known));
        pairs.emplace_back(left, right);
      }
      // Any order of ranks is allowed, also a long piece before its parts.
      std::vector<int> order;
      for (int i = 0; i < 60; ++i) order.push_back(i);
      std::shuffle(order.begin(), order.end(), random);
      for (const int i : order) {
        const auto& [left, right] = pairs[static_cast<std::size_t>(i)];
        table.add(TokenId{left}, TokenId{right}, TokenId{i + 4});
      }
      std::vector<TokenId> word(random() % 200);
      const unsigned letters = 1 + random() % 4;
      for (TokenId& symbol : word) symbol = TokenId{static_cast<int>(random() % letters)};
      const std::vector<TokenId> want = merged_plainly(word, table);
      merge_symbols(word, table);
      REQUIRE(word == want);
    }
  }

  TEST_CASE("a million equal letters are no trouble") {
    MergeTable table(10);
    for (int i = 0; i < 10; ++i) table.add(TokenId{i}, TokenId{i}, TokenId{i + 1});
    std::vector<TokenId> word(1'000'000, TokenId{0});
    merge_symbols(word, table);
    CHECK(word.size() == 1'000'000 / 1024 + 2);  // the rest, 576, is 512 and 64
    CHECK(word.front() == TokenId{10});
    CHECK(word.back() == TokenId{6});
  }
}
