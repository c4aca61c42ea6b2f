#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "tests/sim/listener.h"
#include "tests/sim/toy_model.h"
#include "tests/sim/toy_runner.h"

namespace hyb::sim {

using Tokens = std::vector<TokenId>;

inline const FullAttention fixture_attention;

inline Capacity capacity_of(const MemoryLayout& memory) {
  return {.memory = memory, .step_tokens = 64, .sequences_max = 16, .vocab = 16};
}

inline Capacity flat(std::int32_t pages, std::int32_t slots) {
  return capacity_of(flat_layout({.pages = pages, .slots = slots, .page_tokens = 4}));
}

/// A superblock is 6 pages, 2 slots or 4 packed snapshots.
inline Capacity elastic(std::int32_t superblocks) {
  return capacity_of(
      {.page_tokens = 4,
       .groups = {{.kind = &fixture_attention, .page_bytes = 10, .pages_per_superblock = 6}},
       .slots = {.bytes = 30, .per_superblock = 2},
       .packed = {.bytes = 15, .per_superblock = 4},
       .superblock_bytes = 60,
       .superblocks = superblocks,
       .fixed_superblocks = {}});
}

inline const EngineOptions usual = {
    .length_max = 2000, .chunk_tokens = 32, .prefixes = {}, .audit = true};

/// `common` tokens that all have, then `own` ones that depend on `salt`.
inline Tokens prompt_of(std::int32_t common, std::int32_t own = 0, std::int32_t salt = 0) {
  Tokens prompt;
  for (std::int32_t i = 0; i < common; ++i) prompt.push_back(TokenId{i * i % 13});
  for (std::int32_t i = 0; i < own; ++i) prompt.push_back(TokenId{(salt + i * (salt + 3)) % 16});
  return prompt;
}

inline Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Request request_of(Tokens prompt, std::int32_t max_tokens = 3) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  return request;
}

struct Fixture {
  explicit Fixture(const Capacity& capacity = flat(1000, 20), const EngineOptions& options = usual,
                   const ToyModel& toy = {})
      : model(toy), runner(capacity, model), engine(runner, nullptr, options) {}

  void submit(const Request& request) {
    requests.push_back(request);
    ids.push_back(engine.submit(request, sink));
  }

  void run() {
    while (!engine.idle()) engine.step();
  }

  /// Every answer so far is the naive model's.
  const Completion& completion(std::size_t i, std::int32_t choice = 0) {
    const Completion& got = *sink.find(ids[i], choice)->completion;
    if (!requests[i].prefill_only && got.reason != FinishReason::cancelled) {
      CHECK(got.tokens ==
            answer_of(model, nullptr, engine.length_max(), requests[i], choice).tokens);
    }
    return got;
  }

  const Completion& ask(const Request& request) {
    submit(request);
    run();
    return completion(ids.size() - 1);
  }

  ToyModel model;
  ToyRunner runner;
  Engine engine;
  Listener sink;
  std::vector<Request> requests;
  std::vector<RequestId> ids;
};

}  // namespace hyb::sim
