#include "core/engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hyb {
namespace {

/// The first point ahead of the owner, from `enough` to `length`, where a snapshot is wanted
/// anyway; else `length`.
std::int32_t agreed_length(const Sequence& prefix_owner, std::int32_t length, std::int32_t enough) {
  for (const Cut& cut : prefix_owner.cuts()) {
    if (cut.length > length) break;
    if (cut.length >= enough && cut.length > prefix_owner.memory().length()) return cut.length;
  }
  return length;
}

}  // namespace

Sequence::Sequence(const RequestTerms& terms, std::int32_t choice)
    : terms_(&terms),
      choice_(choice),
      prompt_tokens_(static_cast<std::int32_t>(terms.request.prompt.size())),
      sampling_(terms.request.sampling),
      masks_(terms.request, terms.tokenizer, terms.vocab),
      tokens_(terms.request.prompt),
      stop_search_(terms.stop) {
  sampling_.seed += static_cast<std::uint64_t>(choice);
  if (terms.tokenizer != nullptr) text_.emplace(*terms.tokenizer);
  if (!terms.stop.empty() && terms.request.start.may_think) scanner_.emplace(terms.request.start);
  completion_.usage.prompt_tokens = prompt_tokens_;
}

std::int32_t Sequence::pending_in_step() const {
  const std::int32_t chunk = terms_->request.chunk_tokens;
  return chunk > 0 ? std::min(pending(), chunk) : pending();
}

std::int32_t Sequence::draft_room() const {
  if (pending() != 1 || holds_at_prompt_end_ || terms_->request.prefill_only || is_unanswered()) {
    return 0;
  }
  std::int32_t room = length_last() - tokens() - 1;
  for (const Cut& cut : cuts_) {
    if (cut.length > memory_.length()) room = std::min(room, cut.length - tokens());
  }
  return std::max(room, 0);
}

void Sequence::set_drafts(std::span<const TokenId> drafts) {
  require(drafts_ == 0 && std::ssize(drafts) <= draft_room(), "sequence: drafts have room");
  tokens_.insert(tokens_.end(), drafts.begin(), drafts.end());
  drafts_ = static_cast<std::int32_t>(drafts.size());
}

void Sequence::drop_drafts() {
  tokens_.resize(static_cast<std::size_t>(tokens()));
  drafts_ = 0;
  branches_.clear();
}

void Sequence::add_branch(std::span<const TokenId> drafts, std::int32_t shared) {
  require(std::ssize(drafts) <= draft_room() && shared < std::ssize(drafts),
          "sequence: a branch has room, and a draft of its own");
  Branch& branch = branches_.emplace_back();
  branch.shared = shared;
  branch.tokens.reserve(known().size() + drafts.size());
  branch.tokens.assign(known().begin(), known().end());
  branch.tokens.insert(branch.tokens.end(), drafts.begin(), drafts.end());
}

std::optional<std::int32_t> Sequence::take_branch(const SampledToken& sampled) {
  if (!sampled.finite) return std::nullopt;
  const auto accepted = static_cast<std::size_t>(tokens());
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    std::vector<TokenId>& other = branches_[i].tokens;
    if (other.size() <= accepted || other[accepted] != sampled.token) continue;
    // All before the token that has not run yet is known to be the same.
    const auto from = static_cast<std::ptrdiff_t>(memory_.length());
    if (!std::equal(known().begin() + from, known().end(), other.begin() + from)) continue;
    drafts_ = static_cast<std::int32_t>(other.size() - accepted);
    tokens_.assign(other.begin(), other.end());
    return static_cast<std::int32_t>(i);
  }
  return std::nullopt;
}

bool Sequence::is_drafted(const SampledToken& sampled) const {
  return drafts_ > 0 && sampled.finite &&
         tokens_[static_cast<std::size_t>(tokens())] == sampled.token;
}

