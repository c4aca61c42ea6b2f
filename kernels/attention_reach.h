#pragma once

#include <cstdint>

namespace hyb::kernels {

/// The keys of its sequence that a token attends to: of those up to its own position the last
/// `window`, its own included, and of these the ones in its chunk, that is from position
/// floor(own / chunk) * chunk on. 0: no such bound.
struct AttentionReach {
  std::int64_t window = 0, chunk = 0;
};

// In an anonymous namespace for the files that are compiled for one instruction set.
namespace {

/// The first position that a token at position `own` attends to. Rises with `own`.
constexpr std::int64_t first_key(const AttentionReach& reach, std::int64_t own) {
  const std::int64_t in_window =
      reach.window == 0 || own < reach.window ? 0 : own - reach.window + 1;
  const std::int64_t in_chunk = reach.chunk == 0 ? 0 : own / reach.chunk * reach.chunk;
  return in_window > in_chunk ? in_window : in_chunk;
}

/// The position from which on tokens no longer attend to `key`.
constexpr std::int64_t reach_end(const AttentionReach& reach, std::int64_t key) {
  constexpr std::int64_t none = INT64_MAX;
  const std::int64_t of_window = reach.window == 0 ? none : key + reach.window;
  const std::int64_t of_chunk = reach.chunk == 0 ? none : (key / reach.chunk + 1) * reach.chunk;
  return of_window < of_chunk ? of_window : of_chunk;
}

}  // namespace
}  // namespace hyb::kernels
