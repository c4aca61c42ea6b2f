#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/ops/sample.h"
#include "kernels/queue.h"
#include "kernels/recording.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// sample() on a card in parts, so that the part between logits and tokens can be recorded with the
/// ops before it, and the answers fetched while the host does something else. Round after round:
/// stage, draw (or the replay of a recording that has it), ask, answers. The next round may be
/// staged, drawn and requested before the answers of this one have arrived.
class DeviceSampler {
 public:
  virtual ~DeviceSampler() = default;

  /// Uploads the parameters of the rows, and of rows after them that are not sampled, `count` in
  /// all. Throws Error(usage) as sample() does.
  virtual void stage(std::span<const SampleRow> rows, std::int64_t count,
                     std::int32_t vocab_used) = 0;

  /// Chooses for the rows staged last, with the same `vocab_used`, from f32 logits [count, V].
  /// `tokens` (i32 [count], on the card; or empty) becomes the ids: 0 for a row that is not
  /// sampled, -1 where no token could be chosen. May be recorded: a replay wants the
  /// same count.
  virtual void draw(const Tensor& logits, std::int32_t vocab_used, const Tensor& tokens) = 0;

  /// Enqueues the copy of the answers to the rows staged last, of which draw() gave `tokens`: the
  /// ids alone, unless `tokens` is empty or a row wants logprobs.
  virtual void ask(const Tensor& tokens) = 0;

  /// Waits for the copies of the oldest ask() that was not answered, of two at most: one per row.
  /// Valid until the next call.
  virtual std::span<const SampledToken> answers() = 0;
};

/// For rounds of at most `rows_max` rows, on a queue on a card, which outlives it. Throws
/// Error(memory).
std::unique_ptr<DeviceSampler> make_device_sampler(Queue& queue, std::int64_t rows_max);

/// Returns the bytes that it takes of the card's memory and of pinned memory; nothing on the CPU.
StagedBytes device_sampler_bytes(Device device, std::int64_t rows_max);

}  // namespace hyb::kernels