void Sequence::start(Memory memory, const Resumed& resumed) {
  memory_ = std::move(memory);
  prefix_owner_.reset();
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
  tokens_.reserve(static_cast<std::size_t>(length_last()));
  reuse_is_tracked_ = resumed.is_tracked;
  usage.matched_tokens = std::min(resumed.matched, prompt_tokens_);
  if (resumed.snapshot == nullptr) return;
  usage.resumed_at = resumed.snapshot->place;
}

/// Its greatest possible length.
std::int32_t Sequence::length_last() const {
  const std::int32_t room = std::max(0, terms_->length_max - prompt_tokens_);
  const std::int32_t answer = terms_->request.max_tokens;
  return prompt_tokens_ + (answer < 0 ? room : std::min(answer, room));
}

void Sequence::add_cut(const Cut& cut) {
  const auto at = std::lower_bound(cuts_.begin(), cuts_.end(), cut,
                                   [](const Cut& a, const Cut& b) { return a.length < b.length; });
  if (at == cuts_.end() || at->length != cut.length) cuts_.insert(at, cut);
}

bool Sequence::is_cut_at(std::int32_t length) const {
  return std::any_of(cuts_.begin(), cuts_.end(),
                     [&](const Cut& cut) { return cut.length == length; });
}

std::int32_t Sequence::next_cut(std::int32_t length) const {
  for (const Cut& cut : cuts_) {
    if (cut.length > length) return cut.length;
  }
  return tokens();
}

std::optional<SnapshotPlace> Sequence::take_cut() {
  if (cuts_.empty()) return std::nullopt;
  std::optional<SnapshotPlace> place;
  auto behind = cuts_.begin();
  for (; behind != cuts_.end() && behind->length <= memory_.length(); ++behind) {
    if (behind->length == memory_.length()) place = behind->place;
  }
  cuts_.erase(cuts_.begin(), behind);
  return place;
}

void Sequence::follow(const std::optional<PrefixOwner>& prefix_owner) {
  prefix_owner_ = prefix_owner;
  if (prefix_owner) completion_.usage.waited_for_prefix = true;
}

void Sequence::fill(Span& span, std::int32_t count, std::int32_t cuts) {
  const auto [begin, read_slot, write_slot] = memory_.piece(cuts);
  span.tokens = std::span(tokens_).subspan(static_cast<std::size_t>(begin),
                                           static_cast<std::size_t>(count + drafts_));
  span.position = begin;
  span.tables = memory_.tables();
  span.read_slot = read_slot;
  span.write_slot = write_slot;
  span.drafts = drafts_;
  span.ring_entries = cuts == 0 ? memory_.ring_entries() : 0;
  span.ring = drafts_ > 0 || span.ring_entries > 0 ? memory_.ring() : no_ring;
  span.branch_ring = no_ring;
  span.samples.clear();
  if (begin + count < tokens() || terms_->request.prefill_only) return;
  for (std::int32_t drafts = 0; drafts <= drafts_; ++drafts) {
    span.samples.push_back(sample_row_in(tokens_, drafts));
    span.samples.back().token = count - 1 + drafts;
  }
  masks_.clear();
  masks_.set(span.samples, std::span(tokens_).last(static_cast<std::size_t>(drafts_)));
}

void Sequence::fill_branch(Span& span, std::int32_t branch) {
  const auto& [tokens, shared] = branches_.at(static_cast<std::size_t>(branch));
  const Memory::Branch& own = memory_.branch(branch);
  const auto known = static_cast<std::size_t>(this->tokens());
  span.tokens = std::span(tokens).subspan(known - 1);
  span.position = memory_.length();
  span.tables = own.tables;
  span.read_slot = memory_.read_slot();
  span.write_slot = no_slot;
  span.drafts = static_cast<std::int32_t>(tokens.size() - known);
  span.ring_entries = memory_.ring_entries();
  span.ring = memory_.ring();
  span.branch_ring = own.ring;
  span.samples.clear();
  for (std::int32_t drafts = shared + 1; drafts <= span.drafts; ++drafts) {
    span.samples.push_back(sample_row_in(tokens, drafts));
    span.samples.back().token = drafts;
  }
  masks_.set(span.samples, span.tokens.last(static_cast<std::size_t>(span.drafts)));
}

