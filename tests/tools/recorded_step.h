#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "kernels/card.h"
#include "models/runner.h"
#include "tests/cuda_emulator/emulator.h"

namespace hyb::models::testing {

enum class WorkKind : std::uint8_t { decode, prefill, verify, draft };

/// A decode step of `count` sequences, a chunk of a prompt, a step that verifies drafts of each
/// sequence, or the making of these by a draft layer. The first token is at `position`.
struct Workload {
  WorkKind kind;
  std::int32_t count, position;
  std::int32_t drafts = 0;         ///< of each sequence
  std::int32_t branch_drafts = 0;  ///< of a branch of each; 0: there are none

  std::int32_t sequences() const { return kind == WorkKind::prefill ? 1 : count; }
  bool has_drafts() const { return kind == WorkKind::verify || kind == WorkKind::draft; }
  bool has_branch() const { return branch_drafts > 0; }
  /// Of a sequence's own span in a step.
  std::int32_t span_tokens() const {
    return kind == WorkKind::prefill ? count : kind == WorkKind::verify ? 1 + drafts : 1;
  }
  /// Of a sequence, its branch's included.
  std::int32_t tokens() const { return span_tokens() + (has_branch() ? 1 + branch_drafts : 0); }
};

/// Of "decode:ROWS:POSITION", "prefill:TOKENS:POSITION", "verify:ROWS:POSITION:DRAFTS",
/// "verify:ROWS:POSITION:DRAFTS:BRANCH" or "draft:ROWS:POSITION:DRAFTS"; Error(usage) for anything
/// else.
inline Workload workload_of(const std::string& text) {
  constexpr std::array<const char*, 4> kinds = {"decode", "prefill", "verify", "draft"};
  char kind[16] = {};
  Workload load = {};
  const int read = std::sscanf(text.c_str(), "%15[a-z]:%d:%d:%d:%d", kind, &load.count,
                               &load.position, &load.drafts, &load.branch_drafts);
  const auto found = std::ranges::find(kinds, std::string_view(kind));
  load.kind = static_cast<WorkKind>(found - kinds.begin());
  const bool is_whole = load.kind == WorkKind::verify  ? read == 4 || read == 5
                        : load.kind == WorkKind::draft ? read == 4 && load.position > 0
                                                       : read == 3;
  if (found == kinds.end() || !is_whole || load.count < 1 || load.position < 0 ||
      (load.has_drafts() && (load.drafts < 1 || load.drafts > drafts_max)) ||
      (read == 5 && (load.branch_drafts < 1 || load.branch_drafts > drafts_max))) {
    throw Error(ErrorKind::usage,
                "a step is decode:ROWS:POSITION, prefill:TOKENS:POSITION, "
                "verify:ROWS:POSITION:DRAFTS[:DRAFTS OF A BRANCH] or draft:ROWS:POSITION:DRAFTS, "
                "got " +
                    text);
  }
  return load;
}

/// Spans of one workload. Its sequences share pages, whose content means nothing.
class WorkloadSpans {
 public:
  WorkloadSpans(const Workload& load, const MemoryLayout& layout, std::int32_t pages)
      : load_(load),
        layout_(layout),
        tokens_(static_cast<std::size_t>(std::max(load.span_tokens(), 1 + load.branch_drafts)),
                TokenId{5}),
        tables_(layout.groups.size()) {
    for (PageTable& table : tables_) {
      for (std::int32_t i = 0; i < pages; ++i) table.push_back(PageId{i});
    }
  }

  std::vector<Span> all() const {
    std::vector<Span> spans;
    for (std::int32_t row = 0; row < load_.sequences(); ++row) spans.push_back(own(row));
    for (std::int32_t row = 0; row < load_.sequences() && load_.has_branch(); ++row) {
      spans.push_back(branch(row));
    }
    return spans;
  }

 private:
  SlotId slot(std::int32_t i) const { return SlotId{layout_.first_unit(layout_.slot_view()) + i}; }
  RingId ring(std::int32_t i) const {
    if (layout_.rings.per_superblock == 0) return no_ring;
    return RingId{layout_.first_unit(layout_.ring_view()) + i};
  }
  hyb::SampleRow sample(std::int32_t token) const {
    return {.token = token, .params = &greedy_, .draw = 0, .history = {}, .prompt_tokens = 0};
  }

  Span own(std::int32_t row) const {
    const bool drafts = load_.kind == WorkKind::draft;
    Span span = {.tokens = std::span(tokens_).first(static_cast<std::size_t>(load_.span_tokens())),
                 .position = load_.position,
                 .tables = tables_,
                 .read_slot = load_.position == 0 ? no_slot : slot(row),
                 .write_slot = drafts               ? no_slot
                               : load_.has_branch() ? slot(load_.sequences() + row)
                                                    : slot(row),
                 .samples = {},
                 .drafts = load_.drafts,
                 .ring = load_.has_drafts() && !drafts ? ring(row) : no_ring};
    if (load_.kind == WorkKind::prefill) return span;
    for (std::int32_t i = 0; i < load_.span_tokens(); ++i) span.samples.push_back(sample(i));
    return span;
  }

  /// The sequence's own drafts have all rows but the last.
  Span branch(std::int32_t row) const {
    Span span = own(row);
    span.tokens = std::span(tokens_).first(static_cast<std::size_t>(1 + load_.branch_drafts));
    span.write_slot = no_slot;
    span.samples = {sample(load_.branch_drafts)};
    span.drafts = load_.branch_drafts;
    if (span.ring != no_ring) span.branch_ring = ring(load_.sequences() + row);
    return span;
  }

  Workload load_;
  MemoryLayout layout_;
  SamplingParams greedy_;
  std::vector<TokenId> tokens_;
  std::vector<PageTable> tables_;
};

/// What the workload enqueues.
inline std::vector<emulator::RecordedWork> record_step(kernels::Queue& queue, const Plan& plan,
                                                       const Weights& weights,
                                                       const Geometry& geometry,
                                                       const Workload& load) {
  const std::int32_t rows = load.sequences(), tokens = rows * load.tokens();
  const std::int32_t positions =
      load.position +
      std::max(load.span_tokens() + (load.kind == WorkKind::draft ? load.drafts : 0),
               1 + load.branch_drafts);
  const std::int32_t pages = (positions + geometry.page_tokens - 1) / geometry.page_tokens;
  const FlatRings rings = {.count = load.has_drafts() ? 2 * rows : 0,
                           .tokens = load.has_drafts() ? drafts_max : 0};
  ModelRunner runner(
      queue, plan, weights, geometry,
      {.memory = flat_memory(geometry, pages, 2 * rows + 1,
                             kernels::handle_bytes_min(kernels::Device::cuda), rings),
       .step_tokens = tokens,
       .sequences_max = rows,
       .positions_max = positions,
       .vocab_used = plan.vocab,
       .graphs = {.decode = false, .mixed = false},
       .step_samples = load.kind == WorkKind::verify ? tokens : rows,
       .step_branches = load.has_branch() ? rows : 0});
  const WorkloadSpans spans(load, runner.capacity().memory, pages);
  const Step step = {.orders = {}, .spans = spans.all(), .keep_logits = false};
  emulator::keep_records();
  emulator::take_records();
  if (load.kind == WorkKind::draft) {
    runner.draft(step);
  } else {
    runner.launch(step);
  }
  std::vector<emulator::RecordedWork> records = emulator::take_records();
  if (load.kind != WorkKind::draft && !emulator::is_recording_only()) runner.wait();
  emulator::end_records();
  return records;
}

}  // namespace hyb::models::testing
