#include "core/engine/engine_usage.h"

#include <cstddef>
#include <numeric>

namespace hyb {
namespace {

std::int64_t sum_of(const std::array<std::int64_t, drafts_max>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

DraftCounts SpeculationStats::total() const {
  return {.steps = verify_steps,
          .accepted = sum_of(accepted),
          .rejected = sum_of(drafted) + branch_drafts - sum_of(accepted)};
}

std::vector<double> SpeculationStats::accepted_shares() const {
  std::vector<double> shares;
  for (std::size_t i = 0; i < drafted.size() && drafted[i] > 0; ++i) {
    shares.push_back(static_cast<double>(accepted[i]) / static_cast<double>(drafted[i]));
  }
  return shares;
}

SpeculationStats& SpeculationStats::operator+=(const SpeculationStats& more) {
  verify_steps += more.verify_steps;
  for (std::size_t i = 0; i < drafted.size(); ++i) {
    drafted[i] += more.drafted[i];
    accepted[i] += more.accepted[i];
  }
  branch_drafts += more.branch_drafts;
  branches_taken += more.branches_taken;
  drafting_seconds += more.drafting_seconds;
  return *this;
}

SpeculationStats SpeculationStats::operator-(const SpeculationStats& before) const {
  SpeculationStats since = *this;
  since.verify_steps -= before.verify_steps;
  for (std::size_t i = 0; i < drafted.size(); ++i) {
    since.drafted[i] -= before.drafted[i];
    since.accepted[i] -= before.accepted[i];
  }
  since.branch_drafts -= before.branch_drafts;
  since.branches_taken -= before.branches_taken;
  since.drafting_seconds -= before.drafting_seconds;
  return since;
}

}  // namespace hyb
