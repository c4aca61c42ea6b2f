#include <doctest/doctest.h>

#include "tests/cuda/attention_step_case.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/kernels/linear/coded_weights.h"
#include "tests/models/loaded.h"

namespace decode_nodes_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

/// Kernels of a decode step of one sequence through the first layers of a model, and the blocks
/// of one more.
std::int64_t kernels_of_step(const std::string& name, std::size_t layers, std::size_t blocks,
                             bool batch_invariant) {
  const auto load = [&](kernels::Queue& on) {
    TensorFiles files(golden_folder / name);
    Model model = load_model(on, Config::from_folder(golden_folder / name), files,
                             {.load = {.activation = DType::bf16}});
    model.plan.layers.resize(layers + 1);
    model.plan.layers.back().blocks.resize(blocks);
    return model;
  };
  Loaded loaded(load, kernels::Device::cuda,
                {.threads = 1, .isa = {}, .batch_invariant = batch_invariant},
                {.decode = false, .mixed = false});
  const std::vector<TokenId> prompt = {TokenId{5}, TokenId{3}, TokenId{8}}, next = {TokenId{7}};
  loaded.run(prompt, 0);
  emulator::take_host_calls();
  loaded.run(next, 3);
  return emulator::take_host_calls().kernels;
}

/// Kernels of one attention_step.
std::int64_t kernels_of_attention(const kernels::testing::AttentionStepCase& shape) {
  using kernels::testing::DeviceTensor, kernels::testing::DeviceTable;
  const kernels::testing::SingleTokens step(shape, {3, 0});
  kernels::cuda::Stream stream;
  const DeviceTensor qkv(step.qkv), pages(step.pages), y(step.y), q_norm(step.q_norm),
      k_norm(step.k_norm), sinks(step.sinks);
  const kernels::testing::PagedTensors<DeviceTable> tables(step.tables);
  emulator::take_host_calls();
  const auto ops = step.ops(qkv, pages, tables, y, {q_norm, k_norm, sinks}, {});
  kernels::cuda::attention_step(stream, ops.write, ops.read);
  stream.wait();
  return emulator::take_host_calls().kernels;
}

/// Kernels of a normed product of some rows, the weight plain or in fp8.
std::int64_t kernels_of_product(std::int64_t rows, bool is_coded) {
  using kernels::testing::DeviceTensor, kernels::testing::TestTensor;
  constexpr std::int64_t inner = 64, outputs = 24;
  const kernels::testing::TestWeight weight(
      DType::bf16, outputs, inner,
      kernels::testing::random_tensor(DType::bf16, {outputs, inner}, 1).packed());
  const DeviceTensor x(kernels::testing::random_tensor(DType::bf16, {rows, inner}, 2)),
      norm(kernels::testing::random_tensor(DType::f32, {inner}, 3)),
      y(TestTensor(DType::bf16, {rows, outputs})), normed(TestTensor(DType::bf16, {rows, inner}));
  kernels::Queue queue(kernels::Device::cuda, {.threads = 1, .isa = {}});
  const kernels::testing::CodedMatrix coded(queue, kernels::WeightCode::fp8, 1, outputs, inner, 4);
  kernels::cuda::Stream& stream = queue.stream();
  stream.wait();
  emulator::take_host_calls();
  kernels::cuda::project(stream, {.x = x,
                                  .norm = {.weight = norm, .eps = 1e-5F},
                                  .weight = is_coded ? &coded.weight : &weight.device,
                                  .y = y,
                                  .normed = normed});
  stream.wait();
  return emulator::take_host_calls().kernels;
}

}  // namespace

/// Blocks of a decode step at position `then`, after three at position 0: recorded, where graphs
/// are on, and replayed.
std::int64_t blocks_of_late_step(bool graphs, std::int32_t then) {
  const auto load = [&](kernels::Queue& on) {
    TensorFiles files(golden_folder / "granite-dense-rope");
    return load_model(on, Config::from_folder(golden_folder / "granite-dense-rope"), files,
                      {.load = {.activation = DType::bf16}});
  };
  Loaded loaded(load, kernels::Device::cuda, {.threads = 1, .isa = {}, .batch_invariant = false},
                {.decode = graphs, .mixed = graphs}, then + positions_max);
  const std::vector<TokenId> token = {TokenId{7}};
  for (int i = 0; i < 3; ++i) loaded.run(token, 0);
  emulator::take_blocks_run();
  loaded.run(token, then);
  loaded.run(token, then);
  loaded.run(token, then);
  emulator::take_blocks_run();
  loaded.run(token, then);
  return emulator::take_blocks_run();
}

