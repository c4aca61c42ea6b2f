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

/// Says what a waiting sequence waits for, besides memory: what its tokens have elsewhere.
enum class Wait : std::uint8_t {
  none,  ///< that was not looked up yet
  tier,  ///< a snapshot comes from a tier
  copy,  ///< one is copied from the memory of the other side
  over   ///< nothing more comes
};

/// One choice of a request while it runs: its tokens, its memory and its text so far. Memory may be
/// taken away between steps at any time; the tokens are enough to continue.
class Sequence {
 public:
  /// The terms outlive the sequence.
  Sequence(const RequestTerms& terms, std::int32_t choice);

  ArrivalOrder age() const { return {terms_->id, choice_}; }
  const Request& request() const { return terms_->request; }
  std::int32_t tokens() const { return static_cast<std::int32_t>(tokens_.size()) - drafts_; }

  /// The prompt and what was drawn: the key of this sequence's snapshots.
  std::span<const TokenId> known() const {
    return std::span(tokens_).first(static_cast<std::size_t>(tokens()));
  }
  std::span<const TokenId> prompt() const {
    return known().first(static_cast<std::size_t>(prompt_tokens_));
  }

  /// Tokens known and not yet run, as far as the sequence may run now.
  std::int32_t pending() const {
    const std::int32_t goal = holds_at_prompt_end_ ? prompt_tokens_ - 1 : tokens();
    return goal - memory_.length();
  }

  /// The same, limited to what its request allows in one step.
  std::int32_t pending_in_step() const;

  /// Most drafts that may follow its pending token in one step: it runs no token after its last
  /// one, and none after a point where a snapshot is wanted. 0 before its answer has begun.
  std::int32_t draft_room() const;
  /// Sets what may be drawn after its pending token, in this order, until release() or the end of
  /// the step: accept() takes the drafts one by one and drops what is left at the first wrong one.
  void set_drafts(std::span<const TokenId> drafts);
  std::int32_t drafts() const { return drafts_; }
  void drop_drafts();
  const TokenMasks& masks() const { return masks_; }
  /// Drafts that may be drawn instead of those set before, whose first `shared` are those of an
  /// earlier path: they are dropped together.
  void add_branch(std::span<const TokenId> drafts, std::int32_t shared);
  /// When the token is not the next draft: makes the branch that has the drafts accepted so far
  /// and then this one the sequence's own drafts. Returns its number; nullopt: there is none.
  std::optional<std::int32_t> take_branch(const SampledToken& sampled);
  /// Returns whether this is the next draft.
  bool is_drafted(const SampledToken& sampled) const;

  /// Stops before the last prompt token until go_on(): there the other choices join.
  void hold_at_prompt_end() { holds_at_prompt_end_ = true; }
  void go_on() { holds_at_prompt_end_ = false; }
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
  bool decodes() const { return pending() == 1 && !is_unanswered(); }
  /// Returns whether it runs on after the next token that is drawn, unless that ends it.
  bool goes_on_after_next() const {
    return tokens() + 1 < length_last() && !terms_->request.prefill_only;
  }
  /// Releases its memory; what there is elsewhere is looked up again.
  void release() {
    drop_drafts();
    memory_ = Memory();
    wait_ = Wait::none;
    ++releases_;
  }
  std::int64_t releases() const { return releases_; }
  Memory take_memory() { return std::move(memory_); }

  /// Sets where snapshots are wanted, ascending. Those before length() are not needed any more.
  void set_cuts(std::vector<Cut> cuts) { cuts_ = std::move(cuts); }
  const std::vector<Cut>& cuts() const { return cuts_; }
  void add_cut(const Cut& cut);
  bool is_cut_at(std::int32_t length) const;
  /// The first cut after `length`, or the end of the sequence.
  std::int32_t next_cut(std::int32_t length) const;
  /// The place of the cut at the sequence's length, returned once.
  std::optional<SnapshotPlace> take_cut();

  /// Waits for another's snapshot; nullopt: no longer.
  void follow(const std::optional<PrefixOwner>& prefix_owner);
  const std::optional<PrefixOwner>& prefix_owner() const { return prefix_owner_; }

