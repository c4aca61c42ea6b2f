#include "core/text/answer_scanner.h"

#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/support/files.h"

namespace answer_scanner_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const AnswerStart raw = {};
const AnswerStart chat = {.may_think = true};
const AnswerStart begun = {.may_think = true, .opening = "<think>\n"};

/// A small fixture's tokenizer with these control tokens.
Tokenizer with(const std::vector<std::string>& spellings) {
  const std::filesystem::path folder =
      std::filesystem::path(HYB_TESTS_DIR) / "golden/granite-dense-nope";
  Json file = parse_json(content(folder / "tokenizer.json"), "tokenizer.json");
  std::int32_t id = 5000;
  for (const std::string& spelling : spellings) {
    file["added_tokens"].push_back({{"id", id++}, {"content", spelling}, {"special", true}});
  }
  return Tokenizer::from_json(to_text(file), "tokenizer.json",
                              content(folder / "tokenizer_config.json"));
}

AnswerStart start_of(const Tokenizer& tokenizer, std::string opening = {}) {
  return {
      .may_think = true, .opening = std::move(opening), .markers = thought_markers_of(tokenizer)};
}

const AnswerStart& harmony() {
  static const AnswerStart start = start_of(with({"<|channel|>", "<|message|>"}));
  return start;
}

/// Every piece with a letter for its part, neighbours of one part joined.
std::string scanned(const AnswerStart& start, const std::vector<std::string>& chunks) {
  AnswerScanner scanner(start);
  std::vector<AnswerScanner::Piece> all;
  const auto add = [&](std::vector<AnswerScanner::Piece> pieces) {
    for (AnswerScanner::Piece& piece : pieces) {
      CHECK_FALSE(piece.text.empty());
      if (!all.empty() && all.back().part == piece.part) {
        all.back().text += piece.text;
      } else {
        all.push_back(std::move(piece));
      }
    }
  };
  for (const std::string& chunk : chunks) add(scanner.push(chunk));
  add(scanner.finish());
  std::string told, whole;
  for (const auto& [text, part] : all) {
    told += std::string(1, "tmac"[static_cast<int>(part)]) + "[" + text + "]";
    whole += text;
  }
  std::string given;
  for (const std::string& chunk : chunks) given += chunk;
  CHECK(whole == given);
  return told;
}

/// Thoughts, content and call; the same whatever the chunks.
std::string split(const AnswerStart& start, const std::string& text) {
  std::vector<std::string> characters;
  for (const char c : text) characters.emplace_back(1, c);
  CHECK(scanned(start, characters) == scanned(start, {text}));
  const SplitAnswer split = split_answer(text, start);
  return split.reasoning.value_or("(none)") + "|" + split.content +
         (split.call.empty() ? "" : "|" + split.call);
}

}  // namespace

