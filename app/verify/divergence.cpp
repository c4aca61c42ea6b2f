#include "app/verify/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace hyb::app {

LogitsRow::LogitsRow(std::span<const float> row)
    : logits(row),
      likeliest{static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin())} {
  const double top = row[static_cast<std::size_t>(index(likeliest))];
  double sum = 0;
  for (const float logit : row) sum += std::exp(logit - top);
  log_sum = top + std::log(sum);
}

LogitsRow::LogitsRow(std::span<const float> row, TokenId best, float best_logprob)
    : logits(row),
      likeliest(best),
      log_sum(static_cast<double>(row[static_cast<std::size_t>(index(best))]) - best_logprob) {}

double divergence(const LogitsRow& expected, const LogitsRow& found) {
  require(expected.logits.size() == found.logits.size(), "divergence: another vocabulary");
  double sum = 0;
  for (std::size_t i = 0; i < expected.logits.size(); ++i) {
    const double log_p = expected.logits[i] - expected.log_sum;
    const double log_q = found.logits[i] - found.log_sum;
    const double p = std::exp(log_p);
    if (p != 0) sum += p * (log_p - log_q);
  }
  return std::isnan(sum) ? std::numeric_limits<double>::infinity() : std::max(0.0, sum);
}

void Divergences::add(const LogitsRow& expected, const LogitsRow& found) {
  values_.push_back(divergence(expected, found));
  if (expected.likeliest != found.likeliest) ++likeliest_differs_;
}

DivergenceSummary Divergences::summary() const {
  DivergenceSummary summary = {.rows = static_cast<std::int64_t>(values_.size()),
                               .likeliest_differs = likeliest_differs_};
  if (values_.empty()) return summary;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<double>(sorted.size());
  for (const double value : sorted) summary.mean += value / count;
  summary.p99 = sorted[(sorted.size() * 99 + 99) / 100 - 1];
  summary.largest = sorted.back();
  double squares = 0;
  for (const double value : sorted) squares += (value - summary.mean) * (value - summary.mean);
  if (sorted.size() > 1) summary.mean_error = std::sqrt(squares / (count - 1) / count);
  return summary;
}

}  // namespace hyb::app
