#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/environment.h"
#include "app/prompt.h"
#include "app/thoughts.h"
#include "core/engine/engine.h"

namespace hyb::app {

/// What came of a request.
struct Answer {
  Completion completion;
  bool was_stopped = false;     ///< by Ctrl-C or another signal
  bool reader_is_gone = false;  ///< nobody reads stdout any more
};

/// What becomes of the thought that an answer begins with.
enum class ThoughtView : std::uint8_t {
  hidden,  ///< left out, with its markers and the white space behind it
  plain,   ///< as the model gives it: where the prompt has begun it, without its first marker
  whole,   ///< the same with that marker, so that whoever reads the text finds both
  dimmed   ///< escape sequences around it, its markers included
};

/// How an answer's text is shown.
struct AnswerView {
  bool sanitizes = false;  ///< made harmless to a terminal
  ThoughtView thoughts = ThoughtView::plain;
  AnswerStart start = {};
};

/// On this stdout. `shows_thoughts` is --thoughts; where nobody said, a terminal shows them and
/// nothing else does.
AnswerView stdout_view(const Environment& environment, std::optional<bool> shows_thoughts);

/// Runs a request to its end and writes its text to stdout as it comes; a line break follows when
/// the text does not end in one. A signal to stop ends the answer with what there is; the signal
/// stays raised. Warns where a hidden thought was all that came. On errors the engine is left idle.
Answer stream_answer(Engine& engine, Request request, const AnswerView& view);

/// The answer as history keeps it: with the engine's own ids, end-of-turn tokens left out, where
/// these say just the text; without ids (and empty) where they do not, as after a stop string.
OwnTurn own_turn(const Completion& completion, const std::vector<TokenId>& stop_tokens,
                 const Tokenizer& tokenizer);

}  // namespace hyb::app
