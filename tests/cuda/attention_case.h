#pragma once

#include <doctest/doctest.h>

#include <optional>

#include "kernels/cuda/routes.h"
#include "kernels/ops/kv_write.h"
#include "tests/cuda/paged_support.h"

namespace hyb::kernels::testing {

struct AttentionCase {
  std::int64_t heads, kv_heads, head_dim;
  DType dtype = DType::bf16, kv_dtype = DType::bf16;
  std::int32_t page_tokens = 16;
  std::int32_t window = 0;
  bool has_sinks = false;
  bool has_gate = false;
};

/// Sequences with queries, keys and values for every position, and a step that attends the spans.
/// Places that no token has reached hold NaN.
struct Step {
  Step(const AttentionCase& shape, const std::vector<TestSpan>& spans, std::uint32_t seed = 1)
      : s(shape), tables(spans, s.page_tokens, seed) {
    const std::int64_t page = 2 * s.kv_heads * s.head_dim * s.page_tokens;
    q = random_tensor(s.dtype, {tables.tokens, width()}, seed, 1.0F, {16, 8});
    arena = TestTensor(s.kv_dtype, {tables.pages_max, page}, {16, 8});
    for (std::int64_t i = 0; i < arena.size(); ++i) arena.set(i, NAN);
    expected = TestTensor(s.dtype, {tables.tokens, width()});
    if (s.has_gate) gate = random_tensor(s.dtype, {tables.tokens, width()}, seed + 4, 4.0F);
    if (s.has_sinks) sinks = random_tensor(DType::f32, {s.heads}, seed + 3, 2.0F);
    std::int64_t positions = 0;
    std::vector<std::int32_t> begins{0}, firsts;
    for (const TestSpan& span : spans) {
      positions += span.position + span.tokens;
      begins.push_back(static_cast<std::int32_t>(positions));
      firsts.push_back(0);
    }
    const auto k = random_tensor(s.dtype, {positions, s.kv_heads * s.head_dim}, seed + 1);
    const auto v = random_tensor(s.dtype, {positions, s.kv_heads * s.head_dim}, seed + 2);
    Queue plain = test_queue(Isa::plain, 2);
    const PagedTensors<Table> host(tables);
    const Table all_begins(begins), all_firsts(firsts);
    kv_write(plain, {k, v, arena, all_begins, all_firsts, host.page_begin, host.pages, s.kv_heads,
                     s.head_dim, s.page_tokens});
    kernels::attention(plain, op(q, arena, host, expected, sinks, gate));
    // The same with the sizes of values: sum_p w_p |v_p|.
    TestTensor magnitudes = v, sized = arena;
    for (std::int64_t i = 0; i < v.size(); ++i) magnitudes.set(i, std::fabs(v.get(i)));
    kv_write(plain, {k, magnitudes, sized, all_begins, all_firsts, host.page_begin, host.pages,
                     s.kv_heads, s.head_dim, s.page_tokens});
    sizes = expected;
    kernels::attention(plain, op(q, sized, host, sizes, sinks, gate));
    if (s.window != 0) forget_pages(spans);
    pages = device_pages(arena, s.kv_dtype, s.kv_heads, s.head_dim, s.page_tokens);
  }

  /// Pages that fell out of every window of their span are gone.
  void forget_pages(const std::vector<TestSpan>& spans) {
    for (std::size_t r = 0; r < spans.size(); ++r) {
      const std::int32_t seen = std::max(0, spans[r].position - s.window + 1);
      for (std::int32_t i = 0; i < seen / s.page_tokens; ++i) {
        tables.pages[static_cast<std::size_t>(tables.page_begin[r] + i)] = INT32_MAX / 2;
      }
    }
  }

  std::int64_t width() const { return s.heads * s.head_dim; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(s.head_dim)); }

  template <typename Tables>
  Attention op(const Tensor& queries, const Tensor& layer, const Tables& t, const Tensor& y,
               const Tensor& own_sinks, const Tensor& own_gate = {},
               const Tensor& workspace = {}) const {
    return {.q = queries,
            .pages_of_layer = layer,
            .span_begin = t.span_begin,
            .position = t.position,
            .page_begin = t.page_begin,
            .pages = t.pages,
            .y = y,
            .heads = s.heads,
            .kv_heads = s.kv_heads,
            .head_dim = s.head_dim,
            .page_tokens = s.page_tokens,
            .scale = scale(),
            .workspace = workspace,
            .window = s.window,
            .sinks = own_sinks,
            .gate = own_gate};
  }
  AttentionCase s;
  PagedTables tables;
  TestTensor q, arena, expected, sizes, sinks, gate;
  TestTensor pages;  ///< as the device has them
};