bool Sequence::is_predictable() const {
  if (pending() != 1 || holds_at_prompt_end_ || terms_->request.prefill_only) return false;
  if (tokens() + 1 >= length_last() || has_penalties(sampling_) || request().is_bound())
    return false;
  return !is_cut_at(memory_.length() + 1);
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
  span.samples.assign(1, sample_row_in(tokens_, 0));
  ++span.samples.back().draw;
}

/// Describes the row after this number of the drafts at the end of the tokens.
SampleRow Sequence::sample_row_in(std::span<const TokenId> tokens, std::int32_t drafts) const {
  return {.token = 0,
          .params = &sampling_,
          .draw = static_cast<std::uint64_t>(generated() + drafts),
          .history = tokens.first(static_cast<std::size_t>(this->tokens() + drafts)),
          .prompt_tokens = prompt_tokens_};
}

void Sequence::ran(std::int32_t count, Clock::time_point begin, std::int32_t accepted) {
  Usage& usage = completion_.usage;
  if (first_span_ == Clock::time_point{}) {
    first_span_ = begin;
    usage.queued = first_span_ - terms_->submitted;
  }
  const std::int32_t from = memory_.length();
  memory_.keep(count, accepted);
  const std::int32_t again = std::clamp(ran_max_ - from, 0, count);
  usage.recomputed_tokens += again;
  usage.prefilled_tokens += std::clamp(prompt_tokens_ - (from + again), 0, count - again);
  ran_max_ = std::max(ran_max_, from + count);
}

void Sequence::count_drafts(std::int32_t drafts, std::int32_t accepted) {
  completion_.usage.drafts += {.steps = 1, .accepted = accepted, .rejected = drafts - accepted};
}

void Sequence::end_prefill(Clock::time_point now) {
  require(is_prefilled(), "sequence: it is prefilled when nothing is left to run");
  completion_.usage.prefill = now - first_span_;
  static_cast<void>(end(FinishReason::stop));
}

std::string Sequence::accept(const SampledToken& sampled, Clock::time_point now) {
  if (!sampled.finite && !masks_.error().empty()) return fail(masks_.error());
  if (!sampled.finite && request().is_bound()) {
    return fail(
        fmt::format("no token that may follow can be drawn at position {}: the vocabulary "
                    "lacks the bytes that the rule needs, or the logits are NaN",
                    tokens() - 1));
  }
  if (!sampled.finite) {
    return fail(fmt::format(
        "the model produced NaN logits at position {}: a weight is damaged or too large for this "
        "type; download the weights again, or try --dtype f32",
        tokens() - 1));
  }
  Usage& usage = completion_.usage;
  if (generated() == 0) {
    first_token_ = now;
    usage.prefill = first_token_ - first_span_;
  }
  usage.decode = now - first_token_;
  ++usage.completion_tokens;
  if (is_drafted(sampled)) {
    --drafts_;
  } else {
    drop_drafts();
    tokens_.push_back(sampled.token);
  }
  if (terms_->request.token_times) completion_.token_times.push_back(now);
  if (sampling_.logprobs >= 0) {
    completion_.events.push_back(
        {sampled.token, sampled.logprob, {sampled.top.begin(), sampled.top.end()}});
  }
  if (!masks_.accept(sampled.token)) {
    if (!masks_.error().empty()) return fail(masks_.error());
    return fail(
        "the end of the thought and the start of the answer came in one token, and the "
        "rule of the answer refuses the latter; answer without a thought (--think off)");
  }
  if (is_stop_token(sampled.token) || masks_.has_ended()) return end(FinishReason::stop);

  std::string text = text_ ? push_text(text_->push(sampled.token)) : std::string();
  if (stop_search_.found()) return text + end(FinishReason::stop);
  if (generated() == terms_->request.max_tokens || tokens() >= terms_->length_max) {
    text += end(FinishReason::length);
  }
  return text;
}

