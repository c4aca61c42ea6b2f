#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/bench/counts.h"
#include "models/roofline.h"

namespace hyb::app {

/// One row of the benchmark: `batch` sequences that stand at `depth` take in `prompt` tokens, one
/// after the other, then draw `generate` tokens, all at once.
struct BenchCase {
  std::int32_t prompt = 0;
  std::int32_t generate = 0;
  std::int32_t depth = 0;
  std::int32_t batch = 1;
  std::string graphs = {};  ///< mode of --graphs on a card, else empty

  /// "pp512", "tg128", "pp512+tg128", with " @ d4096" behind it.
  std::string name() const;

  /// Of one sequence.
  std::int32_t length() const { return depth + prompt + generate; }

  /// What a rate is per second of: prompt and generated tokens of all sequences.
  std::int64_t tokens() const { return std::int64_t{batch} * (std::int64_t{prompt} + generate); }

  bool operator==(const BenchCase&) const = default;
};

/// What was asked for: every depth with every prompt, every generation and every pair; generations
/// and pairs with every batch; all in every mode. Zeros are skipped.
struct BenchGrid {
  std::vector<std::int32_t> prompts, generations, depths, batches;
  std::vector<CountPair> pairs;
  std::vector<std::string> graphs = {""};
};

std::vector<BenchCase> cases_of(const BenchGrid& grid);

/// One call of the runner: the same span for sequences `first` to first + shape.sequences - 1.
struct BenchStep {
  std::int32_t first;
  models::StepShape shape;
};

/// The steps that bring one sequence from position `from` to the case's depth; no logits are
/// wanted.
std::vector<BenchStep> depth_steps(const BenchCase& test, std::int32_t sequence, std::int32_t from,
                                   std::int32_t chunk_tokens);

/// The steps that are timed. Logits are computed for the last prompt token and for every generated
/// one.
std::vector<BenchStep> timed_steps(const BenchCase& test, std::int32_t chunk_tokens);

}  // namespace hyb::app
