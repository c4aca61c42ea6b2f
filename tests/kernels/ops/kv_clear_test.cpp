#include "kernels/ops/kv_clear.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/ops/rope_kv_write.h"
#include "tests/kernels/support.h"

namespace ops_kv_clear_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr std::int64_t kv_heads = 2, head_dim = 24, page_tokens = 4, tokens = 17;

/// A span with a part of a page before a whole one and after it, one of one token, and a chain that
/// is cut within a page.
struct Spans {
  Table begin{0, 7, 8, 14, 17}, position{3, 9, 0, 6}, page_begin{0, 3, 6, 9, 12};
  Table pages{5, 0, 2, 1, 3, 4, 7, 8, 6, 7, 8, 6};
};

TestTensor arena(DType dtype) {
  TestTensor all(dtype, {10, 2 * kv_heads * head_dim * page_tokens}, {32, 1});
  for (std::int64_t i = 0; i < all.size(); ++i) all.set(i, NAN);
  return all;
}

KvClear clear_of(const Spans& spans, const Tensor& pages) {
  return {.kv = {.arena = pages,
                 .span_begin = spans.begin,
                 .position = spans.position,
                 .page_begin = spans.page_begin,
                 .pages = spans.pages,
                 .page_tokens = page_tokens},
          .tokens = tokens,
          .kv_heads = kv_heads,
          .head_dim = head_dim};
}

}  // namespace

TEST_SUITE("kernels/ops/kv_clear") {
  TEST_CASE("is kv_write of zeros, byte for byte, and writes nothing else") {
    const Spans spans;
    for (const int threads : {1, 3}) {
      Queue queue = test_queue(best_isa(), threads);
      for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
        TestTensor zeros(DType::f32, {tokens, kv_heads * head_dim});
        for (std::int64_t i = 0; i < zeros.size(); ++i) zeros.set(i, 0.0F);
        TestTensor expected = arena(dtype), cleared = arena(dtype);
        kv_write(queue, {zeros, zeros, clear_of(spans, expected).kv, kv_heads, head_dim});
        kv_clear(queue, clear_of(spans, cleared));
        CHECK(cleared.everything() == expected.everything());
        CHECK(cleared.everything() != arena(dtype).everything());
      }
    }
  }

  TEST_CASE("tables that do not reach are refused") {
    Queue queue = test_queue(Isa::plain);
    TestTensor pages = arena(DType::bf16);
    Spans spans;
    KvClear op = clear_of(spans, pages);
    op.tokens = tokens + 1;
    CHECK_THROWS_AS(kv_clear(queue, op), Error);
    spans.pages = Table{10, 0, 2, 1, 3, 4, 7, 8, 6, 7, 8, 6};
    CHECK_THROWS_WITH_AS(kv_clear(queue, clear_of(spans, pages)),
                         "kv_clear: pages are within the arena, got 10", Error);
  }
}

}  // namespace ops_kv_clear_test