std::string Sequence::end(FinishReason reason) {
  require(!finished_, "sequence: it ends once");
  drop_drafts();
  std::string text = flush();
  // The last character may have completed a stop string.
  const bool stopped = reason == FinishReason::length && stop_search_.found();
  completion_.reason = stopped ? FinishReason::stop : reason;
  finished_ = true;
  return text;
}

std::string Sequence::fail(std::string error) {
  completion_.error = std::move(error);
  return end(FinishReason::error);
}

Completion Sequence::take_completion() {
  require(finished_, "sequence: a completion is taken when it is finished");
  completion_.tokens.assign(tokens_.begin() + prompt_tokens_, tokens_.end());
  completion_.usage.reuse_limit = reuse_limit();
  return std::move(completion_);
}

ReuseLimit Sequence::reuse_limit() const {
  const Usage& usage = completion_.usage;
  if (usage.recomputed_tokens > 0) return ReuseLimit::memory_was_taken;
  if (!reuse_is_tracked_) return ReuseLimit::off;
  if (usage.reused_tokens > 0 && usage.reused_tokens == prompt_tokens_ - 1) {
    return ReuseLimit::last_token;
  }
  if (usage.matched_tokens > usage.reused_tokens) return ReuseLimit::no_snapshot;
  return usage.matched_tokens > 0 ? ReuseLimit::new_text : ReuseLimit::nothing_known;
}

bool Sequence::is_stop_token(TokenId token) const {
  if (terms_->request.ignore_eos) return false;
  const std::vector<TokenId>& stop = terms_->request.stop_tokens;
  return std::find(stop.begin(), stop.end(), token) != stop.end();
}

std::string Sequence::push_text(std::string_view text) {
  std::string certain = scanner_ ? searched(scanner_->push(text)) : stop_search_.push(text);
  completion_.text += certain;
  return certain;
}

/// A stop string does not go on where a part of the answer ends.
std::string Sequence::searched(const std::vector<AnswerScanner::Piece>& pieces) {
  std::string certain;
  for (const auto& [text, part] : pieces) {
    if (stop_search_.found()) break;
    const bool is_said = part == AnswerPart::answer || part == AnswerPart::call;
    certain += is_said ? stop_search_.push(text) : stop_search_.flush() + text;
  }
  return certain;
}

std::string Sequence::flush() {
  if (!text_) return {};
  std::string text = push_text(text_->flush());
  std::string held = scanner_ ? searched(scanner_->finish()) : std::string();
  held += stop_search_.flush();
  completion_.text += held;
  return text + held;
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
    const std::int32_t needed = std::max(worthwhile, other->memory().length() + 1);
    if (needed > last || needed > other->tokens()) continue;
    const auto probe = static_cast<std::size_t>(needed - 1);
    if (other->known()[probe] != newcomer.known()[probe]) continue;
    const std::int32_t common = std::min(common_prefix(other->known(), newcomer.known()), last);
    if (common < needed) continue;
    best = PrefixOwner{
        .age = other->age(),
        .length = agreed_length(*other, common, std::max(enough, common - tokens_min + 1))};
    worthwhile = common + 1;
  }
  return best;
}

bool is_awaited(const PrefixOwner& prefix_owner, std::span<Sequence* const> running) {
  const auto found = std::lower_bound(
      running.begin(), running.end(), prefix_owner.age,
      [](const Sequence* sequence, const ArrivalOrder& age) { return sequence->age() < age; });
  return found != running.end() && (*found)->age() == prefix_owner.age &&
         (*found)->memory().length() < prefix_owner.length;
}

}  // namespace hyb
