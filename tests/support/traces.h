#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/engine/trace.h"

namespace hyb::testing {

/// A request of whole segments.
inline ReplayRequest request_of(std::vector<Segment> prompt, std::vector<Segment> output = {}) {
  return {.session = "s", .prompt = std::move(prompt), .output = std::move(output)};
}

/// Conversations that take turns: a prompt is all that was said before and something new; every
/// fourth session branches off another one, and some forget a piece in the middle.
inline std::vector<ReplayRequest> random_trace(std::uint64_t seed, int requests, int sessions,
                                               std::int32_t length_max = 60) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::size_t>(random() % n); };
  std::vector<std::vector<Segment>> histories(static_cast<std::size_t>(sessions));
  std::int64_t last = 10;
  const auto fresh = [&] {
    return Segment{++last,
                   1 + static_cast<std::int32_t>(below(static_cast<std::uint64_t>(length_max)))};
  };
  std::vector<ReplayRequest> trace;
  for (int i = 0; i < requests; ++i) {
    std::vector<Segment>& history = histories[below(histories.size())];
    if (history.empty()) history = {{1, 20}};
    if (below(12) == 0) history = histories[below(histories.size())];
    if (history.empty()) history = {{1, 20}};
    if (history.size() > 12) history = {{1, 20}};
    if (below(8) == 0 && history.size() > 3) history.erase(history.begin() + 2);
    history.push_back(fresh());
    const Segment answer = fresh();
    trace.push_back({.time_s = static_cast<double>(i),
                     .session = std::to_string(&history - histories.data()),
                     .turn = 0,
                     .prompt = history,
                     .output = {answer}});
    history.push_back(answer);
  }
  return trace;
}

}  // namespace hyb::testing
