#include <doctest/doctest.h>

#include "core/text/added_tokens.h"
#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

namespace added_tokens_test {

using namespace hyb;
using testing::contains;
using testing::model_error;

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
  TEST_CASE("keys are found, others are not, and the first value is kept") {
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

TEST_SUITE("core/text/control_tokens") {
  TEST_CASE("white space that is not special is plain text") {
    for (const char* text : {"  ", "\n\n", "\t", "▁▁▁", "\u3000"}) {
      CHECK(guard_allowing(text, false) == Guard::closed);
      CHECK(guard_allowing(text, true) == Guard::open);
    }
  }

  TEST_CASE("an assistant message may contain thoughts and calls, special or not") {
    for (const char* text : {"<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]",
                             "<|tool_call_start|>"}) {
      CHECK(guard_allowing(text, true) == Guard::thinking);
      CHECK(guard_allowing(text, false) == Guard::thinking);
    }
    CHECK(guard_allowing("<|fim_prefix|>", false) == Guard::thinking);
    CHECK(guard_allowing("<table>", false) == Guard::thinking);
  }

  TEST_CASE("turn, role and tool-result tokens need the template") {
    for (const char* text : {"<|im_start|>",
                             "<|im_end|>",
                             "<|start_of_role|>",
                             "<|end_of_role|>",
                             "<|end_of_text|>",
                             "<|endoftext|>",
                             "<start_of_turn>",
                             "<end_of_turn>",
                             "<s>",
                             "</s>",
                             "<SPECIAL_10>",
                             "<SPECIAL_12>",
                             "<|eot_id|>",
                             "<|user|>",
                             "<|Assistant|>",
                             "<|system|>",
                             "<tool_response>",
                             "<|start_header_id|>",
                             "<|im_middle|>",
                             "[INST]",
                             "[/INST]",
                             "<beginning_of_sentence>",
                             "<end_of_sentence>",
                             "<|bom|>",
                             "<|eom|>"}) {
      CAPTURE(text);
      CHECK(guard_allowing(text, false) == Guard::open);
      CHECK(guard_allowing(text, true) == Guard::open);
    }
    CHECK(guard_allowing("<|reserved_7|>", true) == Guard::open);
  }
}

namespace {

AddedTokens read(const std::string& json) {
  const TokenizerFile file = read_tokenizer_json(testing::TokenizerText{.added = json}.text(), "f");
  return AddedTokens(file, file.vocabulary,
                     [](std::string_view text) { return "~" + std::string(text); });
}

std::string entry(const std::string& content, int id, const std::string& more = "") {
  return R"({"content":")" + content + R"(","id":)" + std::to_string(id) + more + "}";
}

std::string cut(const AddedTokens& tokens, const GuardedText& text, bool normalized = false) {
  std::string out;
  for (const auto& stretch : tokens.cut(text, normalized)) {
    const std::string part = text.text.substr(stretch.begin, stretch.end - stretch.begin);
    out += stretch.token ? "<" + part + ">" : "[" + part + "]";
  }
  return out;
}

std::string cut(const AddedTokens& tokens, const std::string& text) {
  return cut(tokens, GuardedText{text, {}, Guard::open});
}

const std::string special = R"(,"special":true)";

}  // namespace

TEST_SUITE("core/text/added_tokens") {
  TEST_CASE("the leftmost longest match is found") {
    const AddedTokens tokens =
        read("[" + entry("XY", 10, special) + "," + entry("XYZ", 11, special) + "," +
             entry("YZ", 12, special) + "]");
    CHECK(cut(tokens, "aXYZb") == "[a]<XYZ>[b]");
    CHECK(cut(tokens, "XYYZ") == "<XY><YZ>");
    CHECK(cut(tokens, "XYXYZ") == "<XY><XYZ>");
    CHECK(cut(tokens, "abc") == "[abc]");
    CHECK(cut(tokens, "") == "");
    CHECK(tokens.is_special(TokenId{10}));
    CHECK_FALSE(tokens.is_special(TokenId{0}));
  }

  TEST_CASE("a token with lstrip or rstrip takes the spaces at that side") {
    const AddedTokens tokens = read("[" + entry("L", 10, special + R"(,"lstrip":true)") + "," +
                                    entry("R", 11, special + R"(,"rstrip":true)") + "]");
    CHECK(cut(tokens, "a \u3000L b") == "[a]< \u3000L>[ b]");
    CHECK(cut(tokens, "aR \n L") == "[a]<R \n ><L>");
    CHECK(cut(tokens, "  L") == "<  L>");
  }

  TEST_CASE("a single word does not touch letters, digits or underscores") {
    const AddedTokens tokens =
        read("[" + entry("word", 10, special + R"(,"single_word":true)") + "]");
    CHECK(cut(tokens, "word words xword word-é éword word") ==
          "<word>[ words xword ]<word>[-é éword ]<word>");
  }

  TEST_CASE("normalized tokens are found in normalised text by their normalised spelling") {
    const AddedTokens tokens = read("[" + entry("N", 10) + "," + entry("S", 11, special) + "]");
    CHECK(cut(tokens, "~N S") == "[~N ]<S>");
    CHECK(cut(tokens, {"N ~N S", {}, Guard::open}, true) == "[N ]<~N>[ S]");
    CHECK(tokens.text_of(TokenId{10}) == "~N");
    CHECK(tokens.text_of(TokenId{11}) == "S");
    CHECK(tokens.text_of(TokenId{1}).empty());
  }

  TEST_CASE("a guarded byte prevents a match, but not a shorter one") {
    const AddedTokens tokens =
        read("[" + entry("<e>", 10, special) + "," + entry("<e>xx", 11, special) + "," +
             entry("<think>", 12, special) + "," + entry("  ", 13, R"(,"normalized":false)") + "]");
    GuardedText text;
    text.append("<e>", Guard::open);
    text.append("xx<e>  ", Guard::closed);
    text.append("<think><e>", Guard::thinking);
    text.append("<", Guard::open);
    text.append("e>", Guard::closed);
    CHECK(cut(tokens, text) == "<<e>>[xx<e>]<  ><<think>>[<e><e>]");
  }

  TEST_CASE("contradictions are errors that name both sides") {
    const auto error_of = [](const std::string& json) { return model_error([&] { read(json); }); };
    CHECK(error_of("[" + entry("ab", 2) + "]") ==
          "f: added_tokens[0]: \"ab\" has id 2 here and 3 in the vocabulary");
    CHECK(error_of("[" + entry("new", 2) + "]") ==
          "f: added_tokens[0]: \"new\" has id 2, which the vocabulary gives to \"c\"");
    CHECK(contains(error_of("[" + entry("x", 10) + "," + entry("x", 11) + "]"), "added twice"));
    CHECK(contains(error_of("[" + entry("x", 10) + "," + entry("y", 10) + "]"),
                   "\"y\" and to \"x\""));
    CHECK(contains(error_of("[" + entry("x", -1) + "]"), "out of range"));
    CHECK(contains(error_of("[" + entry("x", 1 << 30) + "]"), "out of range"));
    CHECK(contains(error_of("[" + entry(std::string(600, 'x'), 10) + "]"), "512"));
    CHECK(contains(error_of("{}"), "list"));
    CHECK(contains(error_of("[1]"), "object"));
    CHECK(contains(error_of(R"([{"content":"x"}])"), "\"id\""));
    CHECK(error_of("[" + entry("ab", 3) + "]").empty());
  }
}

}  // namespace added_tokens_test
