#include "app/ui/markdown.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace markdown_test {

using namespace hyb::app;

namespace {

std::string shown(std::string_view text, int columns = 60, std::size_t piece = 1000) {
  MarkdownView view;
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += piece)
    out += view.push(text.substr(at, piece), columns);
  return out + view.flush();
}

/// Each byte with the escape sequence that holds there: how a text was cut makes no difference.
std::vector<std::string> looks_of(const std::string& out) {
  std::vector<std::string> bytes;
  std::string look;
  for (std::size_t at = 0; at < out.size(); ++at) {
    if (out[at] == '\x1b') {
      const std::size_t end = out.find('m', at);
      look = out.substr(at + 1, end - at - 1);
      at = end;
      continue;
    }
    if (out[at] == '\n') CHECK((look.empty() || look == "["));
    bytes.push_back((out[at] == ' ' || look == "[" ? "" : look) + out[at]);
  }
  return bytes;
}

std::string plain(const std::string& out) {
  std::string text;
  for (const std::string& byte : looks_of(out)) text += byte.back();
  return text;
}

constexpr const char* everything =
    "# A title with `code`\n\nSome *emphasis*, **two words**, ***both***, a [link](https://x.y), "
    "2 * 3 * 4, a_b_c, ~~gone~~ and \\*this\\*.\n\n- one item that is so long that it is broken\n"
    "  - nested **bold**\n1. first\n22) second `x = 1`\n2024. a year\n> quoted words that are so "
    "long that they are broken at the end\n\n| name | value |\n|:-----|------:|\n| a `b` | 12 |\n"
    "| longer | 日本 |\nbehind it\n```python\ndef f(x):  # why\n    return \"t\" + 12\n```\n---\n"
    "Open *mark, `code and [text\n";

}  // namespace

