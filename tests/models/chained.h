#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "tests/models/loaded.h"

namespace hyb::models::testing {

/// A sequence cut into spans: piece i reads what piece i - 1 left and writes slot i of the
/// sequence. The first one starts from zeros, or after the tokens that are not in it from the
/// sequence's last slot.
struct CutSequence {
  std::int32_t sequence;
  std::vector<std::int32_t> starts;  ///< of its pieces, then their end
};

/// A runner with room for a few sequences on any device; each has slots and pages of its own.
class ChainBench {
 public:
  static constexpr std::int32_t sequences = 3, slots_each = 12, length_max = 128;

  /// load(queue) makes the model.
  template <typename Load>
  ChainBench(Load load, kernels::Device device, const kernels::QueueOptions& options,
             const GraphOptions& graphs = {})
      : queue(device, options),
        model(load(queue)),
        runner(queue, model.plan, model.weights, model.geometry,
               {.memory = flat_memory(model.geometry, sequences * pages_each(),
                                      sequences * slots_each, kernels::handle_bytes_min(device)),
                .step_tokens = sequences * length_max,
                .sequences_max = sequences * length_max,
                .positions_max = length_max,
                .vocab_used = model.plan.vocab,
                .graphs = graphs}) {
    const MemoryLayout layout = runner.capacity().memory;
    first_slot_ = layout.first_unit(layout.slot_view());
    std::mt19937 random(11);
    for (std::int32_t sequence = 0; sequence < sequences; ++sequence) {
      std::vector<PageTable>& tables = tables_.emplace_back(layout.groups.size());
      for (std::int32_t i = 0; i < pages_each() && !tables.empty(); ++i) {
        tables[0].push_back(PageId{sequence + (pages_each() - 1 - i) * sequences});
      }
      std::vector<TokenId>& tokens = tokens_.emplace_back();
      for (std::int32_t i = 0; i < length_max; ++i) {
        tokens.push_back(
            TokenId{static_cast<std::int32_t>(random() % static_cast<unsigned>(model.plan.vocab))});
      }
    }
  }

  SlotId slot(std::int32_t sequence, std::int32_t piece) const {
    return SlotId{first_slot_ + sequence * slots_each + piece};
  }

  /// Piece `piece` of a sequence; all its rows are sampled.
  Span span(const CutSequence& cut, std::int32_t piece) const {
    const auto sequence = static_cast<std::size_t>(cut.sequence);
    const std::int32_t start = cut.starts[static_cast<std::size_t>(piece)];
    const std::int32_t count = cut.starts[static_cast<std::size_t>(piece) + 1] - start;
    Span made = {
        .tokens = std::span(tokens_[sequence])
                      .subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(count)),
        .position = start,
        .tables = tables_[sequence],
        .read_slot = start == 0   ? no_slot
                     : piece == 0 ? slot(cut.sequence, slots_each - 1)
                                  : slot(cut.sequence, piece - 1),
        .write_slot = slot(cut.sequence, piece),
        .samples = {}};
    for (std::int32_t i = 0; i < count; ++i) {
      made.samples.push_back(
          {.token = i, .params = &greedy_, .draw = 0, .history = {}, .prompt_tokens = 0});
    }
    return made;
  }
  std::vector<Span> spans(const CutSequence& cut) const {
    std::vector<Span> all;
    for (std::size_t i = 0; i + 1 < cut.starts.size(); ++i) {
      all.push_back(span(cut, static_cast<std::int32_t>(i)));
    }
    return all;
  }

  /// The first tokens of a sequence, whose state the sequence's last slot has then.
  void start(std::int32_t sequence, std::int32_t count) {
    Span first = span({sequence, {0, count}}, 0);
    first.write_slot = slot(sequence, slots_each - 1);
    run({first});
  }

  /// Logits of every row.
  std::vector<float> run(const std::vector<Span>& spans) {
    return runner.run({.orders = {}, .spans = spans, .keep_logits = true}).logits;
  }

  std::vector<std::byte> slot_bytes(std::int32_t sequence, std::int32_t piece) {
    const MemoryLayout layout = runner.capacity().memory;
    std::vector<std::byte> bytes(layout.unit_bytes(layout.slot_view()));
    runner.read(layout.slot_view(), index(slot(sequence, piece)), bytes);
    return bytes;
  }

 private:
  std::int32_t pages_each() const { return length_max / model.geometry.page_tokens; }

  SamplingParams greedy_;
  std::vector<std::vector<PageTable>> tables_;
  std::vector<std::vector<TokenId>> tokens_;
  std::int32_t first_slot_ = 0;

 public:
  kernels::Queue queue;
  Model model;
  ModelRunner runner;
};

/// What sequences leave: logits of all their rows, and the bytes of every slot that was written.
struct Left {
  std::vector<float> logits;
  std::vector<std::vector<std::byte>> slots;
  bool operator==(const Left&) const = default;
};

/// Sequences in one step, after those that do not start at 0 were begun in one of their own.
inline Left run_at_once(ChainBench& bench, const std::vector<CutSequence>& cuts) {
  Left left;
  std::vector<Span> spans;
  for (const CutSequence& cut : cuts) {
    if (cut.starts[0] > 0) bench.start(cut.sequence, cut.starts[0]);
    for (const Span& span : bench.spans(cut)) spans.push_back(span);
  }
  left.logits = bench.run(spans);
  for (const CutSequence& cut : cuts) {
    for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(cut.starts.size()); ++i) {
      left.slots.push_back(bench.slot_bytes(cut.sequence, i));
    }
  }
  return left;
}

/// The same with a step for every piece.
inline Left run_apart(ChainBench& bench, const std::vector<CutSequence>& cuts) {
  Left left;
  for (const CutSequence& cut : cuts) {
    if (cut.starts[0] > 0) bench.start(cut.sequence, cut.starts[0]);
    for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(cut.starts.size()); ++i) {
      const std::vector<float> logits = bench.run({bench.span(cut, i)});
      left.logits.insert(left.logits.end(), logits.begin(), logits.end());
      left.slots.push_back(bench.slot_bytes(cut.sequence, i));
    }
  }
  return left;
}

/// Chains alone and beside others, long and short, from zeros and from a slot; one of single
/// tokens.
inline std::vector<std::vector<CutSequence>> chained_steps() {
  return {{{0, {0, 70, 71}}},
          {{1, {0, 5}}, {0, {0, 1, 2, 3, 5, 40, 41, 44}}, {2, {9, 10}}},
          {{2, {20, 84, 100}}, {0, {3, 4}}, {1, {0, 33, 34}}},
          {{0, {7, 8, 9, 10}}, {1, {5, 6}}, {2, {30, 31, 32}}}};
}

}  // namespace hyb::models::testing
