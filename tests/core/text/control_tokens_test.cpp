#include "core/text/control_tokens.h"

#include <doctest/doctest.h>

using namespace hyb;

TEST_SUITE("core/text/control_tokens") {
  TEST_CASE("white space that is not special is plain text") {
    for (const char* text : {"  ", "\n\n", "\t", "▁▁▁", "\u3000"}) {
      CHECK(guard_allowing(text, false) == Guard::closed);
      CHECK(guard_allowing(text, true) == Guard::open);
    }
  }

  TEST_CASE("an assistant's turn may hold thoughts and calls, special or not") {
    for (const char* text : {"<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]",
                             "<|tool_call_start|>"}) {
      CHECK(guard_allowing(text, true) == Guard::thinking);
      CHECK(guard_allowing(text, false) == Guard::thinking);
    }
    CHECK(guard_allowing("<|fim_prefix|>", false) == Guard::thinking);
    CHECK(guard_allowing("<table>", false) == Guard::thinking);
  }

  TEST_CASE("turns, roles and results of tools are never its own") {
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
