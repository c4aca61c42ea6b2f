#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/queue.h"
#include "kernels/recording.h"
#include "kernels/tensor.h"

namespace hyb::models {

/// Choice of the work that a card replays from recordings (CUDA graphs). The answers are the same.
struct GraphOptions {
  bool decode = true;  ///< steps of one token per sequence, drafts after it, and making these
  bool mixed = true;   ///< steps with prompts, whose shapes recur

  bool operator==(const GraphOptions&) const = default;
};

/// A recording depends on this: sizes, what the decoder does with them, and the address of the
/// table whose size changes.
struct WorkShape {
  std::int64_t tokens, spans, samples, positions, ring_spans, ring_tokens;
  bool single_tokens;
  const void* pages;
  std::int64_t draft_passes = 0;  ///< of a draft layer; 0: it is a step
  bool operator==(const WorkShape&) const = default;
};

/// Recorded work leaves this on the card; empty where nothing is sampled.
struct WorkResult {
  kernels::Tensor logits;  ///< [rows, vocab] of the sampled rows, followed by rows of padding
  kernels::Tensor tokens;  ///< as DeviceSampler::draw leaves them, one per row
};

/// Recordings of work by its shape: a shape is recorded the second time it comes, and replayed from
/// then on. There are up to 128; the least recently used is dropped for another.
class Recordings {
 public:
  /// The queue outlives it. Work is on a card.
  Recordings(kernels::Queue& queue, const GraphOptions& options)
      : queue_(queue), options_(options) {}

  const GraphOptions& options() const { return options_; }
  /// From the next work on. A change drops what was recorded.
  void set_options(const GraphOptions& options);

  /// Enqueues `work`: by a call of it, or by a replay. Work of one shape differs in the contents
  /// of the tables that it reads, and in nothing else. Throws as it does.
  WorkResult run(const WorkShape& shape, const std::function<WorkResult()>& work);

  /// Frees the card's memory of all recordings, once their work is done; shapes that recur are
  /// recorded again.
  void drop();

  /// Recordings made so far.
  std::int32_t recorded() const { return recorded_; }
  /// Counts the works run that were replayed.
  std::int64_t replayed() const { return replayed_; }

 private:
  struct Entry {
    WorkShape shape;
    std::uint64_t last_use;
    std::unique_ptr<kernels::Recording> recording;  ///< null: seen once
    WorkResult result;
  };

  Entry& entry_of(const WorkShape& shape);
  void record(Entry& entry, const std::function<WorkResult()>& work);

  kernels::Queue& queue_;
  GraphOptions options_;
  std::vector<Entry> entries_;
  std::uint64_t uses_ = 0;
  std::int32_t recorded_ = 0;
  std::int64_t replayed_ = 0;
};

}  // namespace hyb::models
