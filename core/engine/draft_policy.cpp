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

bool DraftPolicy::is_fresh(std::int32_t rows) const {
  const Cost& cost = costs_[static_cast<std::size_t>(rows)];
  return cost.step >= 0 && steps_ - cost.step <= steps_fresh;
}

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

void DraftPolicy::plan(std::int32_t sequences, bool is_uniform) {
  sequences_ = sequences;
  rows_ = sequences;
  tokens_ = sequences;
  may_cost_ = 0;
  if (fixed_ > 0 || !is_uniform || sequences > rows_max || !is_fresh(sequences)) return;
  const auto& [plain, measured] = costs_[static_cast<std::size_t>(sequences)];
  // All else is compared with plain steps, and their time drifts: where little is at stake, often.
  const bool is_earning = lost_ < -gain_steps_kept / 2 * plain;
  if (steps_ - measured > (is_earning ? steps_fresh / 4 : steps_fresh / 16)) return;
  const double at_first = std::max(loss_steps, 1.0 / sequences) * plain;
  const double may_lose = loss_share * seconds_ + at_first - lost_;
  if (may_lose > 0) may_cost_ = plain + may_lose;
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
  std::int32_t best = 0;
  double most = tokens_ / *without;
  for (const std::int32_t count : counts) {
    if (count > available || rows_ + count > rows_max) continue;
    const std::optional<double> with = cost(rows_ + count);
    if (!with || worst_cost(rows_ + count) > may_cost_) continue;
    const double rate = (tokens_ + expected_accepted(rates_of(sequence), count)) / *with;
    if (rate <= most) continue;
    most = rate;
    best = count;
  }
  return best;
}

void DraftPolicy::add(const ArrivalOrder& sequence, std::int32_t drafts) {
  rows_ += drafts;
  tokens_ += expected_accepted(rates_of(sequence), drafts);
}

void DraftPolicy::verified(const ArrivalOrder& sequence, std::int32_t drafts,
                           std::int32_t accepted) {
  if (fixed_ > 0) return;
  learn_rates(rates_, drafts, accepted);
  Record& record = records_.try_emplace(sequence, Record{.rates = rates_}).first->second;
  learn_rates(record.rates, drafts, accepted);
  record.misses = accepted > 0 ? 0 : record.misses + 1;
  if (record.misses > 1) {
    record.resume = steps_ + 1 + std::min(pause_max, std::int32_t{1} << std::min(record.misses, 6));
  }
}

void DraftPolicy::ran(const DraftStep& step) {
  if (fixed_ > 0) return;
  ++steps_;
  const double plain = cost(step.sequences).value_or(step.seconds);
  const double yielded = static_cast<double>(step.accepted) / step.sequences;
  double seconds = step.seconds;
  lost_ += step.drafting_seconds - plain * yielded;
  if (step.drafts > 0) {
    lost_ += step.seconds - plain;
    seconds += step.drafting_seconds;
  }
  unpaid_ += step.preparing_seconds;
  const double paid = std::min(unpaid_, std::max(0.0, -lost_));
  unpaid_ -= paid;
  lost_ = std::max(lost_ + paid, -gain_steps_kept * plain);
  seconds_ += step.seconds + step.drafting_seconds + step.preparing_seconds;
  const std::int32_t rows = step.sequences + step.drafts;
  if (rows > rows_max) return;
  Cost& cost = costs_[static_cast<std::size_t>(rows)];
  // A step can take too long for many reasons, but not too short.
  const double weight = seconds < cost.seconds ? 0.5 : 1.0 / 8;
  cost.seconds = is_fresh(rows) ? cost.seconds + weight * (seconds - cost.seconds) : seconds;
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