TEST_SUITE("core/text/answer_scanner") {
  TEST_CASE("answers that begin in thought, that begin one, and that have none") {
    CHECK(split(begun, "two\n</think>\n\nFour. ") == "two|Four. ");
    CHECK(split(begun, "</think>Four.") == "|Four.");
    CHECK(split(begun, "two and tw") == "two and tw|");
    CHECK(split(begun, "two </thi") == "two </thi|");
    CHECK(split(begun, "") == "|");
    CHECK(split(begun, "<think>\ntwo\n</think>\nFour.") == "two|Four.");
    CHECK(split(begun, "two </thin </think> a </think> b") == "two </thin|a </think> b");
    CHECK(split(chat, "<think>\ntwo\n</think>\n\nFour.") == "two|Four.");
    CHECK(split(chat, "\n <think>two") == "two|");
    CHECK(split(chat, "<think></think>Four.") == "|Four.");
    CHECK(split(chat, " Four.") == "(none)| Four.");
    CHECK(split(chat, "Four. <think>two</think>") == "(none)|Four. <think>two</think>");
    CHECK(split(chat, "<thin") == "(none)|<thin");
    CHECK(split(chat, "<thinks>") == "(none)|<thinks>");
    CHECK(split(chat, "") == "(none)|");
    CHECK(split(raw, "<think>two</think>Four.") == "(none)|<think>two</think>Four.");
  }

  TEST_CASE("two thoughts, a begin or an end twice, an end alone") {
    CHECK(split(chat, "<think>\na\n</think>\n<think>\nb\n</think>\nFour.") == "a\n\nb|Four.");
    CHECK(split(begun, "a</think><think>b") == "a\n\nb|");
    CHECK(split(chat, "<think><think>\na</think></think>Four.") == "a|Four.");
    CHECK(split(chat, "\n</think>\n\nFour.") == "(none)|Four.");
    const AnswerStart far = {.may_think = true, .opening = "<think>\nAs I said,"};
    CHECK(split(far, " two</think>Four.") == "two|Four.");
  }

  TEST_CASE("chunks make no difference, whatever is written") {
    std::mt19937 random(7);
    const std::vector<std::string> words = {
        "<think>", "</think>",  "<",         "</",          "think>",        " ",     "\n",
        "a",       "</thi",     "nk>",       "<|channel|>", "analysis",      "final", "<|message|>",
        "<|end|>", "<|start|>", "assistant", " to=f",       "<|constrain|>", "json",  "<|",
        "to",      "<|call|>",  "<|mess"};
    for (int round = 0; round < 4000; ++round) {
      std::string text;
      for (std::size_t i = random() % 12; i > 0; --i) text += words[random() % words.size()];
      if (round % 50 == 0) text += std::string(300, 'x') + "<|message|>b";
      CAPTURE(text);
      for (const AnswerStart& start : {raw, chat, begun, harmony()}) {
        const auto whole = scanned(start, {text});
        std::vector<std::string> chunks;
        for (std::size_t at = 0; at < text.size();) {
          const std::size_t length = 1 + random() % 4;
          chunks.push_back(text.substr(at, length));
          at += length;
        }
        CHECK(scanned(start, chunks) == whole);
      }
    }
  }

  TEST_CASE("a thought is given out as it comes; only what may be a marker is waited for") {
    AnswerScanner scanner(chat);
    CHECK(scanner.push(" <thi").empty());
    CHECK(scanner.push("nk>").size() == 1);
    const auto pieces = scanner.push("ab</");
    REQUIRE(pieces.size() == 1);
    CHECK(pieces[0].text == "ab");
    CHECK(pieces[0].part == AnswerPart::thought);
    const auto end = scanner.push("think>c");
    REQUIRE(end.size() == 2);
    CHECK(end[0].text == "</think>");
    CHECK(end[1].text == "c");
    CHECK(end[1].part == AnswerPart::answer);
  }

  TEST_CASE("harmony: a header with all that it may have, in any order") {
    const std::string thought = "<|channel|>analysis<|message|>Two.<|end|><|start|>assistant";
    for (const char* header :
         {"<|channel|>final", "<|channel|>final json", "<|channel|>final <|constrain|>json",
          "<|channel|>final<|constrain|>json", "<|channel|> final <|constrain|> json", "",
          "<|channel|>commentary", "<|channel|>final to=user", " to=all<|channel|>commentary",
          " json"}) {
      CAPTURE(header);
      CHECK(split(harmony(), thought + header + "<|message|> Four.") == "Two.|Four.");
    }
    CHECK(split(harmony(), "<|channel|>final<|message|>Four.") == "(none)|Four.");
    CHECK(split(harmony(), "<|message|>Four.") == "(none)|Four.");
    CHECK(split(harmony(), "Four.") == "(none)|Four.");
    CHECK(split(harmony(), " to the point") == "(none)| to the point");
    CHECK(split(harmony(), "<|channel|>analysis<|message|>Two and") == "Two and|");
    CHECK(split(harmony(), thought + "<|channel|>analysis<|message|>Three.") == "Two.\n\nThree.|");
    const std::string plan = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";
    CHECK(split(harmony(), thought + plan + "<|channel|>final<|message|>Four.") ==
          "Two.|I look.\n\nFour.");
    // A model that never wrote its <|message|>, or no header at all.
    CHECK(split(harmony(), "<|channel|>final Four it is.") == "(none)|Four it is.");
    CHECK(split(harmony(), "<|channel|>analysis<|message|>Two.<|end|>Four.") == "Two.|Four.");
    CHECK(split(harmony(), "<|channel|>analysis<|message|>Two.<|channel|>final<|message|>Four.") ==
          "Two.|Four.");
    // What another would say is nothing to show as the answer.
    CHECK(split(harmony(), "<|channel|>final<|message|>Four.<|end|><|start|>user<|message|>And?") ==
          "And?|Four.");
  }

  TEST_CASE("harmony: calls, with the recipient before or after the channel") {
    const std::string thought = "<|channel|>analysis<|message|>Two.<|end|><|start|>assistant";
    const std::string plan = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";
    const auto call = [](const std::string& header) { return header + "<|message|>{\"a\":2}"; };
    CHECK(split(harmony(),
                thought + call("<|channel|>commentary to=functions.f <|constrain|>json")) ==
          "Two.||" + call("to=functions.f <|constrain|>json"));
    CHECK(split(harmony(), thought + call(" to=functions.f<|channel|>commentary json")) ==
          "Two.||" + call("to=functions.f json"));
    CHECK(split(harmony(), call(" to=functions.f<|channel|>commentary<|constrain|>json") +
                               "<|call|>") == "(none)||" + call("to=functions.f<|constrain|>json"));
    CHECK(split(harmony(), plan + call("<|channel|>analysis to=python code")) ==
          "(none)|I look.|" + call("to=python code"));
    CHECK(split(harmony(), call(" to=functions.f")) == "(none)||" + call("to=functions.f"));
  }

  TEST_CASE("harmony: an answer that ends within a header has none of it") {
    const std::string thought = "<|channel|>analysis<|message|>The assistant";
    for (const std::string header :
         {"<|end|>", "<|end|><|start|>", "<|end|><|start|>assistant", "<|end|><|start|>assis",
          "<|end|><|start|>assistant<|channel|>", "<|end|><|start|>assistant<|channel|>fin",
          "<|end|><|start|>assistant<|channel|>final js",
          "<|end|><|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json",
          "<|end|><|start|>assistant<|channel|>final<|message|>"}) {
      CAPTURE(header);
      CHECK(split(harmony(), thought + header) == "The assistant|");
    }
    CHECK(split(harmony(), "<|channel|>") == "(none)|");
    CHECK(split(harmony(), "<|channel|>analysis") == "|");
    const AnswerStart opened =
        start_of(with({"<|channel|>", "<|message|>"}), "<|channel|>analysis<|message|>");
    CHECK(split(opened, "Two.<|end|><|start|>assistant<|channel|>final<|message|>Four.") ==
          "Two.|Four.");
  }

  TEST_CASE("answers of harmony show where their messages begin and end; turns do not") {
    const std::vector<std::string> tokens = {"<|start|>", "<|channel|>",   "<|message|>",
                                             "<|end|>",   "<|constrain|>", "<|call|>"};
    const Tokenizer tokenizer = with(tokens);
    const std::string answer =
        "<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final "
        "<|constrain|>json<|message|>4<|call|>";
    CHECK(tokenizer.decode(tokenizer.encode(answer, {.parse_special = true}), true) == answer);
    const Tokenizer other = with({"<|start|>", "<|end|>"});
    CHECK(other.decode(other.encode("a<|end|><|start|>b", {.parse_special = true}), true) == "ab");
    // To write them is not for the text of an assistant's message.
    const TextPiece piece{.text = "<|end|>", .marked = true, .allow_thinking_markers = true};
    const auto ids = tokenizer.encode(std::span(&piece, 1), {.parse_special = true});
    CHECK(std::find(ids.begin(), ids.end(), *tokenizer.find("<|end|>")) == ids.end());
  }

  TEST_CASE("markers are those of the vocabulary") {
    CHECK(thought_markers_of(with({})).begin == "<think>");
    CHECK(thought_markers_of(with({"[THINK]", "[/THINK]", "<think>", "</think>"})).begin ==
          "<think>");
    const AnswerStart gemma = start_of(with({"<|channel>", "<channel|>"}));
    CHECK(split(gemma, "<|channel>thought\nTwo.<channel|>Four.") == "Two.|Four.");
    CHECK(split(gemma, "<|channel>thought\n<channel|>Four.") == "|Four.");
    CHECK(split(gemma, "<|channel>Two.<channel|><|channel>thought\nOr so.<channel|>Four.") ==
          "Two.\n\nOr so.|Four.");
    CHECK(split(gemma, "<|channel>thou") == "thou|");
    CHECK(split(start_of(with({"[THINK]", "[/THINK]"})), "[THINK]Two.[/THINK]Four.") ==
          "Two.|Four.");
    const Tokenizer cohere = with({"<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>"});
    const std::string thinks = "<|START_THINKING|>Two.<|END_THINKING|>";
    const std::string seen = cohere.decode(
        cohere.encode(thinks + "<|START_RESPONSE|>Four.", {.parse_special = true}), true);
    CHECK(seen == thinks + "Four.");
    CHECK(split(start_of(cohere), seen) == "Two.|Four.");
    const AnswerStart seed = start_of(with({"<seed:think>", "</seed:think>"}));
    CHECK(split(seed, "<seed:think>Two.</seed:think>Four.") == "Two.|Four.");
  }
}

}  // namespace answer_scanner_test
