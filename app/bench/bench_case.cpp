#include "app/bench/bench_case.h"

#include <fmt/format.h>

#include <algorithm>

namespace hyb::app {
namespace {

/// `tokens` of the sequence, from `position`, chunk by chunk.
void add_chunks(std::vector<BenchStep>& steps, std::int32_t sequence, std::int32_t position,
                std::int32_t tokens, std::int32_t chunk_tokens, bool wants_logits) {
  for (std::int32_t done = 0; done < tokens;) {
    const std::int32_t count = std::min(chunk_tokens, tokens - done);
    done += count;
    steps.push_back({.first = sequence,
                     .shape = {.sequences = 1,
                               .tokens = count,
                               .position = position + done - count,
                               .rows = wants_logits && done == tokens ? 1 : 0}});
  }
}

}  // namespace

std::string BenchCase::name() const {
  std::string name;
  if (prompt > 0) name = fmt::format("pp{}", prompt);
  if (generate > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", generate);
  if (depth > 0) name += fmt::format(" @ d{}", depth);
  return name;
}

std::vector<BenchCase> cases_of(const BenchGrid& grid) {
  std::vector<BenchCase> cases;
  const auto add = [&](BenchCase test) {
    for (const std::string& graphs : grid.graphs) {
      test.graphs = graphs;
      cases.push_back(test);
    }
  };
  for (const std::int32_t depth : grid.depths) {
    for (const std::int32_t prompt : grid.prompts) {
      if (prompt > 0) add({.prompt = prompt, .depth = depth});
    }
    for (const std::int32_t batch : grid.batches) {
      for (const std::int32_t generate : grid.generations) {
        if (generate > 0) add({.generate = generate, .depth = depth, .batch = batch});
      }
      for (const CountPair& pair : grid.pairs) {
        add({.prompt = pair.first, .generate = pair.second, .depth = depth, .batch = batch});
      }
    }
  }
  return cases;
}

std::vector<BenchStep> depth_steps(const BenchCase& test, std::int32_t sequence, std::int32_t from,
                                   std::int32_t chunk_tokens) {
  std::vector<BenchStep> steps;
  add_chunks(steps, sequence, from, test.depth - from, chunk_tokens, false);
  return steps;
}

std::vector<BenchStep> timed_steps(const BenchCase& test, std::int32_t chunk_tokens) {
  std::vector<BenchStep> steps;
  for (std::int32_t sequence = 0; sequence < test.batch; ++sequence) {
    add_chunks(steps, sequence, test.depth, test.prompt, chunk_tokens, true);
  }
  for (std::int32_t i = 0; i < test.generate; ++i) {
    steps.push_back({.first = 0,
                     .shape = {.sequences = test.batch,
                               .tokens = 1,
                               .position = test.depth + test.prompt + i,
                               .rows = 1}});
  }
  return steps;
}

}  // namespace hyb::app
