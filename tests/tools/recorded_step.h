#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "kernels/card.h"
#include "models/runner.h"
#include "tests/cuda_emulator/emulator.h"

namespace hyb::models::testing {

/// A decode step of `count` sequences, or a chunk of a prompt; its first token is at `position`.
struct Workload {
  bool is_decode;
  std::int32_t count, position;

  std::int32_t sequences() const { return is_decode ? count : 1; }
  std::int32_t tokens() const { return is_decode ? 1 : count; }  ///< of each sequence
};

/// Of "decode:ROWS:POSITION" or "prefill:TOKENS:POSITION"; Error(usage) for anything else.
inline Workload workload_of(const std::string& text) {
  char kind[16] = {};
  Workload workload = {};
  if (std::sscanf(text.c_str(), "%15[a-z]:%d:%d", kind, &workload.count, &workload.position) != 3 ||
      workload.count < 1 || workload.position < 0 ||
      (std::strcmp(kind, "decode") != 0 && std::strcmp(kind, "prefill") != 0)) {
    throw Error(ErrorKind::usage,
                "a step is decode:ROWS:POSITION or prefill:TOKENS:POSITION, got " + text);
  }
  workload.is_decode = std::strcmp(kind, "decode") == 0;
  return workload;
}

/// What one step enqueues. Its sequences share pages, whose content means nothing.
inline std::vector<emulator::RecordedWork> record_step(kernels::Queue& queue, const Plan& plan,
                                                       const Weights& weights,
                                                       const Geometry& geometry,
                                                       const Workload& workload) {
  const std::int32_t rows = workload.sequences(), tokens = workload.tokens();
  const std::int32_t positions = workload.position + tokens;
  const std::int32_t pages = (positions + geometry.page_tokens - 1) / geometry.page_tokens;
  ModelRunner runner(queue, plan, weights, geometry,
                     {.memory = flat_memory(geometry, pages, rows + 1,
                                            kernels::handle_bytes_min(kernels::Device::cuda)),
                      .step_tokens = rows * tokens,
                      .step_rows = rows,
                      .positions_max = positions,
                      .vocab_used = plan.vocab,
                      .graphs = {.decode = false, .mixed = false}});
  const MemoryLayout layout = runner.capacity().memory;
  const SamplingParams greedy;
  const std::vector<TokenId> prompt(static_cast<std::size_t>(tokens), TokenId{5});
  std::vector<PageTable> tables(layout.groups.size());
  for (PageTable& table : tables) {
    for (std::int32_t i = 0; i < pages; ++i) table.push_back(PageId{i});
  }
  std::vector<Span> spans;
  for (std::int32_t row = 0; row < rows; ++row) {
    const SlotId slot{layout.first_unit(layout.slot_view()) + row};
    Span span = {.tokens = prompt,
                 .position = workload.position,
                 .tables = tables,
                 .read_slot = workload.position == 0 ? no_slot : slot,
                 .write_slot = slot,
                 .samples = {}};
    if (workload.is_decode) {
      span.samples.push_back(
          {.token = 0, .params = &greedy, .draw = 0, .history = {}, .prompt_tokens = 0});
    }
    spans.push_back(std::move(span));
  }
  emulator::keep_records();
  emulator::take_records();
  runner.launch({.orders = {}, .spans = spans, .keep_logits = false});
  std::vector<emulator::RecordedWork> records = emulator::take_records();
  if (!emulator::is_recording_only()) runner.wait();
  emulator::end_records();
  return records;
}

}  // namespace hyb::models::testing
