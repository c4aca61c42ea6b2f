#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/card.h"
#include "models/model.h"
#include "models/runner.h"

namespace hyb::models::testing {

/// Where the tests' files were when they were built, or where the environment says: a program built
/// elsewhere finds them so.
inline std::filesystem::path tests_folder() {
  const char* const here = std::getenv("HYB_TESTS_DIR");
  return here != nullptr ? here : HYB_TESTS_DIR;
}
inline const std::filesystem::path golden_folder = tests_folder() / "golden";
inline constexpr std::int32_t positions_max = 256;

inline std::vector<std::string> fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder)) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// A tiny model and a runner with room for one sequence, whose page table is scrambled.
struct Loaded {
  Loaded(const std::filesystem::path& folder, DType activation, kernels::Isa isa)
      : Loaded(folder, GeometryOptions{.load = {.activation = activation}}, isa) {}
  Loaded(const std::filesystem::path& folder, const GeometryOptions& options, kernels::Isa isa)
      : Loaded(folder, options, kernels::Device::cpu, {.threads = 2, .isa = isa}) {}
  Loaded(const std::filesystem::path& folder, const GeometryOptions& options,
         kernels::Device device, const kernels::QueueOptions& queue_options)
      : Loaded(
            [&](kernels::Queue& on) {
              TensorFiles files(folder);
              return load_model(on, Config::from_folder(folder), files, options);
            },
            device, queue_options) {}
  /// load(queue) makes the model.
  template <typename Load>
  Loaded(Load load, kernels::Device device, const kernels::QueueOptions& queue_options,
         const GraphOptions& graphs = {}, std::int32_t positions = positions_max)
      : queue(device, queue_options),
        model(load(queue)),
        runner(queue, model.plan, model.weights, model.geometry,
               {.memory = flat_memory(model.geometry, positions / model.geometry.page_tokens, 2,
                                      kernels::handle_bytes_min(device)),
                .step_tokens = positions_max,
                .sequences_max = positions_max,
                .positions_max = positions,
                .vocab_used = model.plan.vocab,
                .graphs = graphs}) {
    const std::int32_t count = positions / model.geometry.page_tokens;
    const MemoryLayout layout = runner.capacity().memory;
    slot = SlotId{layout.first_unit(layout.slot_view()) + 1};
    if (layout.groups.empty()) return;
    tables.emplace_back();
    for (std::int32_t i = 0; i < count; ++i) tables[0].push_back(PageId{(i * 7 + 3) % count});
  }

  /// Logits [tokens, vocab] of every token of a span.
  std::vector<float> run(std::span<const TokenId> tokens, std::int32_t position) {
    const SamplingParams greedy;
    Span span = {.tokens = tokens,
                 .position = position,
                 .tables = tables,
                 .read_slot = position == 0 ? no_slot : slot,
                 .write_slot = slot,
                 .samples = {}};
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(tokens.size()); ++i) {
      span.samples.push_back(
          {.token = i, .params = &greedy, .draw = 0, .history = {}, .prompt_tokens = 0});
    }
    return runner.run({.orders = {}, .spans = {span}, .keep_logits = true}).logits;
  }

  kernels::Queue queue;
  Model model;
  ModelRunner runner;
  std::vector<PageTable> tables;
  SlotId slot = no_slot;
};

/// The instruction sets that this machine can be tested with.
inline std::vector<kernels::Isa> levels() {
  std::vector<kernels::Isa> found = {kernels::Isa::plain};
  if (kernels::best_isa() >= kernels::Isa::avx2) found.push_back(kernels::Isa::avx2);
  if (kernels::best_isa() >= kernels::Isa::avx512) found.push_back(kernels::Isa::avx512);
  return found;
}

}  // namespace hyb::models::testing