  Wait wait() const { return wait_; }
  void set_wait(Wait wait) { wait_ = wait; }
  bool awaits_snapshot() const { return wait_ == Wait::tier || wait_ == Wait::copy; }
  /// Leading tokens that the tier has seen, with or without a snapshot.
  std::int32_t known_to_tier() const { return known_to_tier_; }
  void set_known_to_tier(std::int32_t tokens) { known_to_tier_ = tokens; }

  /// No token was drawn yet.
  bool is_unanswered() const { return generated() == 0; }

  /// Makes `span` the next `count` pending tokens, after `cuts` of the cuts reserved in its memory,
  /// and its drafts after the last one; valid until the sequence changes.
  void fill(Span& span, std::int32_t count, std::int32_t cuts = 0);
  /// The same with a branch's drafts, after the one pending token. After fill() of the same step.
  void fill_branch(Span& span, std::int32_t branch);

  /// While its last token runs: whether another token will be drawn and run, unless the next one
  /// ends the answer; no snapshot is wanted between the two, and its draw depends on nothing that
  /// is not known yet.
  bool is_predictable() const;
  /// For such a sequence: whether it continues after this token, unless its text ends it.
  bool continues_after(const SampledToken& sampled) const {
    return sampled.finite && !is_stop_token(sampled.token);
  }
  /// Makes `span` the token to come, for Runner::prepare; valid until the sequence changes.
  void fill_next(Span& span) const;

  /// A step that ran `count` tokens of it has ended; it was launched at `begin`. Called once per
  /// piece where cuts were reserved. The last `accepted` of them were drafts.
  void ran(std::int32_t count, Clock::time_point begin, std::int32_t accepted = 0);
  /// After a step with this many drafts.
  void count_drafts(std::int32_t drafts, std::int32_t accepted);

  /// A prefill_only sequence has nothing left to run.
  bool is_prefilled() const { return terms_->request.prefill_only && pending() == 0; }
  void end_prefill(Clock::time_point now);

  /// Appends a token and returns the text that is certain now; finished() may become true.
  std::string accept(const SampledToken& sampled, Clock::time_point now);

  /// Ends the sequence from outside and returns the text held back.
  std::string end(FinishReason reason);
  /// The same for an error, with its message.
  std::string fail(std::string error);

  bool finished() const { return finished_; }

  /// Once, when finished.
  Completion take_completion();

 private:
  std::int32_t generated() const { return tokens() - prompt_tokens_; }
  SampleRow sample_row_in(std::span<const TokenId> tokens, std::int32_t drafts) const;
  std::int32_t length_last() const;
  ReuseLimit reuse_limit() const;
  bool is_stop_token(TokenId token) const;
  std::string push_text(std::string_view text);
  std::string searched(const std::vector<AnswerScanner::Piece>& pieces);
  std::string flush();

  const RequestTerms* terms_;
  std::int32_t choice_;
  std::int32_t prompt_tokens_;
  SamplingParams sampling_;
  TokenMasks masks_;
  /// Instead of the drafts.
  struct Branch {
    std::vector<TokenId> tokens;  ///< the sequence's, and then the branch's
    std::int32_t shared;
  };

  std::vector<TokenId> tokens_;  ///< and drafts after them
  std::int32_t drafts_ = 0;
  std::vector<Branch> branches_;
  Memory memory_;
  std::vector<Cut> cuts_;
  std::optional<PrefixOwner> prefix_owner_;
  Wait wait_ = Wait::none;
  std::int32_t known_to_tier_ = 0;
  std::int64_t releases_ = 0;
  bool was_started_ = false;
  bool is_under_way_ = false;
  bool reuse_is_tracked_ = false;
  bool holds_at_prompt_end_ = false;
  bool finished_ = false;

  std::int32_t ran_max_ = 0;  ///< positions below it were run or resumed at least once
  std::optional<TextStream> text_;
  StopSearch stop_search_;
  std::optional<AnswerScanner> scanner_;  ///< where some of the text is not searched
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
