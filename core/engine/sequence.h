#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/drafted_tokens.h"
#include "core/engine/request.h"
#include "core/engine/runner.h"
#include "core/engine/stop_strings.h"
#include "core/engine/token_masks.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"
#include "core/text/tokenizer.h"

namespace hyb {

using Clock = std::chrono::steady_clock;

/// Holds what all choices of one request share.
struct RequestTerms {
  RequestId id;
  Request request;
  StopStrings stop = {};
  std::int32_t length_max;
  const Tokenizer* tokenizer;  ///< null: no text
  std::int32_t vocab = 0;
  Clock::time_point submitted;
};

/// The order of arrival; smaller is older. Preemption and waiting never change it.
struct ArrivalOrder {
  RequestId request;
  std::int32_t choice;
  auto operator<=>(const ArrivalOrder&) const = default;
};

/// Says where a sequence has the tokens from that it need not run.
struct Resumed {
  std::int32_t matched = 0;            ///< tokens that an earlier sequence had too
  const Snapshot* snapshot = nullptr;  ///< the one resumed from; null: none of the prefix tree
  bool is_tracked = false;             ///< the prefix tree was searched at all
  SnapshotSource source = SnapshotSource::memory;  ///< of the snapshot
};

/// A sequence that is running a prefix that another one needs as well.
struct PrefixOwner {
  ArrivalOrder age;
  std::int32_t length;  ///< of the prefix: where the owner leaves a snapshot
};

/// Says what a waiting sequence waits for that its tokens have elsewhere.
enum class Wait : std::uint8_t {
  none,  ///< that was not looked up yet
  tier,  ///< a snapshot comes from a tier
  copy,  ///< one is copied from the memory of the other side
  over   ///< nothing more comes
};

/// What a sequence waits for besides memory, before it starts.
struct Awaited {
  Wait elsewhere = Wait::none;
  std::int32_t known_to_tier = 0;  ///< leading tokens it has seen, with or without a snapshot
  std::optional<PrefixOwner> owner = {};  ///< whose snapshot it waits for
  bool had_owner = false;                 ///< at any time

  bool comes() const { return elsewhere == Wait::tier || elsewhere == Wait::copy; }
};

/// One choice of a request while it runs: its tokens, its memory and its text so far. Memory may be
/// taken away between steps at any time; the tokens are enough to continue.
class Sequence {
 public:
  /// The terms outlive the sequence.
  Sequence(const RequestTerms& terms, std::int32_t choice);

  ArrivalOrder age() const { return {terms_->id, choice_}; }
  const Request& request() const { return terms_->request; }
  std::int32_t tokens() const { return tokens_.known(); }

  /// The prompt and what was drawn: the key of this sequence's snapshots.
  std::span<const TokenId> known() const {
    return tokens_.all().first(static_cast<std::size_t>(tokens()));
  }
  std::span<const TokenId> prompt() const {
    return known().first(static_cast<std::size_t>(prompt_tokens_));
  }

  /// Tokens known and not yet run, as far as the sequence may run now.
  std::int32_t pending() const {
    const std::int32_t goal = holds_at_prompt_end_ ? prompt_tokens_ - 1 : tokens();
    return goal - memory_.length();
  }

  /// Most drafts that may follow its pending token in one step: it runs no token after its last
  /// one, and none after a point where a snapshot is wanted. 0 before its answer has begun.
  std::int32_t draft_room() const;
  /// Its tokens with what may be drawn after the pending one, until release() or the end of the
  /// step: accept() takes the drafts one by one and drops what is left at the first wrong one.
  DraftedTokens& drafted() { return tokens_; }
  const TokenMasks& masks() const { return masks_; }

  /// While it is held it stops before the last prompt token: there the other choices join.
  void hold_at_prompt_end(bool is_held) { holds_at_prompt_end_ = is_held; }
  bool at_prompt_end() const { return holds_at_prompt_end_ && pending() == 0; }

