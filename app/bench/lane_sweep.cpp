#include "app/bench/lane_sweep.h"

#include <algorithm>

#include <fmt/format.h>

namespace hyb::app {
namespace {

/// "disaggregated 31.20 against 28.10", the greater first.
std::string winner_text(double together, double apart) {
  if (together == apart) return fmt::format("both {:.2f}", apart);
  return together > apart
             ? fmt::format("{} {:.2f} against {:.2f}", colocated_lanes, together, apart)
             : fmt::format("{} {:.2f} against {:.2f}", disaggregated_lanes, apart, together);
}

bool is_pair(const RequestRow& together, const RequestRow& apart) {
  RequestCase test = together.test;
  test.lanes = apart.test.lanes;
  return together.is_measured() && apart.is_measured() && together.test.lanes == colocated_lanes &&
         apart.test.lanes == disaggregated_lanes && test == apart.test;
}

/// "random 1024+128, closed loop, 4 at once", with what else rows may differ in.
std::string pair_name(const RequestCase& test) {
  std::string name = fmt::format("{}, {}", test.workload(), test.experiment());
  if (test.condition != Condition::cold) name += fmt::format(", {}", name_of(test.condition));
  for (const std::string* const more : {&test.policy, &test.spec_acceptance}) {
    if (!more->empty()) name += ", " + *more;
  }
  return name;
}

}  // namespace

std::string lane_sweep_verdict(std::span<const RequestRow> rows) {
  std::string text;
  for (const RequestRow& together : rows) {
    const auto apart = std::find_if(rows.begin(), rows.end(), [&](const RequestRow& other) {
      return is_pair(together, other);
    });
    if (apart == rows.end()) continue;
    const RequestMetrics one = pooled_metrics(together, {.percentages = {}, .goals = {}});
    const RequestMetrics other = pooled_metrics(*apart, {.percentages = {}, .goals = {}});
    text += fmt::format("{}: tokens/s of the device: {}; of a user: {}\n", pair_name(together.test),
                        winner_text(one.output_throughput, other.output_throughput),
                        winner_text(tokens_per_s_of_user(one), tokens_per_s_of_user(other)));
  }
  return text;
}

}  // namespace hyb::app
