#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/machine/environment.h"
#include "app/request/prompt.h"
#include "app/ui/progress.h"
#include "core/base/json.h"
#include "core/engine/engine.h"
#include "core/engine/request.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// The words of OpenAI's API for answers: what `hyb run --json` prints and `hyb batch` writes.
enum class AnswerKind : std::uint8_t { chat, text };

struct ResponseHead {
  AnswerKind kind;
  std::string id;     ///< "chatcmpl-..." or "cmpl-..."
  std::string model;  ///< as the user named it
  std::int64_t created_s;
  AnswerStart start = {};  ///< of all completions
};

/// "drafts 60 of 72 accepted (by position 95.0, 80.0 %), 3.4 tokens a step, made in 0.02 s": where
/// there were some.
std::string drafts_text(const SpeculationStats& stats);

/// A chat.completion or text_completion object with one choice per completion. A chat's thought is
/// its message's reasoning_content, next to the content; an answer without one has no such key.
/// Calls are its tool_calls, their ids made of the response's; the finish_reason of an answer with
/// some that ended by itself is tool_calls, and its content is null where calls are all of it.
/// Log-probabilities are in the chat form ({"content": [...]}) for both kinds; `bytes` are a
/// token's own, also where they are a part of a character only. A completion's have OpenAI's lists
/// beside it: tokens, token_logprobs, top_logprobs (the drawn token is always among them) and
/// text_offset, in characters of the choice's text. `usage` holds OpenAI's three counts,
/// prompt_tokens_details.cached_tokens, which is reused_tokens, and
/// ours, of the prompt: reused_tokens, where they came from (reused_from) and, where that was
/// not exact, reused_precision; and prefilled_tokens of all choices together: each but the first
/// runs the last token at least. Where there were drafts it has completion_tokens_details.
/// `tokenizer` spells tokens.
Json response_json(const ResponseHead& head, std::span<const Completion> completions,
                   const Tokenizer& tokenizer);

/// Keeps what a request's choices came to.
class Collector : public Sink {
 public:
  explicit Collector(std::int32_t choices)
      : completions_(static_cast<std::size_t>(choices)), open_(choices) {}

  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId, std::int32_t choice, const Completion& completion) override {
    completions_[static_cast<std::size_t>(choice)] = completion;
    --open_;
  }

  bool done() const { return open_ == 0; }
  const std::vector<Completion>& completions() const { return completions_; }

 private:
  std::vector<Completion> completions_;
  std::int32_t open_;
};

/// Result of a request.
struct Answer {
  Completion completion;
  SpeculationStats speculation = {};  ///< of the engine, while it worked on this
  bool was_stopped = false;           ///< by Ctrl-C or another signal
  bool stdout_is_closed = false;      ///< its reader has gone
};

/// Treatment of the thought that an answer begins with.
enum class ThoughtView : std::uint8_t {
  hidden,  ///< left out, with its markers and the white space after it
  plain,   ///< as the model gives it: where the prompt has begun it, without its first marker
  whole,   ///< the same with that marker, so that a reader finds both
  dimmed   ///< escape sequences around it, its markers included
};

/// Options of how an answer's text is shown.
struct AnswerView {
  bool sanitizes = false;       ///< made harmless to a terminal
  bool wraps = false;           ///< at words, to the width of stdout's terminal
  bool shows_markdown = false;  ///< the answer itself as what its marks mean; implies wraps
  ThoughtView thoughts = ThoughtView::plain;
  AnswerStart start = {};
  std::function<void(std::string_view)> heard = {};  ///< called with the text as the model gives it
};

/// On this stdout. `shows_thoughts` is --thoughts; by default a terminal shows them and
/// nothing else does.
AnswerView stdout_view(const Environment& environment, std::optional<bool> shows_thoughts);

/// Runs a request until the sink has all of it or, when `is_unwanted` says so before a step,
/// cancels it. Where stderr is a terminal a person waits: after a while `progress` shows how much
/// of the prompt was read, in chunks short enough for Ctrl-C to take effect soon, which is
/// acknowledged at once. On errors the engine is left idle.
void run_request(Engine& engine, Request request, Sink& sink, ProgressLine& progress,
                 const std::function<bool()>& is_done, const std::function<bool()>& is_unwanted);

/// A line for the time until an answer begins.
ProgressLine answer_progress();

/// Runs a request to its end and writes its text to stdout as it comes; a line break follows when
/// the text does not end in one. A signal to stop ends the answer with what there is; the signal
/// stays raised. Warns where a hidden thought was all that came. On errors the engine is left idle.
Answer stream_answer(Engine& engine, Request request, const AnswerView& view);

/// The answer as history keeps it: with the engine's own ids, end-of-turn tokens left out, where
/// these say just the text; without ids (and empty) where they do not, as after a stop string.
OwnTurn own_turn(const Completion& completion, const std::vector<TokenId>& stop_tokens,
                 const Tokenizer& tokenizer);

}  // namespace hyb::app
