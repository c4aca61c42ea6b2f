#pragma once

#include <optional>
#include <vector>

#include "kernels/attention_reach.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/rope_kv_write.h"
#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

struct AttentionShape {
  std::int64_t heads, kv_heads, head_dim;
  std::int64_t page_tokens = 16;
};

/// The same pages in another type; `page` has the sizes of one.
inline TestTensor pages_as(const TestTensor& arena, DType from, DType to,
                           const AttentionShape& page) {
  const KvLayout before(page.head_dim, page.page_tokens, size_of(from));
  const KvLayout after(page.head_dim, page.page_tokens, size_of(to));
  TestTensor pages(to, {arena.view().dim(0), arena.view().dim(1)}, {32, 1});
  const std::int64_t head = before.head_size();
  for (std::int64_t first = 0; first < arena.size(); first += head) {
    for (std::int64_t i = 0; i < head / 2; ++i) {
      const std::int64_t place = i / page.head_dim, dim = i % page.head_dim;
      pages.set(first + after.key(place, dim), arena.get(first + before.key(place, dim)));
      pages.set(first + after.value(place, dim), arena.get(first + before.value(place, dim)));
    }
  }
  return pages;
}

/// One sequence's queries, keys and values, and an arena with room for it in pages of any order.
/// Places that are not written hold NaN.
struct AttentionFixture {
  AttentionFixture(DType dtype, AttentionShape shape, std::int64_t tokens, std::uint32_t seed = 1,
                   std::optional<DType> kv_dtype = {})
      : s(shape),
        q(random_tensor(dtype, {tokens, s.heads * s.head_dim}, seed, 1.0F, {5, 1})),
        k(random_tensor(dtype, {tokens, s.kv_heads * s.head_dim}, seed + 1, 1.0F, {7, 3})),
        v(random_tensor(dtype, {tokens, s.kv_heads * s.head_dim}, seed + 2, 1.0F, {9, 5})),
        y(dtype, {tokens, s.heads * s.head_dim}, {3, 1}) {
    const std::int64_t pages = (tokens + s.page_tokens - 1) / s.page_tokens;
    arena = TestTensor(kv_dtype.value_or(dtype),
                       {pages + 2, 2 * s.kv_heads * s.page_tokens * s.head_dim}, {32, 1});
    for (std::int64_t i = 0; i < arena.size(); ++i) arena.set(i, NAN);
    for (std::int64_t i = 0; i < pages; ++i) {
      table.push_back(static_cast<std::int32_t>((i * 7 + 3) % (pages + 2)));
    }
    // Pages must differ: fall back to a reversed run where 7 divides the number of pages.
    if ((pages + 2) % 7 == 0) {
      for (std::size_t i = 0; i < table.size(); ++i) {
        table[i] = static_cast<std::int32_t>(table.size() - i);
      }
    }
  }

  /// Tokens first .. first+count-1 in one call.
  void write(Queue& queue, std::int64_t first, std::int64_t count) {
    const Table begin{0, static_cast<std::int32_t>(count)};
    const Table position{static_cast<std::int32_t>(first)};
    const Table page_begin{0, static_cast<std::int32_t>(table.size())}, pages(table);
    kv_write(queue, {.k = k.view().rows(first, count),
                     .v = v.view().rows(first, count),
                     .kv = {.arena = arena,
                            .span_begin = begin,
                            .position = position,
                            .page_begin = page_begin,
                            .pages = pages,
                            .page_tokens = s.page_tokens},
                     .kv_heads = s.kv_heads,
                     .head_dim = s.head_dim});
  }

  void attend(Queue& queue, std::int64_t first, std::int64_t count, Tensor workspace = {}) {
    const Table begin{0, static_cast<std::int32_t>(count)};
    const Table position{static_cast<std::int32_t>(first)};
    const Table page_begin{0, static_cast<std::int32_t>(table.size())}, pages(table);
    paged_attention(queue,
                    {.q = q.view().rows(first, count),
                     .kv = {.arena = mapped.empty() ? arena.view() : mapped,
                            .span_begin = begin,
                            .position = position,
                            .page_begin = page_begin,
                            .pages = pages,
                            .page_tokens = s.page_tokens},
                     .y = y.view().rows(first, count),
                     .heads = s.heads,
                     .kv_heads = s.kv_heads,
                     .head_dim = s.head_dim,
                     .scale = scale,
                     .workspace = workspace,
                     .window = reach.window,
                     .chunk = reach.chunk,
                     .softcap = softcap,
                     .sinks = sinks,
                     .gate = gate.view().empty() ? Tensor() : gate.view().rows(first, count)});
  }

  AttentionShape s;
  TestTensor q, k, v, arena, y;
  Tensor mapped;  ///< instead of `arena`, where it is not empty
  std::vector<std::int32_t> table;
  float scale = 0.25F;
  AttentionReach reach;
  float softcap = 0.0F;
  TestTensor sinks;
  TestTensor gate;  ///< of the shape of y, or one per head, or none
};

/// A gate per head as the same one for all dimensions of the head.
inline TestTensor repeated_gate(const TestTensor& gate, std::int64_t head_dim) {
  TestTensor all(gate.view().dtype, {gate.view().dim(0), gate.view().dim(1) * head_dim}, {8, 8});
  for (std::int64_t i = 0; i < all.size(); ++i) all.set(i, gate.get(i / head_dim));
  return all;
}

}  // namespace hyb::kernels::testing