/// Room for records of every run of every row.
inline TestTensor workspace_for(const Step& step, std::int64_t positions) {
  const auto bytes =
      cuda::attention_workspace_bytes(step.tables.tokens, step.s.heads, step.s.head_dim, positions);
  return TestTensor(DType::f32, {static_cast<std::int64_t>(bytes / 4)});
}

/// Tickets are zero again.
inline bool is_ready(const TestTensor& workspace) {
  const std::vector<std::byte> bytes = workspace.packed();
  return std::all_of(bytes.begin(), bytes.begin() + 8192 * 4,
                     [](std::byte byte) { return byte == std::byte{0}; });
}

/// The step's answer, from a graph; padding spans and rows stand behind it.
inline TestTensor attend(const Step& step, std::optional<TestTensor> workspace = {},
                         std::int64_t padding_spans = 0, std::int64_t padding_rows = 0) {
  const PagedTables padded = step.tables.padded(padding_spans, padding_rows);
  TestTensor q = TestTensor(step.s.dtype, {padded.tokens, step.width()}, {16, 8});
  TestTensor y(step.s.dtype, {padded.tokens, step.width()}, {8, 8});
  for (std::int64_t i = 0; i < q.size(); ++i) {
    q.set(i, i < step.q.size() ? step.q.get(i) : NAN);
    y.set(i, 77.0F);
  }
  cuda::Stream stream;
  const DeviceTensor on_q(q), on_y(y), on_pages(step.pages);
  const DeviceTensor on_sinks(step.s.has_sinks ? step.sinks : TestTensor(DType::f32, {1}));
  const DeviceTensor on_workspace(workspace ? *workspace : TestTensor(DType::f32, {4}));
  TestTensor gate(step.s.dtype, {padded.tokens, step.width()}, {24, 16});
  for (std::int64_t i = 0; i < gate.size(); ++i) {
    gate.set(i, step.s.has_gate && i < step.q.size() ? step.gate.get(i) : NAN);
  }
  const DeviceTensor on_gate(gate);
  const PagedTensors<DeviceTable> tables(padded);
  const Attention op = step.op(
      on_q, on_pages, tables, on_y, step.s.has_sinks ? Tensor(on_sinks) : Tensor(),
      step.s.has_gate ? Tensor(on_gate) : Tensor(), workspace ? Tensor(on_workspace) : Tensor());
  const cuda::Graph graph(stream, [&] { cuda::attention(stream, op); });
  graph.replay(stream);
  if (workspace) graph.replay(stream);  // on the workspace as the first left it
  stream.wait();
  const TestTensor answer = on_y.fetch();
  CHECK(answer.guards_intact());
  CHECK(on_q.fetch().everything() == q.everything());
  CHECK(on_pages.fetch().everything() == step.pages.everything());
  if (workspace) {
    const TestTensor after = on_workspace.fetch();
    CHECK(after.guards_intact());
    CHECK(is_ready(after));
  }
  for (std::int64_t i = step.q.size(); i < y.size(); ++i) REQUIRE(answer.get(i) == 77.0F);
  TestTensor own(step.s.dtype, {step.tables.tokens, step.width()});
  for (std::int64_t i = 0; i < own.size(); ++i) own.set(i, answer.get(i));
  return own;
}

/// By the bounds of the two routes. What the plain loop itself rounds counts as y's rounding too.
inline void check_close(const Step& step, const TestTensor& answer) {
  const std::int64_t piece = 16 / static_cast<std::int64_t>(size_of(step.s.kv_dtype));
  const bool is_matrix =
      step.s.dtype == DType::bf16 && step.s.kv_dtype != DType::f32 && step.s.head_dim % piece == 0;
  const double weights = is_matrix ? 0x1p-8 : 0x1p-17;
  const double rounding =
      (step.s.dtype == DType::bf16 ? 0x1p-8 : 0x1p-23) * (step.s.has_gate ? 2.02 : 1.0);
  for (std::int64_t i = 0; i < answer.size(); ++i) {
    const double expected = step.expected.get(i), size = step.sizes.get(i);
    REQUIRE(std::fabs(answer.get(i) - expected) <=
            1.01 * weights * size + rounding * std::fabs(expected) + 1e-7);
  }
}

}  // namespace hyb::kernels::testing