  Memory& memory() { return memory_; }
  const Memory& memory() const { return memory_; }
  void start(Memory memory, const Resumed& resumed = {});
  bool was_started() const { return was_started_; }
  /// A step of the prefill lane runs it: its memory stays as it is until that has run.
  bool is_under_way() const { return is_under_way_; }
  void set_under_way(bool is_under_way) { is_under_way_ = is_under_way; }
  /// If prompts have a lane of their own, returns whether it runs in the other one, that of
  /// answers. Its first token is drawn where the last token of its prompt ran.
  bool decodes() const { return pending() == 1 && generated() > 0; }
  /// Returns whether it runs on after the next token that is drawn, unless that ends it.
  bool goes_on_after_next() const {
    return tokens() + 1 < length_last() && !terms_->request.prefill_only;
  }
  /// Releases its memory; what there is elsewhere is looked up again.
  void release() {
    tokens_.drop_drafts();
    memory_ = Memory();
    awaited_.elsewhere = Wait::none;
    ++releases_;
  }
  std::int64_t releases() const { return releases_; }

  /// Where snapshots are wanted.
  Cuts& cuts() { return cuts_; }
  const Cuts& cuts() const { return cuts_; }
  Awaited& awaited() { return awaited_; }

  /// Tokens that were drawn.
  std::int32_t generated() const { return tokens() - prompt_tokens_; }

  /// Makes `span` the next `count` pending tokens, after `cuts` of the cuts reserved in its memory,
  /// and its drafts after the last one; valid until the sequence changes.
  void fill(Span& span, std::int32_t count, std::int32_t cuts = 0);
  /// The same with a branch's drafts, after the one pending token. After fill() of the same step.
  void fill_branch(Span& span, std::int32_t branch);

  /// While its last token runs: whether another token will be drawn and run, unless the next one
  /// ends the answer; no snapshot is wanted between the two, and its draw depends on nothing that
  /// is not known yet.
  bool is_predictable() const;
  /// Makes `span` the token to come, for Runner::prepare; valid until the sequence changes.
  void fill_next(Span& span) const;

  /// A step that ran `count` tokens of it has ended; it was launched at `begin`. Called once per
  /// piece where cuts were reserved. The last tokens were the drafts that were accepted.
  void ran(std::int32_t count, Clock::time_point begin, const DraftCounts& drafts = {});

  /// Ends a prefill_only sequence that has nothing left to run. False: it is none.
  bool end_if_prefilled(Clock::time_point now);

  /// Appends a token and returns the text that is certain now; finished() may become true.
  std::string accept(const SampledToken& sampled, Clock::time_point now);

  /// Ends the sequence, for an error with its message, and returns the text held back.
  std::string end(FinishReason reason, std::string error = {});

  bool finished() const { return finished_; }

  /// Once, when finished.
  Completion take_completion();

 private:
  SampleRow sample_row_in(std::span<const TokenId> tokens, std::int32_t drafts,
                          std::int32_t token) const;
  std::int32_t length_last() const;

  const RequestTerms* terms_;
  std::int32_t choice_;
  std::int32_t prompt_tokens_;
  SamplingParams sampling_;
  TokenMasks masks_;
  DraftedTokens tokens_;
  Memory memory_;
  Cuts cuts_;
  Awaited awaited_;
  std::int64_t releases_ = 0;
  bool was_started_ = false;
  bool is_under_way_ = false;
  bool reuse_is_tracked_ = false;
  bool holds_at_prompt_end_ = false;
  bool finished_ = false;

  std::int32_t ran_max_ = 0;  ///< positions below it were run or resumed at least once
  std::optional<TextStream> text_;
  StopSearch stop_search_;
  Completion completion_;
  Clock::time_point first_span_, first_token_;
};

/// The running sequence whose prefix `newcomer`, which can resume at `resumable` without it, should
/// wait for: an older one that has yet to run a prefix that both have, at least `tokens_min` longer
/// than what can be resumed. The length is one at which that sequence wants a snapshot anyway,
/// where that costs the newcomer fewer than tokens_min. nullopt: there is none. Only older ones, so
/// no two wait for each other.
std::optional<PrefixOwner> prefix_owner_for(const Sequence& newcomer, std::int32_t resumable,
                                            std::int32_t tokens_min,
                                            std::span<Sequence* const> running);

/// Returns whether text may end it, so that its tokens say nothing of the next step until they are
/// text.
inline bool has_stop_strings(const Sequence& sequence) { return !sequence.request().stop.empty(); }

/// Returns whether the owner still runs and has not reached the end of the prefix.
bool is_awaited(const PrefixOwner& prefix_owner, std::span<Sequence* const> running);

}  // namespace hyb
