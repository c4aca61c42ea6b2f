#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "app/thoughts.h"
#include "core/base/json.h"
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

/// A chat.completion or text_completion object with one choice per completion. A chat's thought is
/// its message's reasoning_content, beside the content; an answer without one has no such key.
/// Log-probabilities are in the chat form ({"content": [...]}) for both kinds. `usage` holds
/// OpenAI's three counts and ours, of the prompt: reused_tokens, where they came from (reused_from)
/// and, where that was not exact, reused_precision; and prefilled_tokens of all choices together:
/// each but the first runs the last token at least. `tokenizer` spells tokens.
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

}  // namespace hyb::app
