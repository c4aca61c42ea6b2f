#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/request.h"
#include "core/engine/runner.h"
#include "core/engine/stop_strings.h"
#include "core/memory/memory.h"
#include "core/text/tokenizer.h"

namespace hyb {

using Clock = std::chrono::steady_clock;

/// What all choices of one request share.
struct RequestTerms {
  RequestId id;
  Request request;
  StopStrings stop;
  std::int32_t length_max;
  const Tokenizer* tokenizer;  ///< null: no text
  Clock::time_point submitted;
};

/// Who came first; smaller is older. Preemption and waiting never change it.
struct Age {
  RequestId request;
  std::int32_t choice;
  auto operator<=>(const Age&) const = default;
};

/// One choice of a request while it runs: its tokens, its memory and what has been said so far.
/// Memory may be taken away between steps at any time; the tokens are all that is needed to go on.
class Sequence {
 public:
  /// The terms outlive the sequence.
  Sequence(const RequestTerms& terms, std::int32_t choice);

  Age age() const { return {terms_->id, choice_}; }
  std::int32_t tokens() const { return static_cast<std::int32_t>(tokens_.size()); }

  /// Tokens known and not yet run, as far as the sequence may run now.
  std::int32_t pending() const;

  /// Stops short of the last prompt token until released from it: there the other choices join.
  void hold_at_prompt_end() { holds_at_prompt_end_ = true; }
  void go_on() { holds_at_prompt_end_ = false; }
  bool at_prompt_end() const { return holds_at_prompt_end_ && pending() == 0; }

  Memory& memory() { return memory_; }
  const Memory& memory() const { return memory_; }
  void start(Memory memory);
  void release() { memory_ = Memory(); }

  /// The next `count` pending tokens; valid until the sequence changes.
  Span span(std::int32_t count) const;

  /// The step that held span(count) is done. Times are of the step's begin and end.
  void ran(std::int32_t count, Clock::time_point begin);

  /// Appends a token and returns the text that is certain by now; finished() may become true.
  std::string accept(const SampledToken& sampled, Clock::time_point now);

  /// Ends the sequence from outside and returns the text held back.
  std::string end(FinishReason reason);

  bool finished() const { return finished_; }

  /// Once, when finished.
  Completion take_completion();

 private:
  std::int32_t generated() const { return tokens() - prompt_tokens_; }
  bool is_stop_token(TokenId token) const;
  std::string say(std::string_view text);
  std::string flush();

  const RequestTerms* terms_;
  std::int32_t choice_;
  std::int32_t prompt_tokens_;
  SamplingParams sampling_;
  std::vector<TokenId> tokens_;
  Memory memory_;
  bool holds_at_prompt_end_ = false;
  bool finished_ = false;

  std::int32_t ran_max_ = 0;  ///< positions below it were run or resumed at least once
  std::optional<TextStream> text_;
  StopSearch stop_search_;
  Completion completion_;
  Clock::time_point first_span_, first_token_;
};

}  // namespace hyb
