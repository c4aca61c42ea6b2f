#include "core/engine/draft_policy.h"

#include <algorithm>

namespace hyb {
namespace {

constexpr double rate_weight = 1.0 / 8;  ///< of a new observation
constexpr std::int32_t pause_max = 64;   ///< steps

/// The first `drafts` positions.
double expected_accepted(const std::array<double, drafts_max>& rates, std::int32_t drafts) {
  double sum = 0, all_right = 1;
  for (std::int32_t i = 0; i < drafts; ++i) {
    all_right *= rates[static_cast<std::size_t>(i)];
    sum += all_right;
  }
  return sum;
}

void learn_rates(std::array<double, drafts_max>& rates, std::int32_t drafts,
                 std::int32_t accepted) {
  for (std::int32_t i = 0; i < std::min(drafts, accepted + 1); ++i) {
    double& rate = rates[static_cast<std::size_t>(i)];
    rate += rate_weight * ((i < accepted ? 1.0 : 0.0) - rate);
  }
}

}  // namespace

/// Seconds of a step of n rows, by measured ones: what the line through two of fewer rows
/// says, or the line to one of more rows, if that is less. So that trying costs little, after one
/// measured number of rows only the next one is known, and it is taken for as fast. nullopt: not
/// known.
std::optional<double> DraftPolicy::cost(std::int32_t rows) const {
  if (is_fresh(rows)) return costs_[static_cast<std::size_t>(rows)].seconds;
  const auto seconds = [&](std::int32_t of) {
    return costs_[static_cast<std::size_t>(of)].seconds;
  };
  const auto below = [&](std::int32_t end) {
    while (--end > 0 && !is_fresh(end)) {
    }
    return end;
  };
  const std::int32_t last = below(rows);
  if (last <= 0) return std::nullopt;
  const std::int32_t before = below(last);
  std::int32_t above = rows + 1;
  while (above <= rows_max && !is_fresh(above)) ++above;
  if (before <= 0 && above > rows_max && rows > last + 1) return std::nullopt;
  const double low = seconds(last);
  const auto steps = static_cast<double>(rows - last);
  double cost = low;
  if (before > 0) cost += std::max(0.0, low - seconds(before)) / (last - before) * steps;
  if (above > rows_max) return cost;
  const double between = low + (seconds(above) - low) * steps / (above - last);
  return before > 0 ? std::min(cost, between) : between;
}

/// Seconds that a step of n rows takes at most: those that were not measured yet with as few cost
/// no more than the ones of plain steps.
double DraftPolicy::worst_cost(std::int32_t rows) const {
  std::int32_t measured = rows;
  while (!is_fresh(measured)) --measured;  // down to those of a plain step
  return costs_[static_cast<std::size_t>(measured)].seconds +
         (rows - measured) * costs_[static_cast<std::size_t>(sequences_)].seconds / sequences_;
}

/// Returns for how many sequences, of these or next to them, a drafter's pass was measured; fewer
/// before more. 0: for none.
std::int32_t DraftPolicy::measured_pass(std::int32_t sequences) const {
  const auto is_measured = [&](std::int32_t count) {
    return is_fresh(pass_costs_[static_cast<std::size_t>(count)]);
  };
  for (std::int32_t fewer = sequences; fewer > 0; --fewer) {
    if (is_measured(fewer)) return fewer;
  }
  for (std::int32_t more = sequences + 1; more <= rows_max; ++more) {
    if (is_measured(more)) return more;
  }
  return 0;
}

void DraftPolicy::plan(std::int32_t sequences, bool is_uniform) {
  sequences_ = sequences;
  rows_ = sequences;
  tokens_ = sequences;
  drafting_sequences_ = 0;
  passes_ = 0;
  may_cost_ = 0;
  if (fixed_ > 0 || !is_uniform || sequences > rows_max || !is_fresh(sequences)) return;
  const auto& [plain, measured] = costs_[static_cast<std::size_t>(sequences)];
  // All else is compared with plain steps, and their time drifts: where little is at stake, often.
  const bool is_earning = lost_ < -gain_steps_kept / 2 * plain;
  if (steps_ - measured > (is_earning ? steps_fresh / 4 : steps_fresh / 16)) return;
  const double at_first = std::max(loss_steps, 1.0 / sequences) * plain;
  const double may_lose = loss_share * seconds_ + at_first - lost_;
  if (may_lose > 0) may_cost_ = plain + may_lose;
  const std::int32_t pass = measured_pass(sequences);
  pass_share_ = pass_costs_[static_cast<std::size_t>(pass)].seconds / sequences;
  passes_max_ = passes_for_all();
}

/// Returns how many passes of the drafter yield the most tokens a second, where all sequences have
/// as many drafts: for a few of them no pass is worth it that is shared by all. Where passes take
/// next to nothing each sequence has what is best for it.
std::int32_t DraftPolicy::passes_for_all() const {
  const double plain = costs_[static_cast<std::size_t>(sequences_)].seconds;
  if (sequences_ == 1 || pass_share_ * sequences_ < pass_min * plain) return drafts_max;
  std::int32_t best = 1;
  double most = 0;
  for (const std::int32_t count : counts) {
    const std::int32_t rows = sequences_ * (1 + count);
    const std::optional<double> seconds = rows <= rows_max ? cost(rows) : std::nullopt;
    if (!seconds) continue;
    const double rate =
        (1 + expected_accepted(rates_, count)) / (*seconds + pass_share_ * sequences_ * count);
    if (rate <= most) continue;
    most = rate;
    best = count;
  }
  return best;
}

std::int32_t DraftPolicy::wanted(const ArrivalOrder& sequence) const {
  if (fixed_ > 0) return fixed_;
  if (may_cost_ <= 0) return 0;
  const auto found = records_.find(sequence);
  return found != records_.end() && steps_ < found->second.resume ? 0 : drafts_max;
}

const DraftPolicy::Rates& DraftPolicy::rates_of(const ArrivalOrder& sequence) const {
  const auto found = records_.find(sequence);
  return found == records_.end() ? rates_ : found->second.rates;
}

std::int32_t DraftPolicy::choose(const ArrivalOrder& sequence, std::int32_t available) const {
  if (fixed_ > 0) return count_of(available);
  if (may_cost_ <= 0) return 0;
  const std::optional<double> without = cost(rows_);
  if (!without) return 0;
  const auto seconds = [&](double rows_cost, std::int32_t rows) {
    return rows_cost + pass_share_ * (rows - sequences_);
  };
  std::int32_t best = 0;
  double most = tokens_ / seconds(*without, rows_);
  for (const std::int32_t count : counts) {
    if (count > std::min(available, passes_max_) || rows_ + count > rows_max) continue;
    const std::optional<double> with = cost(rows_ + count);
    if (!with || !may_try(sequence, count)) continue;
    const double rate =
        (tokens_ + expected_accepted(rates_of(sequence), count)) / seconds(*with, rows_ + count);
    if (rate <= most) continue;
    most = rate;
    best = count;
  }
  return best;
}

/// Returns whether the step may cost what it takes at most with these drafts of one more sequence.
/// What a pass takes is learned from a single draft.
bool DraftPolicy::may_try(const ArrivalOrder& sequence, std::int32_t count) const {
  const double rows = worst_cost(rows_ + count);
  const std::int32_t sequences = drafting_sequences_ + 1;
  const std::int32_t measured = measured_pass(sequences);
  if (measured == 0) return sequences == 1 && count == 1 && rows <= may_cost_;
  const double pass = pass_costs_[static_cast<std::size_t>(measured)].seconds;
  const double scale = std::max(1.0, static_cast<double>(sequences) / measured);
  if (rows + std::max(passes_, count) * pass * scale <= may_cost_) return true;
  return may_share(sequence, count);
}

/// The same where a pass takes a good part of a step, so that it would hardly ever be tried for all
/// of the sequences for which it pays. Once it is known how often drafts are right, each
/// bears its share alone, half of what it should save is counted on, and steps may have a draft
/// more for each sequence than was measured, by the times of those with fewer.
bool DraftPolicy::may_share(const ArrivalOrder& sequence, std::int32_t count) const {
  const double plain = costs_[static_cast<std::size_t>(sequences_)].seconds;
  const double pass = pass_share_ * sequences_;
  if (observed_ < observed_min || sequences_ == 1 || pass < pass_min * plain) return false;
  const std::int32_t rows = rows_ + count;
  std::int32_t measured = rows;
  while (!is_fresh(measured)) --measured;
  if (rows > measured + sequences_) return false;
  const double saved = tokens_ - sequences_ + expected_accepted(rates_of(sequence), count);
  return cost(rows).value_or(worst_cost(rows)) + pass_share_ * (rows - sequences_) -
             saved / 2 * plain / sequences_ <=
         may_cost_;
}

void DraftPolicy::add(const ArrivalOrder& sequence, std::int32_t drafts) {
  rows_ += drafts;
  passes_ = std::max(passes_, drafts);
  if (drafts > 0) ++drafting_sequences_;
  tokens_ += expected_accepted(rates_of(sequence), drafts);
}

void DraftPolicy::verified(const ArrivalOrder& sequence, std::int32_t drafts,
                           std::int32_t accepted) {
  if (fixed_ > 0) return;
  learn_rates(rates_, drafts, accepted);
  observed_ += std::min(drafts, accepted + 1);
  Record& record = records_.try_emplace(sequence, Record{.rates = rates_}).first->second;
  learn_rates(record.rates, drafts, accepted);
  record.misses = accepted > 0 ? 0 : record.misses + 1;
  if (record.misses > 1) {
    record.resume = steps_ + 1 + std::min(pause_max, std::int32_t{1} << std::min(record.misses, 6));
  }
}

double DraftPolicy::ran(const DraftStep& step) {
  if (fixed_ > 0) return 0;
  ++steps_;
  const double plain = cost(step.sequences).value_or(step.seconds);
  const double yielded = static_cast<double>(step.accepted) / step.sequences;
  double lost = step.drafting_seconds - plain * yielded;
  if (step.drafts > 0 || step.is_held_back) lost += step.seconds - plain;
  lost_ += lost;
  unpaid_ += step.preparing_seconds;
  const double paid = std::min(unpaid_, std::max(0.0, -lost_));
  unpaid_ -= paid;
  lost_ = std::max(lost_ + paid, -gain_steps_kept * plain);
  seconds_ += step.seconds + step.drafting_seconds + step.preparing_seconds;
  if (step.drafts == 0 && step.is_held_back) return lost;  // it took longer than a plain one
  const std::int32_t rows = step.sequences + step.drafts;
  if (rows > rows_max) return lost;
  learn(costs_[static_cast<std::size_t>(rows)], step.seconds);
  if (step.passes == 0) return lost;
  learn(pass_costs_[static_cast<std::size_t>(step.drafting_sequences)],
        step.drafting_seconds / step.passes);
  return lost;
}

void DraftPolicy::learn(Cost& cost, double seconds) const {
  // A step can take too long for many reasons, but not too short.
  const double weight = seconds < cost.seconds ? 0.5 : 1.0 / 8;
  cost.seconds = is_fresh(cost) ? cost.seconds + weight * (seconds - cost.seconds) : seconds;
  cost.step = steps_;
}

/// A sequence that ends leaves its share of what is unpaid.
void DraftPolicy::forget(const ArrivalOrder& sequence) {
  const auto found = records_.find(sequence);
  if (found == records_.end()) return;
  const double share = unpaid_ / static_cast<double>(records_.size());
  unpaid_ -= share;
  lost_ += share;
  records_.erase(found);
}

}  // namespace hyb
