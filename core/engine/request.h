#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/engine/sampling.h"

namespace hyb {

enum class RequestId : std::int64_t {};

/// What a person asked.
struct Request {
  std::vector<TokenId> prompt;
  std::int32_t max_tokens = -1;  ///< 1 or more; -1: up to the limit of the engine
  SamplingParams sampling;
  std::vector<std::string> stop;     ///< the answer ends before the first of these
  std::vector<TokenId> stop_tokens;  ///< the model's end-of-turn tokens; not part of the text
  bool ignore_eos = false;           ///< stop_tokens are ordinary tokens
  std::int32_t choices = 1;          ///< n answers; choice i draws with seed + i
};

/// What an engine can take on.
struct RequestLimits {
  std::int32_t vocab;
  std::int32_t length_max;  ///< of prompt and answer together
  bool has_text;            ///< there is a tokenizer
};

inline constexpr std::int32_t choices_max = 128;

/// Throws Error(usage) when the request can never run: it says which rule, by how much it is broken
/// and what to do.
void check(const Request& request, const RequestLimits& limits);

enum class FinishReason : std::uint8_t { stop, length, cancelled, error };

/// "stop", "length", "cancelled", "error": OpenAI's words and ours.
std::string_view name_of(FinishReason reason);

struct TokenEvent {
  TokenId token;
  float logprob;
  std::vector<TokenLogprob> top;
};

/// Counts and times of one choice. Of a choice that drew a token,
/// reused_tokens + prefilled_tokens = prompt_tokens.
struct Usage {
  std::int32_t prompt_tokens = 0;
  std::int32_t reused_tokens = 0;      ///< of the prompt, resumed instead of run
  std::int32_t prefilled_tokens = 0;   ///< of the prompt, run through the model
  std::int32_t recomputed_tokens = 0;  ///< run again because memory was taken away meanwhile
  std::int32_t completion_tokens = 0;
  std::chrono::nanoseconds queued{0};   ///< submit -> first span
  std::chrono::nanoseconds prefill{0};  ///< first span -> first token
  std::chrono::nanoseconds decode{0};   ///< first token -> last token
};

struct Completion {
  FinishReason reason = FinishReason::stop;
  std::string error;               ///< why, when reason is error
  std::string text;                ///< the whole answer, without the stop string
  std::vector<TokenId> tokens;     ///< the engine's own ids, end-of-turn token included when drawn
  std::vector<TokenEvent> events;  ///< per token, only when logprobs were asked for
  Usage usage;
};

/// Hears of a request's progress while Engine::step or Engine::cancel runs. Text comes in whole
/// characters, and text that may turn out to be a stop string is held back until decided: all
/// on_text of a choice together are its Completion::text, whatever the reason it ended. After the
/// on_finish of a request's last choice the engine never uses the sink again. A sink may call
/// submit() and cancel(), not step(). When it throws, the exception leaves the call that was
/// running; the event counts as delivered, the others are delivered by the next step() or cancel().
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_text(RequestId request, std::int32_t choice, std::string_view text) = 0;
  virtual void on_finish(RequestId request, std::int32_t choice, const Completion& completion) = 0;
};

}  // namespace hyb
