#pragma once

#include "kernels/cuda/routes.h"
#include "kernels/ops/attention_step.h"
#include "kernels/ops/rope_kv_write.h"
#include "tests/cuda/paged_support.h"

namespace hyb::kernels::testing {

struct AttentionStepCase {
  std::int64_t heads, kv_heads, head_dim, rotary_dim = 0;
  bool has_norms = false, has_gate = false, has_sinks = false;
  std::int32_t window = 0, page_tokens = 16;
  DType dtype = DType::bf16, kv_dtype = DType::bf16;
  std::int64_t offset = 8;  ///< of qkv, in elements
  bool value_norm = false, queries_only = false;
  QueryScale query_scale = {};
  std::int32_t chunk = 0;
  float softcap = 0.0F;
  bool is_gate_per_head = false, weightless_norm = false;

  std::int64_t own_kv_heads() const { return queries_only ? 0 : kv_heads; }
  std::int64_t gates() const { return !has_gate ? 0 : is_gate_per_head ? heads : heads * head_dim; }
};

/// One more token for each of some sequences, whose earlier keys and values are in pages.
/// Places that no token has reached hold NaN.
struct SingleTokens {
  SingleTokens(const AttentionStepCase& shape, const std::vector<std::int32_t>& positions,
               std::int64_t more = 0)
      : c(shape), padding(more) {
    std::vector<TestSpan> spans;
    for (const std::int32_t position : positions) spans.push_back({position, 1});
    tables = PagedTables(spans, c.page_tokens, 3);
    padded = tables.padded(padding, padding);
    qkv = random_tensor(c.dtype, {padded.tokens, width()}, 1, 1.0F, {16, c.offset});
    y = TestTensor(c.dtype, {padded.tokens, inner()}, {8, 8});
    for (std::int64_t i = 0; i < y.size(); ++i) y.set(i, 77.0F);
    q_norm = random_tensor(DType::f32, {c.head_dim}, 2);
    k_norm = random_tensor(DType::f32, {c.head_dim}, 3);
    sinks = random_tensor(DType::f32, {c.heads}, 4, 2.0F);
    fill_arena(positions);
    pages = device_pages(arena, c.kv_dtype, c.kv_heads, c.head_dim, c.page_tokens);
  }

  void fill_arena(const std::vector<std::int32_t>& positions) {
    const std::int64_t page = 2 * c.kv_heads * c.head_dim * c.page_tokens;
    arena = TestTensor(c.kv_dtype, {tables.pages_max, page}, {16, 8});
    for (std::int64_t i = 0; i < arena.size(); ++i) arena.set(i, NAN);
    Queue plain = test_queue(Isa::plain);
    const Table own_pages(tables.pages);
    for (std::size_t r = 0; r < positions.size(); ++r) {
      const std::int32_t count = positions[r] + (c.queries_only ? 1 : 0);
      if (count == 0) continue;
      const auto seed = static_cast<std::uint32_t>(10 + 2 * r);
      const auto k = random_tensor(c.dtype, {count, c.kv_heads * c.head_dim}, seed);
      const auto v = random_tensor(c.dtype, {count, c.kv_heads * c.head_dim}, seed + 1);
      const Table begin{0, count}, from{0},
          page_begin{tables.page_begin[r], tables.page_begin[r + 1]};
      kv_write(plain, {k,
                       v,
                       {arena, begin, from, page_begin, own_pages, c.page_tokens},
                       c.kv_heads,
                       c.head_dim});
    }
  }

  std::int64_t inner() const { return c.heads * c.head_dim; }
  std::int64_t width() const { return (c.heads + 2 * c.own_kv_heads()) * c.head_dim + c.gates(); }

  /// The two ops of a step.
  struct Ops {
    RopeKvWrite write;
    PagedAttention read;
  };

  template <typename Tables>
  Ops ops(const Tensor& own_qkv, const Tensor& own_pages, const Tables& t, const Tensor& own_y,
          const Tensor (&weights)[3], const Tensor& workspace) const {
    return {
        .write = {.qkv = own_qkv,
                  .position_of_row = t.position,
                  .kv = {.arena = own_pages,
                         .span_begin = t.span_begin,
                         .position = t.position,
                         .page_begin = t.page_begin,
                         .pages = t.pages,
                         .page_tokens = c.page_tokens},
                  .heads = c.heads,
                  .kv_heads = c.kv_heads,
                  .head_dim = c.head_dim,
                  .frequencies = rope_frequencies(c.rotary_dim),
                  .q_norm = c.has_norms ? weights[0] : Tensor(),
                  .k_norm = c.has_norms && !c.queries_only ? weights[1] : Tensor(),
                  .norm_eps = 1e-3F,
                  .norm_one_plus = c.has_gate,
                  .value_norm = c.value_norm,
                  .queries_only = c.queries_only,
                  .weightless_norm = c.weightless_norm,
                  .query_scale = c.query_scale},
        .read = {.q = own_qkv.columns(0, inner()),
                 .kv = {.arena = own_pages,
                        .span_begin = t.span_begin,
                        .position = t.position,
                        .page_begin = t.page_begin,
                        .pages = t.pages,
                        .page_tokens = c.page_tokens},
                 .y = own_y,
                 .heads = c.heads,
                 .kv_heads = c.kv_heads,
                 .head_dim = c.head_dim,
                 .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
                 .workspace = workspace,
                 .window = c.window,
                 .chunk = c.chunk,
                 .softcap = c.softcap,
                 .sinks = c.has_sinks ? weights[2] : Tensor(),
                 .gate = c.has_gate ? own_qkv.columns(width() - c.gates(), c.gates()) : Tensor()}};
  }

  /// Room for the partials of every run of every row.
  TestTensor workspace() const {
    const auto bytes = cuda::attention_workspace_bytes(
        padded.tokens, c.heads, c.head_dim,
        static_cast<std::int64_t>(padded.pages.size()) * c.page_tokens);
    return TestTensor(DType::f32, {static_cast<std::int64_t>(bytes / 4)});
  }

  AttentionStepCase c;
  std::int64_t padding;
  PagedTables tables, padded;
  TestTensor qkv, y, q_norm, k_norm, sinks, arena;
  TestTensor pages;  ///< as the device has them
};

}  // namespace hyb::kernels::testing
