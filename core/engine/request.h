#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/base/sampling.h"
#include "core/engine/constraint_cache.h"
#include "core/memory/prefix/prefix_tree.h"
#include "core/text/answer_scanner.h"

namespace hyb {

enum class RequestId : std::int64_t {};

/// A prompt and how to answer it.
struct Request {
  std::vector<TokenId> prompt;
  std::int32_t max_tokens = -1;  ///< 1 or more; -1: up to the limit of the engine
  SamplingParams sampling;
  std::vector<std::string> stop;     ///< the answer ends before the first of these
  AnswerStart start;                 ///< those in thoughts and markers end nothing
  std::vector<TokenId> stop_tokens;  ///< the model's end-of-turn tokens; not part of the text
  bool ignore_eos = false;           ///< stop_tokens are ordinary tokens
  /// Returns whether the token ends an answer.
  bool ends_at(TokenId token) const {
    return !ignore_eos && std::ranges::find(stop_tokens, token) != stop_tokens.end();
  }
  ConstraintCache::Use rule = {};  ///< of the answer, and where it ends: without stop strings
  std::vector<TokenId> allowed =
      {};                       ///< all that may be drawn; empty: all there are. Not beside a rule
  std::int32_t min_tokens = 0;  ///< no stop token comes earlier, but where a rule has nothing else
  /// Returns whether rows have masks, which what is drawn may decide.
  bool is_bound() const { return rule.get() != nullptr || !allowed.empty() || min_tokens > 0; }
  std::int32_t choices = 1;  ///< n answers; choice i draws with seed + i

  /// Lengths of the prompt, ascending, at which a message ends: later prompts are likely to start
  /// with the same tokens up to there, so a snapshot is wanted there.
  std::vector<std::int32_t> message_ends;
  /// Runs the prompt, leaves a snapshot at its end and ends with FinishReason::stop and no token: a
  /// later prompt that starts with this one runs its own tokens only. One choice.
  bool prefill_only = false;
  /// Most of its tokens in one step, where that is less than the engine's limit; 0: the engine's
  /// limit.
  std::int32_t chunk_tokens = 0;
  /// Says what a step with its tokens is to take: chunks are as long as earlier steps say, from
  /// ChunkPace::tokens_at_first on. For a person that may cancel it. 0, and where chunks of other
  /// lengths may change a bit (PrefixCacheOptions::pages_are_exact): as long as steps can be.
  std::chrono::nanoseconds chunk_time{0};
  bool token_times = false;  ///< Completion::token_times is wanted
  /// False: leaves nothing in the prefix tree. It may still resume from what is there.
  bool keep_snapshots = true;
  /// The requests to come are known, and they start with at most this many tokens of the prompt: it
  /// leaves snapshots at message_ends and nowhere else, and when it has ended, those further on its
  /// path are evicted first. Empty: not known.
  std::optional<std::int32_t> needed_later;
};

/// Describes what an engine can run.
struct RequestLimits {
  std::int32_t vocab;
  std::int32_t length_max;  ///< of prompt and answer together
  bool has_text;            ///< there is a tokenizer
};

inline constexpr std::int32_t choices_max = 128;

/// Throws Error(usage) when the request can never run: with the rule, by how much it is broken and
/// what to do.
void check(const Request& request, const RequestLimits& limits);

enum class FinishReason : std::uint8_t { stop, length, cancelled, error };

/// "stop", "length", "cancelled", "error": OpenAI's words and two more.
std::string_view name_of(FinishReason reason);

struct TokenEvent {
  TokenId token;
  float logprob;
  std::vector<TokenLogprob> top;
};

/// Why no more of a prompt was reused.
enum class ReuseLimit : std::uint8_t {
  off,              ///< the prefix tree remembers nothing
  nothing_known,    ///< no earlier sequence started with its tokens
  new_text,         ///< all that an earlier sequence had was reused; the rest is new
  no_snapshot,      ///< an earlier sequence had more of it, but there is no snapshot (any more)
  last_token,       ///< all but the last token, which is always run: the answer is drawn from it
  memory_was_taken  ///< reused or run before, and run again since: memory was short
};

/// A short phrase such as "nothing known".
std::string_view text_of(ReuseLimit limit);

/// "memory", "disk", "session": for answers in JSON.
std::string_view name_of(SnapshotSource source);

/// Drafts of tokens that were verified.
struct DraftCounts {
  std::int64_t steps = 0;     ///< of one sequence each, that had some
  std::int64_t accepted = 0;  ///< that were drawn
  std::int64_t rejected = 0;  ///< all others

  bool operator==(const DraftCounts&) const = default;
  DraftCounts& operator+=(const DraftCounts& more);
  /// Tokens that a step with drafts yields on average; 0: there was none.
  double acceptance_length() const;
};

/// Counts and times of one choice. Of a choice that drew a token, and of a prefill_only request
/// that ended by itself, reused_tokens + prefilled_tokens = prompt_tokens.
struct Usage {
  std::int32_t prompt_tokens = 0;
  std::int32_t matched_tokens = 0;     ///< of the prompt, that an earlier sequence had too
  std::int32_t reused_tokens = 0;      ///< of the prompt, resumed instead of run
  std::int32_t prefilled_tokens = 0;   ///< of the prompt, run through the model
  std::int32_t recomputed_tokens = 0;  ///< run again after a preemption
  std::int32_t completion_tokens = 0;
  DraftCounts drafts;
  ReuseLimit reuse_limit = ReuseLimit::off;
  std::optional<SnapshotPlace> resumed_at;    ///< place of the snapshot that was used
  std::optional<SnapshotSource> reused_from;  ///< where the reused bytes came from
  bool resumed_packed = false;                ///< that or a later one was an int8 snapshot
  bool waited_for_prefix = false;             ///< another request was running the same prefix
  std::chrono::nanoseconds queued{0};         ///< submit -> first span
  std::chrono::nanoseconds prefill{0};        ///< first span -> first token
  std::chrono::nanoseconds decode{0};         ///< first token -> last token
};

struct Completion {
  FinishReason reason = FinishReason::stop;
  std::string error;               ///< why, when reason is error
  std::string text;                ///< the whole answer, without the stop string
  std::vector<TokenId> tokens;     ///< the engine's own ids, end-of-turn token included when drawn
  std::vector<TokenEvent> events;  ///< per token, only when logprobs were requested
  /// Says when each token was drawn, by the engine's clock; only on request.
  std::vector<std::chrono::steady_clock::time_point> token_times;
  Usage usage;
};

/// Receives a request's progress while Engine::step or Engine::cancel runs. Text comes in whole
/// characters, and text that may turn out to be a stop string is held back until decided: all
/// on_text of a choice together are its Completion::text, whatever the reason it ended. After the
/// on_finish of a request's last choice the engine never uses the sink again. A sink may call
/// submit() and cancel(), not step(). What it throws is passed on by the running call; the event
/// counts as delivered, the others are delivered by the next step() or cancel().
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_text(RequestId request, std::int32_t choice, std::string_view text) = 0;
  virtual void on_finish(RequestId request, std::int32_t choice, const Completion& completion) = 0;
};

}  // namespace hyb
