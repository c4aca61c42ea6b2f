#include "core/engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hyb {
namespace {

ReuseLimit reuse_limit(const Usage& usage, bool is_tracked) {
  if (usage.recomputed_tokens > 0) return ReuseLimit::memory_was_taken;
  if (!is_tracked) return ReuseLimit::off;
  if (usage.reused_tokens > 0 && usage.reused_tokens == usage.prompt_tokens - 1) {
    return ReuseLimit::last_token;
  }
  if (usage.matched_tokens > usage.reused_tokens) return ReuseLimit::no_snapshot;
  return usage.matched_tokens > 0 ? ReuseLimit::new_text : ReuseLimit::nothing_known;
}

}  // namespace

Sequence::Sequence(const RequestTerms& terms, std::int32_t choice)
    : terms_(&terms),
      choice_(choice),
      prompt_tokens_(static_cast<std::int32_t>(terms.request.prompt.size())),
      sampling_(terms.request.sampling),
      masks_(terms.request, terms.tokenizer, terms.vocab),
      tokens_(terms.request.prompt),
      stop_search_(terms.stop, terms.request.start) {
  sampling_.seed += static_cast<std::uint64_t>(choice);
  if (terms.tokenizer != nullptr) text_.emplace(*terms.tokenizer);
  completion_.usage.prompt_tokens = prompt_tokens_;
}

std::int32_t Sequence::draft_room() const {
  if (!decodes() || holds_at_prompt_end_ || request().prefill_only) return 0;
  return std::max(0, cuts_.next(memory_.length(), length_last() - 1) - tokens());
}

void Sequence::start(Memory memory, const Resumed& resumed) {
  memory_ = std::move(memory);
  awaited_.owner.reset();
  const std::int32_t reused = std::max(0, memory_.length() - ran_max_);
  Usage& usage = completion_.usage;
  usage.reused_tokens += reused;
  ran_max_ += reused;
  const bool is_slower = resumed.source != SnapshotSource::memory;
  if (reused > 0 && (is_slower || !usage.reused_from)) usage.reused_from = resumed.source;
  if (resumed.snapshot != nullptr && resumed.snapshot->checkpoint.packed() != no_packed) {
    usage.resumed_packed = true;  // also after a preemption
  }
  if (was_started_) return;
  was_started_ = true;
  tokens_.reserve(length_last());
  reuse_is_tracked_ = resumed.is_tracked;
  usage.matched_tokens = std::min(resumed.matched, prompt_tokens_);
  if (resumed.snapshot != nullptr) usage.resumed_at = resumed.snapshot->place;
}

/// Its greatest possible length.
std::int32_t Sequence::length_last() const {
  const std::int32_t room = std::max(0, terms_->length_max - prompt_tokens_);
  const std::int32_t answer = terms_->request.max_tokens;
  return prompt_tokens_ + (answer < 0 ? room : std::min(answer, room));
}

void Sequence::fill(Span& span, std::int32_t count, std::int32_t cuts) {
  const auto [begin, read_slot, write_slot] = memory_.piece(cuts);
  const std::int32_t drafts = tokens_.drafts();
  span.tokens = tokens_.all().subspan(static_cast<std::size_t>(begin),
                                      static_cast<std::size_t>(count + drafts));
  span.position = begin;
  span.tables = memory_.tables();
  span.read_slot = read_slot;
  span.write_slot = write_slot;
  span.drafts = drafts;
  span.ring_entries = cuts == 0 ? memory_.ring_entries() : 0;
  span.ring = drafts > 0 || span.ring_entries > 0 ? memory_.ring() : no_ring;
  span.branch_ring = no_ring;
  span.samples.clear();
  if (begin + count < tokens() || terms_->request.prefill_only) return;
  for (std::int32_t after = 0; after <= drafts; ++after) {
    span.samples.push_back(sample_row_in(tokens_.all(), after, count - 1 + after));
  }
  masks_.clear();
  masks_.set(span.samples, tokens_.all().last(static_cast<std::size_t>(drafts)));
}

