#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/models/chained.h"
#include "tests/models/golden.h"
#include "tests/support/level.h"

namespace chains_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

/// A fixture with random weights and some other numbers in its configuration, so that bf16 takes
/// the chunked routes.
Config wide_config(const std::string& name) {
  std::ifstream file(golden_folder / name / "config.json");
  Json json = Json::parse(file);
  if (name == "qwen3_5-dense") {
    json["text_config"]["linear_key_head_dim"] = 64;
    json["text_config"]["linear_value_head_dim"] = 32;
  } else {
    json["mamba_d_head"] = 32;
    json["mamba_d_state"] = 64;
    json["mamba_expand"] = 2;
  }
  return Config::from_text(json.dump(), name);
}

ChainBench fixture_bench(const std::string& name, const kernels::QueueOptions& options,
                         const GraphOptions& graphs = {}) {
  return ChainBench(
      [&](kernels::Queue& queue) {
        TensorFiles files(golden_folder / name);
        return load_model(queue, Config::from_folder(golden_folder / name), files,
                          {.load = {.activation = DType::bf16}});
      },
      kernels::Device::cuda, options, graphs);
}

ChainBench wide_bench(const std::string& name, kernels::Device device, DType activation,
                      bool batch_invariant = false) {
  return ChainBench(
      [&](kernels::Queue& queue) {
        return random_model(queue, wide_config(name), 7, {.load = {.activation = activation}});
      },
      device, {.threads = 2, .isa = {}, .batch_invariant = batch_invariant});
}

/// After every cut of a chain: what its slot answers to the token that comes next, as the chain
/// itself does.
std::vector<float> rows_after_cuts(ChainBench& bench, const CutSequence& cut) {
  std::vector<float> rows;
  for (std::size_t i = 1; i + 1 < cut.starts.size(); ++i) {
    const std::int32_t next = cut.starts[i];
    Span span = bench.span({cut.sequence, {next, next + 1}}, 0);
    span.read_slot = bench.slot(cut.sequence, static_cast<std::int32_t>(i) - 1);
    span.write_slot = bench.slot(cut.sequence, ChainBench::slots_each - 1);
    const std::vector<float> row = bench.run({span});
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

std::vector<float> rows_of(const std::vector<float>& logits, const CutSequence& cut,
                           std::size_t row_size) {
  std::vector<float> rows;
  for (std::size_t i = 1; i + 1 < cut.starts.size(); ++i) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(row_size) * cut.starts[i];
    rows.insert(rows.end(), row, row + static_cast<std::ptrdiff_t>(row_size));
  }
  return rows;
}

}  // namespace

TEST_SUITE("cuda/chains") {
  TEST_CASE("batch-invariant: a chain leaves the bytes of a step for each of its spans") {
    for (const std::string name : {"granite-dense-rope", "qwen3_5-dense", "lfm2-dense"}) {
      CAPTURE(name);
      const kernels::QueueOptions options = {.threads = 1, .isa = {}, .batch_invariant = true};
      ChainBench at_once = fixture_bench(name, options),
                 apart = fixture_bench(name, options, {.decode = false, .mixed = false});
      const std::vector<std::vector<CutSequence>> steps = chained_steps();
      for (std::size_t i = hyb::testing::is_full_level() ? 0 : 1; i < steps.size();
           i += hyb::testing::is_full_level() ? 1 : 2) {
        const std::vector<CutSequence>& step = steps[i];
        CHECK(run_at_once(at_once, step) == run_apart(apart, step));
      }
    }
  }

  TEST_CASE("a chain of single tokens is no decode step of the same size, recorded or not") {
    const std::string name = "granite-dense-rope";
    const kernels::QueueOptions options = {.threads = 1, .isa = {}, .batch_invariant = true};
    ChainBench at_once = fixture_bench(name, options),
               apart = fixture_bench(name, options, {.decode = false, .mixed = false});
    const std::vector<CutSequence> decode = {{0, {4, 5}}, {1, {3, 4}}, {2, {3, 4}}};
    const std::vector<CutSequence> chain = {{0, {2, 3, 4}}, {1, {5, 6}}, {2, {3, 4}}};
    const std::vector<CutSequence> other = {{0, {3, 4}}, {1, {5, 6}}, {2, {2, 3, 4}}};
    const auto check = [&](const std::vector<CutSequence>& step) {
      CHECK(run_at_once(at_once, step) == run_apart(apart, step));
    };
    check(decode);
    check(decode);
    std::vector<Span> spans;
    for (const CutSequence& cut : chain) {
      at_once.start(cut.sequence, cut.starts[0]);
      for (const Span& span : at_once.spans(cut)) spans.push_back(span);
    }
    const std::int64_t replayed = at_once.runner.graphs_replayed();
    CHECK(replayed > 0);
    at_once.run(spans);
    CHECK(at_once.runner.graphs_replayed() == replayed);  // its shape is a new one
    for (const auto& step : {chain, other, decode}) check(step);
    CHECK(at_once.runner.graphs_replayed() > replayed);
  }

  TEST_CASE("in chunks: logits of chains are as near to f32 as the CPU's, at their cuts too") {
    const CutSequence cut = {0, {0, 70, 71, 100, 103}};
    for (const std::string name : {"granite-dense-nope", "qwen3_5-dense"}) {
      CAPTURE(name);
      ChainBench exact = wide_bench(name, kernels::Device::cpu, DType::f32),
                 cpu = wide_bench(name, kernels::Device::cpu, DType::bf16),
                 card = wide_bench(name, kernels::Device::cuda, DType::bf16),
                 scan = wide_bench(name, kernels::Device::cuda, DType::bf16, true);
      const auto vocab = static_cast<std::size_t>(exact.model.plan.vocab);
      const std::vector<float> expected = run_at_once(exact, {cut}).logits;
      Distance of_cpu{vocab}, of_card{vocab}, of_cuts{vocab};
      of_cpu.add(run_at_once(cpu, {cut}).logits, expected);
      const std::vector<float> answers = run_at_once(card, {cut, {1, {0, 2}}}).logits;
      of_card.add(std::span(answers).first(expected.size()), expected);
      of_cuts.add(rows_after_cuts(card, cut), rows_of(expected, cut, vocab));
      MESSAGE(name, ": ", of_card.middle_row() / of_cpu.middle_row(), ", cuts ",
              of_cuts.middle_row() / of_cpu.middle_row());
      CHECK(of_card.middle_row() <= 1.5 * of_cpu.middle_row());
      CHECK(of_cuts.middle_row() <= 2 * of_cpu.middle_row());
      CHECK(run_at_once(scan, {cut, {1, {0, 2}}}).logits != answers);  // chunks it was
    }
  }
}

}  // namespace chains_test
