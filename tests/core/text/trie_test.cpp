#include "core/text/trie.h"

#include <doctest/doctest.h>

using namespace hyb;

namespace {

int value_of(const Trie& trie, std::string_view key) {
  Trie::Node node = Trie::root;
  for (const char byte : key) {
    node = trie.next(node, byte);
    if (node == Trie::none) return -2;
  }
  return trie.value(node);
}

}  // namespace

TEST_SUITE("core/text/trie") {
  TEST_CASE("keys are found, others are not, and the first value stays") {
    Trie trie;
    trie.add("<a>", 1);
    trie.add("<ab>", 2);
    trie.add("é\xFF", 3);
    trie.add("<a>", 4);
    CHECK(value_of(trie, "<a>") == 1);
    CHECK(value_of(trie, "<ab>") == 2);
    CHECK(value_of(trie, "é\xFF") == 3);
    CHECK(value_of(trie, "<a") == -1);
    CHECK(value_of(trie, "<b") == -2);
    CHECK(value_of(trie, "x") == -2);
  }
}