void Sequence::fill_branch(Span& span, std::int32_t branch) {
  const auto& [tokens, known, shared] = tokens_.branches().at(static_cast<std::size_t>(branch));
  const Memory::Branch& own = memory_.branch(branch);
  span.tokens = std::span(tokens).subspan(static_cast<std::size_t>(known - 1));
  span.position = memory_.length();
  span.tables = own.tables;
  span.read_slot = memory_.read_slot();
  span.write_slot = no_slot;
  span.drafts = static_cast<std::int32_t>(tokens.size()) - known;
  span.ring_entries = memory_.ring_entries();
  span.ring = memory_.ring();
  span.branch_ring = own.ring;
  span.samples.clear();
  for (std::int32_t drafts = shared + 1; drafts <= span.drafts; ++drafts) {
    span.samples.push_back(sample_row_in(tokens, drafts, drafts));
  }
  masks_.set(span.samples, span.tokens.last(static_cast<std::size_t>(span.drafts)));
}

bool Sequence::is_predictable() const {
  if (pending() != 1 || holds_at_prompt_end_ || !goes_on_after_next()) return false;
  return !has_penalties(sampling_) && !request().is_bound() &&
         !cuts_.contains(memory_.length() + 1);
}

/// The running step writes the slot that this one reads.
void Sequence::fill_next(Span& span) const {
  span.tokens = known().last(1);
  span.position = memory_.length() + 1;
  span.tables = memory_.tables();
  span.read_slot = memory_.write_slot();
  span.write_slot = memory_.write_slot();
  span.drafts = 0;
  span.ring = no_ring;
  span.branch_ring = no_ring;
  span.ring_entries = 0;
  span.samples.assign(1, sample_row_in(tokens_.all(), 0, 0));
  ++span.samples.back().draw;
}

/// Describes the row at `token` of a span, after this number of the drafts.
SampleRow Sequence::sample_row_in(std::span<const TokenId> tokens, std::int32_t drafts,
                                  std::int32_t token) const {
  return {.token = token,
          .params = &sampling_,
          .draw = static_cast<std::uint64_t>(generated() + drafts),
          .history = tokens.first(static_cast<std::size_t>(this->tokens() + drafts)),
          .prompt_tokens = prompt_tokens_};
}

void Sequence::ran(std::int32_t count, Clock::time_point begin, const DraftCounts& drafts) {
  Usage& usage = completion_.usage;
  if (first_span_ == Clock::time_point{}) {
    first_span_ = begin;
    usage.queued = first_span_ - terms_->submitted;
  }
  const std::int32_t from = memory_.length();
  memory_.keep(count, static_cast<std::int32_t>(drafts.accepted));
  usage.drafts += drafts;
  const std::int32_t again = std::clamp(ran_max_ - from, 0, count);
  usage.recomputed_tokens += again;
  usage.prefilled_tokens += std::clamp(prompt_tokens_ - (from + again), 0, count - again);
  ran_max_ = std::max(ran_max_, from + count);
}

bool Sequence::end_if_prefilled(Clock::time_point now) {
  if (!request().prefill_only || pending() != 0) return false;
  completion_.usage.prefill = now - first_span_;
  static_cast<void>(end(FinishReason::stop));
  return true;
}

