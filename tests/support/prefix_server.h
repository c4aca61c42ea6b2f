#pragma once

#include <doctest/doctest.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/memory/prefix_cache.h"
#include "tests/support/prefix_keys.h"

namespace hyb::testing {

/// A cache and a pool, and requests that are served one after the other.
struct PrefixServer {
  explicit PrefixServer(const ToyShape& shape, PrefixCacheOptions options = {})
      : pool(toy_layout(shape)), cache(pool, lenient(options)) {}

  static PrefixCacheOptions lenient(PrefixCacheOptions options) {
    options.branch_tokens_min = 1;
    return options;
  }

  /// Room for a running sequence: whatever must go, goes.
  bool advance(Memory& memory, std::int32_t length, const Snapshot* keep = nullptr) {
    while (!memory.reserve(length - memory.length())) {
      if (!cache.evict(keep)) return false;
    }
    memory.keep(length - memory.length());
    (void)pool.take_orders();
    return true;
  }

  /// Runs a prompt and its answer. Returns the prompt tokens that were not run, -1: no memory.
  std::int32_t serve(const Key& prompt, const Key& answer,
                     const std::vector<std::int32_t>& message_ends = {}) {
    Lookup lookup = cache.look_up(prompt);
    std::optional<Memory> memory = cache.resume(lookup);
    while (!memory) {
      if (!cache.evict(lookup.snapshot) && !cache.evict()) return -1;
      lookup = cache.look_up(prompt);
      memory = cache.resume(lookup);
    }
    const std::int32_t resumed = memory->length();
    REQUIRE(resumed == lookup.resumable);
    for (const Cut& cut : cache.cuts(lookup, prompt, message_ends)) {
      REQUIRE(cut.length > memory->length());
      REQUIRE(cut.length < length_of(prompt));
      if (!advance(*memory, cut.length)) return -1;
      cache.publish(prompt, *memory, cut.place);
    }
    Key key = prompt;
    key.insert(key.end(), answer.begin(), answer.end());
    if (!advance(*memory, length_of(key))) return -1;
    cache.conclude(key, std::move(*memory));
    cache.audit();
    const auto checkpoints = cache.checkpoints();
    pool.audit({}, checkpoints);
    return resumed;
  }

  MemoryPool pool;
  PrefixCache cache;
};

}  // namespace hyb::testing