TEST_SUITE("app/ui/markdown") {
  TEST_CASE("what marks mean is shown, on whole lines") {
    CHECK(plain(shown(everything, 40)) ==
          "A title with code\n\nSome emphasis, two words, both, a link\n(https://x.y), 2 * 3 * 4, "
          "a_b_c, gone\nand *this*.\n\n• one item that is so long that it is\n  broken\n  • nested "
          "bold\n1. first\n22) second x = 1\n2024. a year\n▌ quoted words that are so long that\n▌ "
          "they are broken at the end\n\nname   │ value\n───────┼──────\na b    │    12\nlonger │  "
          "日本\nbehind it\n── python ──────────────────────────────\ndef f(x):  # why\n    return "
          "\"t\" + 12\n────────────────────────────────────────\n"
          "────────────────────────────────────────\nOpen *mark, `code and [text\n");
    CHECK(shown("**a b** `c` *d* ~~e~~ [f](g)") ==
          "\x1b[1ma\x1b[m \x1b[1mb\x1b[m \x1b[36mc\x1b[m \x1b[3md\x1b[m \x1b[9me\x1b[m "
          "\x1b[4mf\x1b[m \x1b[2m(g)\x1b[m");
    CHECK(plain(shown("f(**kwargs) and **bold**")) == "f(**kwargs) and bold");
    CHECK(plain(shown("2**(3) and **4**, a**b**c")) == "2**(3) and 4, abc");
    CHECK(plain(shown("**bold **inner** and on**")) == "bold inner and on");
    CHECK(plain(shown("**\"words\"** and **\"x\"**は, **a*b")) == "\"words\" and \"x\"は, **a*b");
    CHECK(shown("**a *b* `c**`**") == "\x1b[1ma\x1b[m \x1b[1;3mb\x1b[m \x1b[1;36mc**\x1b[m");
  }

  TEST_CASE("what closes nothing, and what is no mark, is text") {
    for (const char* text : {"a * b * c", "snake_case_name", "**open", "`open", "[a] b", "[a](b",
                             "#no", "-no", "1.no", "12345. no", "a\\b", "2*3",
                             "| a | b |\nno table", "**", "~one~", "```a`b", "> ", "+", ""}) {
      CAPTURE(text);
      const std::string out = plain(shown(text));
      CHECK(out == (std::string(text) == "> " ? "▌ " : text));
    }
    CHECK(shown("| a | b | c |\n|---|\n| 1 | 2 | 3 |\n") ==
          "| a | b | c |\n|---|\n| 1 | 2 | 3 |\n");
    CHECK(plain(shown("a\n```python", 9)) == "a\n── python \n─────────\n");
    CHECK(shown("| a |\n|---|\n| a long cell |\n", 10) == "| a |\n|---|\n| a long cell |\n");
  }

  TEST_CASE("code that four blanks begin keeps its marks, not the text of a list") {
    CHECK(plain(shown("Type\n\n    *a = **b;\n\n    # c\n\nand *this*\n    *on*\n")) ==
          "Type\n\n    *a = **b;\n\n    # c\n\nand this\n    on\n");
    CHECK(plain(shown("- item\n\n    *more* of it\n\nText\n\n    *code*\n")) ==
          "• item\n\n    more of it\n\nText\n\n    *code*\n");
    MarkdownView view;
    CHECK(view.push("    *a", 60).empty());
    CHECK(view.push("* b\n", 60) == "    *a* b\n");
  }

  TEST_CASE("text is shown while it comes, up to a mark that waits for what closes it") {
    MarkdownView view;
    CHECK(view.push("some words ", 60) == "some words");
    CHECK(view.push("and **bo", 60) == " and");
    CHECK(view.push("ld** ", 60) == " \x1b[1mbold\x1b[m");
    CHECK(view.push("*" + std::string(500, 'x'), 60).size() > 400);  // not for ever
    view.flush();
    CHECK(view.push("```\n", 4) == "\x1b[2m────\x1b[m\n");
    CHECK(view.push("x", 4).empty());
    CHECK(view.push("\n", 4) == "x\n");
    CHECK(view.flush() == "\x1b[2m────\x1b[m\n");  // the answer ends in the code
  }

  TEST_CASE("code has its language's comments, strings and keywords") {
    CHECK(highlighted("if x == 'a b':  # if", "Python") ==
          "\x1b[1;34mif\x1b[m x == \x1b[32m'a b'\x1b[m:  \x1b[2m# if\x1b[m");
    CHECK(highlighted("int x = 12; // int", "c++") ==
          "\x1b[1;34mint\x1b[m x = \x1b[36m12\x1b[m; \x1b[2m// int\x1b[m");
    CHECK(highlighted("if it's # 1", "") == "if it's # \x1b[36m1\x1b[m");
    CHECK(highlighted("a \"\\\"b\" x1", "nosuch") == "a \x1b[32m\"\\\"b\"\x1b[m x1");
  }

  TEST_CASE("how a text is cut makes no difference, whatever it is") {
    for (const std::size_t piece : {1, 2, 3, 5, 11})
      CHECK(looks_of(shown(everything, 40, piece)) == looks_of(shown(everything, 40)));
    std::mt19937 draw(5);
    const std::vector<std::string> parts = {"*",  "**", "_",   "`",  "```", "\n",  "[",   "](",
                                            ")",  "|",  "|-|", "# ", "- ",  "> ",  "1. ", "\\",
                                            "~~", " ",  "a b", "é",  "日",  "---", "    "};
    for (int round = 0; round < 400; ++round) {
      std::string text;
      for (int i = 0; i < 40; ++i) text += parts[draw() % parts.size()];
      CAPTURE(text);
      const std::vector<std::string> whole = looks_of(shown(text, 20));
      MarkdownView view;
      std::string out;
      for (std::size_t at = 0; at < text.size();) {  // characters are whole
        std::size_t end = std::min(text.size(), at + 1 + draw() % 4);
        while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) ++end;
        out += view.push(std::string_view(text).substr(at, end - at), 20);
        at = end;
      }
      CHECK(looks_of(out + view.flush()) == whole);
    }
  }
}

}  // namespace markdown_test
