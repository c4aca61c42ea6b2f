#pragma once

#include "kernels/cuda/kv_page.h"
#include "kernels/ops/rope_kv_write.h"
#include "tests/cuda/support.h"

namespace hyb::kernels::testing {

struct TestSpan {
  std::int32_t position, tokens;
};

/// A step's tables, with pages in random order that belong to one span each.
struct PagedTables {
  std::vector<std::int32_t> span_begin{0}, position, page_begin{0}, pages, position_of_row;
  std::int64_t tokens = 0, pages_max = 0;

  PagedTables() = default;
  PagedTables(const std::vector<TestSpan>& spans, std::int32_t page_tokens, std::uint32_t seed) {
    for (const TestSpan& span : spans) {
      tokens += span.tokens;
      span_begin.push_back(static_cast<std::int32_t>(tokens));
      position.push_back(span.position);
      for (std::int32_t t = 0; t < span.tokens; ++t) position_of_row.push_back(span.position + t);
      const std::int32_t count = (span.position + span.tokens + page_tokens - 1) / page_tokens;
      page_begin.push_back(page_begin.back() + count);
    }
    pages_max = page_begin.back() + 3;
    pages.resize(static_cast<std::size_t>(pages_max));
    std::iota(pages.begin(), pages.end(), 0);
    std::mt19937 engine(seed);
    std::shuffle(pages.begin(), pages.end(), engine);
    pages.resize(static_cast<std::size_t>(page_begin.back()));
  }

  /// The same tables with room for more: empty spans and padding rows, whose entries name no
  /// page.
  PagedTables padded(std::int64_t spans, std::int64_t rows) const {
    PagedTables more = *this;
    for (std::int64_t i = 0; i < spans; ++i) {
      more.span_begin.push_back(static_cast<std::int32_t>(tokens));
      more.position.push_back(INT32_MAX / 2);
      more.page_begin.push_back(more.page_begin.back());
    }
    more.pages.resize(more.pages.size() + 4, INT32_MAX / 2);
    more.position_of_row.resize(more.position_of_row.size() + static_cast<std::size_t>(rows), 99);
    more.tokens += rows;
    return more;
  }
};

/// Tables on the host (Table) or on the device (DeviceTable).
template <typename T>
struct PagedTensors {
  explicit PagedTensors(const PagedTables& t)
      : span_begin(t.span_begin),
        position(t.position),
        page_begin(t.page_begin),
        pages(t.pages),
        position_of_row(t.position_of_row) {}
  T span_begin, position, page_begin, pages, position_of_row;
};

/// The CPU's pages laid out as the device's.
inline TestTensor device_pages(const TestTensor& arena, DType dtype, std::int64_t kv_heads,
                               std::int64_t head_dim, std::int64_t page_tokens) {
  const std::int64_t pages = arena.view().dim(0), page = 2 * kv_heads * head_dim * page_tokens;
  const KvLayout from(head_dim, page_tokens, size_of(dtype));
  const cuda::KvPage to{static_cast<int>(head_dim), static_cast<int>(page_tokens)};
  TestTensor moved(dtype, {pages, page}, {16, dtype == DType::f8_e4m3 ? 16 : 8});
  for (std::int64_t at = 0; at < pages * kv_heads * page_tokens * head_dim; ++at) {
    const std::int64_t i = at % head_dim, place = at / head_dim % page_tokens;
    const std::int64_t head = at / head_dim / page_tokens % kv_heads;
    const std::int64_t first = at / head_dim / page_tokens / kv_heads * page;
    const std::int64_t key = first + to.key(static_cast<int>(head), static_cast<int>(place)) + i;
    const std::int64_t source = first + head * from.head_size();
    moved.set(key, arena.get(source + from.key(place, i)));
    moved.set(key + to.value_offset(), arena.get(source + from.value(place, i)));
  }
  return moved;
}

}  // namespace hyb::kernels::testing