TEST_SUITE("cuda_emulator/decode_nodes") {
  TEST_CASE("a replayed decode step has the blocks of one that is launched, as sequences grow") {
    for (const std::int32_t position : {100, 3000, 6000}) {
      CAPTURE(position);
      CHECK(blocks_of_late_step(true, position) == blocks_of_late_step(false, position));
    }
    CHECK(blocks_of_late_step(true, 3000) > blocks_of_late_step(true, 100));
  }

  TEST_CASE("attention is three nodes of a decode step: into it, attention itself, out of it") {
    struct {
      const char* name;
      std::size_t layer;                           ///< whose first block is attention
    } const cases[] = {{"nemotron-moe", 3},        // no rope
                       {"granite-dense-rope", 0},  // rope
                       {"granite-dense-rope", 3},
                       {"qwen3-next-fp8", 1}};  // codes, norms of heads, partial rope, a gate
    for (const auto& [name, layer] : cases) {
      for (const bool batch_invariant : {false, true}) {
        CAPTURE(std::string(name));
        CAPTURE(batch_invariant);
        const std::int64_t nodes = kernels_of_step(name, layer, 1, batch_invariant) -
                                   kernels_of_step(name, layer, 0, batch_invariant);
        CHECK(nodes == (batch_invariant ? 4 : 3));
      }
    }
  }

  TEST_CASE("a delta net is three nodes of a decode step: into it, the net itself, out of it") {
    struct {
      const char* name;
      std::int64_t nodes, batch_invariant;
    } const cases[] = {{"qwen3-next", 3, 5},  // two norms are nodes of their own
                       {"qwen3_5-text", 3, 5},
                       {"qwen3-next-fp8", 4, 6}};  // and b | a is plain: a product of its own
    for (const auto& [name, nodes, batch_invariant] : cases) {
      for (const bool invariant : {false, true}) {
        CAPTURE(std::string(name));
        CAPTURE(invariant);
        const std::int64_t own =
            kernels_of_step(name, 0, 1, invariant) - kernels_of_step(name, 0, 0, invariant);
        CHECK(own == (invariant ? batch_invariant : nodes));
      }
    }
  }

  TEST_CASE("a long row of logits is looked through by several blocks") {
    using kernels::testing::DeviceTensor;
    const DeviceTensor logits(kernels::testing::random_tensor(DType::f32, {2, 40'000}, 3));
    const SamplingParams greedy;
    const std::vector<SampleRow> rows(2, SampleRow{.params = &greedy});
    std::vector<SampledToken> out(2);
    kernels::cuda::Stream stream;
    emulator::take_blocks_run();
    kernels::cuda::sample(
        stream,
        {.logits = logits, .vocab_used = 40'000, .rows = rows, .out = out, .workspace = {}});
    // Of both kernels, the second of which finds the answers there.
    const int row_blocks = std::min(5, std::max(1, stream.processors() / 2));
    CHECK(emulator::take_blocks_run() == 2 * 2 * row_blocks);
  }

  TEST_CASE(
      "a product norms up to 4 rows itself: with more the multiprocessors could not issue it") {
    for (const bool is_coded : {false, true}) {
      CAPTURE(is_coded);
      for (const std::int64_t rows : {1, 4}) CHECK(kernels_of_product(rows, is_coded) == 1);
      for (const std::int64_t rows : {5, 8, 9}) CHECK(kernels_of_product(rows, is_coded) == 2);
    }
  }

  TEST_CASE("attention_step is one kernel for the sizes of heads that models have") {
    for (const DType kv_dtype : {DType::bf16, DType::f8_e4m3}) {
      for (const std::int64_t head_dim : {16, 64, 80, 96, 128, 176, 256}) {
        for (const std::int64_t rotary_dim : {std::int64_t{0}, std::int64_t{16}, head_dim}) {
          CAPTURE(head_dim);
          CAPTURE(rotary_dim);
          CHECK(kernels_of_attention({.heads = 2,
                                      .kv_heads = 1,
                                      .head_dim = head_dim,
                                      .rotary_dim = rotary_dim,
                                      .has_norms = true,
                                      .has_gate = true,
                                      .kv_dtype = kv_dtype}) == 1);
        }
      }
    }
    CHECK(kernels_of_attention({.heads = 2, .kv_heads = 1, .head_dim = 64, .dtype = DType::f32}) ==
          2);
  }
}

}  // namespace decode_nodes_test
