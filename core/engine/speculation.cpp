#include "core/engine/speculation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/engine/ngram_drafter.h"

namespace hyb {
namespace {

/// Limits what is remembered of what others had after the same tokens.
constexpr std::int32_t remembered_max = 4096;

bool runs_single_tokens(std::span<const Assignment> plan) {
  return std::all_of(plan.begin(), plan.end(),
                     [](const Assignment& entry) { return entry.tokens == 1; });
}

double seconds_of(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Returns what the plan of a step of single tokens says of it.
DraftStep step_of(std::span<const Assignment> plan) {
  DraftStep step = {.sequences = static_cast<std::int32_t>(plan.size())};
  for (const Assignment& entry : plan) {
    step.drafts += entry.drafts;
    step.passes = std::max(step.passes, entry.drafts);
    if (entry.drafts > 0) ++step.drafting_sequences;
  }
  return step;
}

}  // namespace

Speculation::Speculation(const SpeculationOptions& options, const PrefixCache& prefixes,
                         StepPlan& step_plan, Now now, ModelDrafts model_drafts)
    : step_plan_(&step_plan),
      drafter_(options.drafter),
      model_drafts_(std::move(model_drafts)),
      policy_(options.draft_steps),
      tree_(options.tree),
      now_(std::move(now)) {
  if (options.draft_steps < 0 || options.draft_steps > drafts_max) {
    throw Error(ErrorKind::usage, fmt::format("engine: a step has up to {} drafts of a sequence, "
                                              "or 0 for what is measured: {}",
                                              drafts_max, options.draft_steps));
  }
  const std::int32_t alone = 1 + options.draft_steps;
  if (tree_.rows <= 0) tree_.rows = 2 * alone;
  if (tree_.branches < 1 || tree_.rows < alone ||
      (tree_.branches > 1 && options.draft_steps == 0)) {
    throw Error(ErrorKind::usage,
                fmt::format("engine: a tree has one branch or more, a number of drafts, and rows "
                            "for these and one token: {} branches, {} drafts, {} rows",
                            options.tree.branches, options.draft_steps, options.tree.rows));
  }
  if (drafter_ == nullptr && options.by_model && options.draft_steps == 0) entry_policy_.emplace();
  if (drafter_ != nullptr || options.by_model) return;
  own_drafter_ = std::make_unique<NgramDrafter>([&prefixes](std::span<const TokenId> known) {
    return prefixes.tree().continuation(known, remembered_max);
  });
  drafter_ = own_drafter_.get();
}

/// The most drafts that the entry may have and that are worth asking for.
std::int32_t Speculation::wanted(const Assignment& entry) const {
  const ArrivalOrder sequence = entry.sequence->age();
  if (!wants_entries() || without_entries_.contains(sequence)) return 0;
  const std::int32_t room = step_plan_->draft_room(entry);
  return room > 0 ? std::min(room, policy_.wanted(sequence)) : 0;
}

/// Drafts that take time are decided on before they are made, with the memory that the step will
/// have for them. How many.
std::int32_t Speculation::reserve(const Assignment& entry, std::size_t at) {
  const ArrivalOrder sequence = entry.sequence->age();
  std::int32_t most = wanted(entry);
  while ((most = policy_.choose(sequence, most)) > 0) {
    if (step_plan_->reserve_drafts(at, most)) break;
    --most;
  }
  policy_.add(sequence, most);
  return most;
}

void Speculation::add_drafts(std::span<const Assignment> plan, Time planned) {
  const Time begin = now_();
  planned_ = planned;
  ended_.reset();
  is_held_back_ = std::exchange(may_draft_, false);
  accepted_ = 0;
  const std::chrono::nanoseconds prepared_before = preparing_;
  entries_.clear();
  trees_.clear();
  policy_.plan(static_cast<std::int32_t>(plan.size()), runs_single_tokens(plan));
  drafter_ == nullptr ? add_model_drafts(plan) : add_guesses(plan);
  adding_ = now_() - begin;
  drafting_ = adding_ - (preparing_ - prepared_before);
  stats_.drafting_seconds += std::chrono::duration<double>(adding_).count();
}

void Speculation::add_guesses(std::span<const Assignment> plan) {
  jobs_.clear();
  for (std::size_t at = 0; at < plan.size(); ++at) {
    const Sequence& sequence = *plan[at].sequence;
    const std::int32_t most = drafter_->takes_time() ? reserve(plan[at], at) : wanted(plan[at]);
    if (most <= 0) continue;
    jobs_.push_back({.sequence = sequence.age(),
                     .tokens = sequence.known(),
                     .most = most,
                     .guesses = tree_.branches});
    entries_.push_back(at);
  }
  if (jobs_.empty()) return;
  const Time begin = now_();
  drafter_->prepare(jobs_);
  preparing_ += now_() - begin;
  drafter_->draft(jobs_);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    DraftJob& job = jobs_[i];
    const Assignment& entry = plan[entries_[i]];
    if (auto forced = entry.sequence->masks().forced(job.most); !forced.empty()) {
      job = {.sequence = job.sequence, .tokens = job.tokens, .most = job.most};
      job.drafts = std::move(forced);
    }
    const std::size_t allowed = entry.sequence->masks().allowed(job.drafts);
    job.drafts.resize(allowed);
    if (allowed < job.likely.size()) job.likely.resize(allowed);
    std::vector<DraftPath> tree;
    if (!job.likely.empty()) {
      tree = tree_of(job.likely, tree_);
      job.drafts = tree.front().drafts;
    }
    drafter_->takes_time() ? set_guess(job, entries_[i]) : add_guess(job, entry, entries_[i]);
    if (entry.drafts == 0 || tree_.branches == 1) continue;
    trees_.push_back({entries_[i], with_room(std::move(tree), job, entry)});
  }
  add_branches();
}

/// Cuts guesses to the `entry.drafts` drafts that they were given; `tree` is empty where they have
/// no odds.
std::vector<DraftPath> Speculation::with_room(std::vector<DraftPath> tree, DraftJob& job,
                                              const Assignment& entry) const {
  if (tree.empty()) {
    job.drafts.resize(static_cast<std::size_t>(entry.drafts));
    job.others.insert(job.others.begin(), std::move(job.drafts));
    return tree_of(job.others, tree_);
  }
  // What a branch shares is run by the drafts that there was room for.
  std::erase_if(tree, [&](const DraftPath& path) { return path.shared > entry.drafts; });
  return tree;
}

/// All paths but the first, which the entry has: in the room that all drafts leave.
void Speculation::add_branches() {
  for (const auto& [at, tree] : trees_) {
    for (const DraftPath& path : std::span(tree).subspan(1)) {
      if (!step_plan_->add_branch(at, path.drafts, path.shared)) break;
    }
  }
}

void Speculation::add_guess(const DraftJob& job, const Assignment& entry, std::size_t at) {
  std::int32_t most =
      std::min(static_cast<std::int32_t>(job.drafts.size()), step_plan_->draft_room(entry));
  const auto next = [&] { return tree_.branches > 1 ? most : policy_.choose(job.sequence, most); };
  // Fewer may have memory where more have not.
  while ((most = next()) > 0) {
    const auto drafts = std::span(job.drafts).first(static_cast<std::size_t>(most));
    if (step_plan_->add_drafts(at, drafts)) break;
    --most;
  }
  policy_.add(job.sequence, most);
}

/// Sets the drafts of guesses for which memory was reserved.
void Speculation::set_guess(const DraftJob& job, std::size_t at) {
  auto count = static_cast<std::int32_t>(job.drafts.size());
  if (tree_.branches == 1) count = policy_.count_of(count);
  step_plan_->set_drafts(at, std::span(job.drafts).first(static_cast<std::size_t>(count)));
}

void Speculation::add_model_drafts(std::span<const Assignment> plan) {
  draft_step_.spans.clear();
  for (std::size_t at = 0; at < plan.size(); ++at) {
    const std::int32_t most = reserve(plan[at], at);
    if (most <= 0) continue;
    entries_.push_back(at);
    Span& span = draft_step_.spans.emplace_back();
    span.drafts = most;
  }
  if (entries_.empty()) return;
  // Reserving may have moved what others have.
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Span& span = draft_step_.spans[i];
    const std::int32_t drafts = span.drafts;
    plan[entries_[i]].sequence->fill(span, 1);
    span.drafts = drafts;
    span.write_slot = no_slot;
  }
  if (tree_.branches > 1) want_alternatives();
  std::vector<std::vector<SampledToken>> drawn = model_drafts_(draft_step_);
  require(drawn.size() == entries_.size(), "speculation: drafts of every sequence");
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    tokens.clear();
    for (const SampledToken& draft : drawn[i]) tokens.push_back(draft.token);
    tokens.resize(plan[entries_[i]].sequence->masks().allowed(tokens));
    drawn[i].resize(tokens.size());
    if (tree_.branches > 1 && !tokens.empty()) {
      trees_.push_back({entries_[i], tree_of(drawn[i], tree_)});
      tokens = trees_.back().paths.front().drafts;
    }
    step_plan_->set_drafts(entries_[i], tokens);
  }
  add_branches();
}