std::string Sequence::accept(const SampledToken& sampled, Clock::time_point now) {
  if (!sampled.finite && !masks_.error().empty()) return end(FinishReason::error, masks_.error());
  if (!sampled.finite && request().is_bound()) {
    return end(FinishReason::error,
               fmt::format("no token that may follow can be drawn at position {}: the vocabulary "
                           "lacks the bytes that the rule needs, or the logits are NaN",
                           tokens() - 1));
  }
  if (!sampled.finite) {
    return end(
        FinishReason::error,
        fmt::format("the model produced NaN logits at position {}: a weight is damaged or "
                    "too large for this type; download the weights again, or try --dtype f32",
                    tokens() - 1));
  }
  Usage& usage = completion_.usage;
  if (generated() == 0) {
    first_token_ = now;
    usage.prefill = first_token_ - first_span_;
  }
  usage.decode = now - first_token_;
  ++usage.completion_tokens;
  tokens_.accept(sampled);
  if (terms_->request.token_times) completion_.token_times.push_back(now);
  if (sampling_.logprobs >= 0) {
    completion_.events.push_back(
        {sampled.token, sampled.logprob, {sampled.top.begin(), sampled.top.end()}});
  }
  if (!masks_.accept(sampled.token)) {
    if (!masks_.error().empty()) return end(FinishReason::error, masks_.error());
    return end(FinishReason::error,
               "the end of the thought and the start of the answer came in one token, and the "
               "rule of the answer refuses the latter; answer without a thought (--think off)");
  }
  if (request().ends_at(sampled.token) || masks_.has_ended()) return end(FinishReason::stop);

  std::string text = text_ ? stop_search_.push(text_->push(sampled.token)) : std::string();
  completion_.text += text;
  if (stop_search_.found()) return text + end(FinishReason::stop);
  if (generated() == terms_->request.max_tokens || tokens() >= terms_->length_max) {
    text += end(FinishReason::length);
  }
  return text;
}

std::string Sequence::end(FinishReason reason, std::string error) {
  require(!finished_, "sequence: it ends once");
  tokens_.drop_drafts();
  std::string text = text_ ? stop_search_.push(text_->flush()) : std::string();
  text += stop_search_.flush();
  completion_.text += text;
  completion_.error = std::move(error);
  // The last character may have completed a stop string.
  const bool stopped = reason == FinishReason::length && stop_search_.found();
  completion_.reason = stopped ? FinishReason::stop : reason;
  finished_ = true;
  return text;
}

Completion Sequence::take_completion() {
  require(finished_, "sequence: a completion is taken when it is finished");
  completion_.tokens.assign(known().begin() + prompt_tokens_, known().end());
  completion_.usage.reuse_limit = reuse_limit(completion_.usage, reuse_is_tracked_);
  completion_.usage.waited_for_prefix = awaited_.had_owner;
  return std::move(completion_);
}

std::optional<PrefixOwner> prefix_owner_for(const Sequence& newcomer, std::int32_t resumable,
                                            std::int32_t tokens_min,
                                            std::span<Sequence* const> running) {
  std::optional<PrefixOwner> best;
  const std::int32_t last = newcomer.tokens() - 1;  // is always run
  const std::int32_t enough = resumable + tokens_min;
  std::int32_t worthwhile = enough;
  for (const Sequence* other : running) {
    if (!(other->age() < newcomer.age()) || !other->request().keep_snapshots) continue;
    // Comparing one token first avoids most comparisons.
    const std::int32_t stands = other->memory().length();
    const std::int32_t needed = std::max(worthwhile, stands + 1);
    if (needed > last || needed > other->tokens()) continue;
    const auto probe = static_cast<std::size_t>(needed - 1);
    if (other->known()[probe] != newcomer.known()[probe]) continue;
    const std::int32_t common = std::min(common_prefix(other->known(), newcomer.known()), last);
    if (common < needed) continue;
    const std::int32_t behind = std::max({enough - 1, common - tokens_min, stands});
    best = PrefixOwner{.age = other->age(), .length = other->cuts().next(behind, common)};
    worthwhile = common + 1;
  }
  return best;
}

bool is_awaited(const PrefixOwner& prefix_owner, std::span<Sequence* const> running) {
  const auto found = std::ranges::lower_bound(running, prefix_owner.age, {}, &Sequence::age);
  return found != running.end() && (*found)->age() == prefix_owner.age &&
         (*found)->memory().length() < prefix_owner.length;
}

}  // namespace hyb
