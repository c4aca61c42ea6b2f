#include "core/text/control_tokens.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "core/text/unicode.h"
#include "core/text/utf8.h"

namespace hyb {
namespace {

// Spellings of published templates. A tool's result is no part of an assistant's turn.
constexpr std::string_view assistant_markers[] = {
    "<think>",
    "</think>",
    "<|think|>",
    "<|/think|>",
    "<|begin_of_thought|>",
    "<|end_of_thought|>",
    "<seed:think>",
    "</seed:think>",
    "[THINK]",
    "[/THINK]",
    "<tool_call>",
    "</tool_call>",
    "<tool_calls>",
    "</tool_calls>",
    "<|tool_call|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<TOOLCALL>",
    "</TOOLCALL>",
    "[TOOL_CALLS]",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<function_call>",
    "</function_call>",
};

// Parts of the spellings of turns and roles, which some files do not mark as special.
constexpr std::string_view turn_words[] = {
    "|im_",      "bom",      "turn",     "role",      "header",      "user",
    "assistant", "system",   "human",    "developer", "observation", "ipython",
    "start_of",  "end_of",   "begin_of", "endoftext", "startoftext", "eot",
    "eom",       "eos",      "bos",      "inst",      "channel",     "message",
    "return",    "response", "result",   "output",    "sentence",    "special",
};

bool is_white(std::string_view spelling) {
  constexpr char32_t sentencepiece_space = 0x2581;
  for (std::size_t at = 0; at < spelling.size();) {
    const char32_t code_point = next_code_point(spelling, at);
    if (!is_white_space(code_point) && code_point != sentencepiece_space) return false;
  }
  return true;
}

bool names_turn(std::string_view spelling) {
  if (spelling == "<s>" || spelling == "</s>") return true;
  std::string lower(spelling);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return std::any_of(std::begin(turn_words), std::end(turn_words),
                     [&](std::string_view word) { return lower.find(word) != std::string::npos; });
}

}  // namespace

Guard guard_allowing(std::string_view spelling, bool special) {
  if (!special && is_white(spelling)) return Guard::closed;
  const bool marker = std::find(std::begin(assistant_markers), std::end(assistant_markers),
                                spelling) != std::end(assistant_markers);
  if (marker || (!special && !names_turn(spelling))) return Guard::thinking;
  return Guard::open;
}

}  // namespace hyb