/// Has the model name what else is likely in the place of its drafts.
void Speculation::want_alternatives() {
  draft_params_.clear();
  draft_params_.reserve(draft_step_.spans.size());
  for (Span& span : draft_step_.spans) {
    SamplingParams& params = draft_params_.emplace_back(*span.samples.front().params);
    params.logprobs = std::max(params.logprobs, tree_.branches);
    span.samples.front().params = &params;
  }
}

bool Speculation::may_draft_next(std::span<const Assignment> plan) {
  policy_.plan(static_cast<std::int32_t>(plan.size()), true);
  may_draft_ = std::any_of(plan.begin(), plan.end(), [&](const Assignment& entry) {
    if (entry.drafts > 0) return true;  // the next step begins after what is accepted
    const Sequence& sequence = *entry.sequence;
    const std::int32_t most = wanted(entry);
    if (drafter_ == nullptr || drafter_->takes_time()) {
      return policy_.choose(sequence.age(), most) > 0;
    }
    return most > 0 && drafter_->may_draft_after_next(sequence.age(), sequence.known());
  });
  return may_draft_;
}

void Speculation::verified(const Assignment& entry, std::int32_t accepted, bool is_branch) {
  policy_.verified(entry.sequence->age(), entry.drafts, accepted);
  accepted_ += accepted;
  ++stats_.verify_steps;
  // A branch may be longer than what it is beside.
  const std::int32_t tried = std::max(entry.drafts, accepted);
  stats_.branch_drafts += entry.branch_drafts - (tried - entry.drafts);
  if (is_branch) ++stats_.branches_taken;
  for (std::int32_t i = 0; i < tried; ++i) {
    ++stats_.drafted[static_cast<std::size_t>(i)];
    if (i < accepted) ++stats_.accepted[static_cast<std::size_t>(i)];
  }
}

