#pragma once

#include <chrono>
#include <cstdint>

namespace hyb {

/// Counts of what went between the memory of prompts and that of answers.
struct HandoverStats {
  std::int64_t sequences = 0;  ///< handed over, with what follows of them
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;  ///< copied to the memory of answers
  /// From the first token of an answer until it can go on, in all.
  std::chrono::nanoseconds time{0};
  std::int64_t fetches = 0;        ///< snapshots that prompts began with, copied from there
  std::int64_t bytes_fetched = 0;  ///< for these
  std::int64_t stayed = 0;         ///< prompts that ran where the snapshot was that they began with
  std::int64_t restarts = 0;  ///< room that was given up for others: what it had is copied again
};

}  // namespace hyb
