#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"

namespace hyb::app {

/// What the prompt says of the begin of its answer.
struct AnswerStart {
  /// False: the answer is plain text, and nothing in it is a marker of thoughts.
  bool may_think = false;
  /// The thought that the prompt has begun, from its marker on ("<think>\n"); empty: the answer
  /// begins one itself, or has none.
  std::string opening = {};
};

/// Markers of thoughts, as all families in models/families spell them.
inline constexpr std::string_view thought_begin = "<think>", thought_end = "</think>";

/// Tells the thought at an answer's begin from the rest, while the text comes in. The marker that
/// ends the thought belongs to it; whatever follows is the answer, further markers included.
class ThoughtScanner {
 public:
  explicit ThoughtScanner(const AnswerStart& start);

  struct Piece {
    std::string text;
    bool is_thought;
  };

  /// All pieces together are all texts together. A few characters are held back while they may
  /// become the begin of a thought.
  std::vector<Piece> push(std::string_view text);

  /// What is held back, at the end of the answer.
  std::vector<Piece> finish();

 private:
  enum class Place { begin, thought, answer };

  std::vector<Piece> in_thought(std::string_view text);

  Place place_;
  std::string held_;  ///< at the begin: all so far; in a thought: its last characters, given out
};

/// A whole answer, taken apart: white space around the thought and before the content left out.
struct SplitAnswer {
  std::optional<std::string> reasoning;  ///< nothing: the answer has no thought
  std::string content;                   ///< empty where the answer was cut off in its thought
};

SplitAnswer split_answer(std::string_view text, const AnswerStart& start);

/// The answer as a past message for a template: {role, content, reasoning_content} where it has a
/// thought and the template `takes_reasoning` by that name; else {role, content} with all of its
/// text, the part that its prompt had begun included.
Json assistant_message(std::string_view text, const AnswerStart& start, bool takes_reasoning);

}  // namespace hyb::app
