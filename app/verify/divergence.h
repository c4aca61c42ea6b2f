#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"

namespace hyb::app {

/// The logits of a row as a distribution of the next token.
struct LogitsRow {
  /// The likeliest token and the log of the sum of all exponentials are computed here.
  explicit LogitsRow(std::span<const float> logits);
  /// `likeliest` and its log-probability are known, as a sampled row has them.
  LogitsRow(std::span<const float> logits, TokenId likeliest, float logprob);

  /// In nats.
  double logprob(TokenId token) const {
    return logits[static_cast<std::size_t>(index(token))] - log_sum;
  }

  std::span<const float> logits;
  TokenId likeliest;
  double log_sum;
};

/// Kullback-Leibler divergence, in nats, of `found` from `expected`: sum over p * (log p - log q),
/// in double. 0 where they are the same; never below 0. Infinite when a logit is NaN, or q is 0
/// where p is not. Both have as many logits.
double divergence(const LogitsRow& expected, const LogitsRow& found);

/// Divergences of many rows.
struct DivergenceSummary {
  std::int64_t rows = 0;
  std::int64_t likeliest_differs = 0;     ///< rows whose likeliest token is another one
  double mean = 0, p99 = 0, largest = 0;  ///< nats; p99: the smallest that 99 % of rows do not pass
  double mean_error = 0;                  ///< one standard error of the mean; of two rows or more
};

/// Collects them.
class Divergences {
 public:
  void add(const LogitsRow& expected, const LogitsRow& found);
  DivergenceSummary summary() const;
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
  std::int64_t likeliest_differs_ = 0;
};

}  // namespace hyb::app
