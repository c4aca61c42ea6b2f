#pragma once

#include <string>

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

/// How an answer's text is shown.
struct AnswerView {
  bool sanitizes = false;      ///< made harmless to a terminal
  bool dims_thoughts = false;  ///< escape sequences around the thought, its markers included
  AnswerStart start = {};
};

/// Runs a request to its end and writes its text to stdout as it comes; a line break follows when
/// the text does not end in one. A signal to stop ends the answer with what there is; the signal
/// stays raised. On errors the engine is left idle.
Answer stream_answer(Engine& engine, Request request, const AnswerView& view);

/// The answer as history keeps it: with the engine's own ids, end-of-turn tokens left out, where
/// these say just the text; without ids (and empty) where they do not, as after a stop string.
OwnTurn own_turn(const Completion& completion, const std::vector<TokenId>& stop_tokens,
                 const Tokenizer& tokenizer);

}  // namespace hyb::app