bool Speculation::wants_entries(std::span<const Assignment> plan) {
  if (wants_entries()) return true;
  for (const Assignment& entry : plan) without_entries_.insert(entry.sequence->age());
  return false;
}

void Speculation::ran(std::span<const Assignment> plan, const Ran& times) {
  const std::chrono::nanoseconds drafting = std::exchange(drafting_, {});
  const std::chrono::nanoseconds adding = std::exchange(adding_, {});
  const Time begin = std::exchange(planned_, {}).value_or(times.launched);
  const Time applied = std::min(times.end, std::exchange(ended_, {}).value_or(times.end));
  const bool is_held_back = std::exchange(is_held_back_, false);
  EntryPolicy::Ran all = {.seconds = seconds_of(applied - begin),
                          .entry_seconds = times.entry_seconds};
  if (runs_single_tokens(plan)) {
    DraftStep step = step_of(plan);
    const double certain = static_cast<double>(step.sequences) / (step.sequences + step.drafts);
    step.accepted = step.drafts > 0 ? accepted_ : 0;
    step.is_held_back = is_held_back;
    step.seconds = seconds_of(applied - begin - adding) - certain * times.entry_seconds;
    step.drafting_seconds = seconds_of(drafting);
    step.preparing_seconds = seconds_of(std::exchange(preparing_, {}));
    all.lost_seconds = policy_.ran(step);
    all.is_uniform = true;
  }
  if (entry_policy_) entry_policy_->ran(all);
}

void Speculation::ran_beside(std::chrono::nanoseconds time, double entry_seconds) {
  if (!entry_policy_) return;
  entry_policy_->ran({.seconds = seconds_of(time), .entry_seconds = entry_seconds});
}

void Speculation::forget(const Sequence& sequence) {
  if (!ended_) ended_ = now_();
  policy_.forget(sequence.age());
  const bool had_entries = without_entries_.erase(sequence.age()) == 0;
  if (entry_policy_ && had_entries) entry_policy_->ended();
  if (drafter_ != nullptr) drafter_->forget(sequence.age());
}

}  // namespace hyb
