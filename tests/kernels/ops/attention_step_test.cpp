#include "kernels/ops/attention_step.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "tests/kernels/support.h"

namespace ops_attention_step_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr std::int64_t heads = 4, kv_heads = 2, head_dim = 24, page_tokens = 4, spans = 3;
constexpr std::int64_t inner = heads * head_dim, width = inner + 2 * kv_heads * head_dim + inner;

/// Three sequences: a first token, one that begins a page, one in the middle of a page.
struct Fixture {
  Table span_begin{0, 1, 2, 3}, position{0, 8, 6}, page_begin{0, 1, 4, 6}, pages{5, 0, 2, 7, 1, 3};
  TestTensor q_norm = random_tensor(DType::f32, {head_dim}, 2);
  TestTensor k_norm = random_tensor(DType::f32, {head_dim}, 3);

  RopeKvWrite write(const Tensor& qkv, const Tensor& arena) const {
    return {.qkv = qkv,
            .position_of_row = {},
            .kv = {.arena = arena,
                   .span_begin = span_begin,
                   .position = position,
                   .page_begin = page_begin,
                   .pages = pages,
                   .page_tokens = page_tokens},
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .frequencies = rope_frequencies(16, 500.0),
            .q_norm = q_norm,
            .k_norm = k_norm,
            .norm_eps = 1e-3F,
            .query_scale = QueryScale{.beta = 0.7F, .period = 4, .offset = 1}};
  }
  PagedAttention read(const Tensor& qkv, const Tensor& arena, const Tensor& y) const {
    return {.q = qkv.columns(0, inner),
            .kv = {.arena = arena,
                   .span_begin = span_begin,
                   .position = position,
                   .page_begin = page_begin,
                   .pages = pages,
                   .page_tokens = page_tokens},
            .y = y,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .scale = 0.2F,
            .gate = qkv.columns(width - inner, inner)};
  }
};

TEST_SUITE("kernels/ops/attention_step") {
  TEST_CASE("is rope_kv_write with the rows' own positions, then attention, byte for byte") {
    const Fixture f;
    const Table position_of_row{0, 8, 6};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const DType kv_dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
        Queue queue = test_queue(best_isa(), 2);
        const TestTensor qkv = random_tensor(dtype, {spans, width}, 1, 1.0F, {5, 1});
        const TestTensor arena =
            random_tensor(kv_dtype, {8, 2 * kv_heads * head_dim * page_tokens}, 4);
        const TestTensor y(dtype, {spans, inner}, {3, 1});

        TestTensor expected_qkv = qkv, expected_arena = arena, expected = y;
        RopeKvWrite write = f.write(expected_qkv, expected_arena);
        write.position_of_row = position_of_row;
        rope_kv_write(queue, write);
        paged_attention(queue, f.read(expected_qkv, expected_arena, expected));

        TestTensor own_qkv = qkv, own_arena = arena, own = y;
        attention_step(queue, f.write(own_qkv, own_arena), f.read(own_qkv, own_arena, own));
        CHECK(own.everything() == expected.everything());
        CHECK(own_arena.everything() == expected_arena.everything());
        CHECK(own_arena.everything() != arena.everything());
        CHECK(own_qkv.everything() == expected_qkv.everything());
      }
    }
  }

  TEST_CASE("names the broken rule") {
    const Fixture f;
    Queue queue = test_queue(Isa::plain);
    const TestTensor qkv(DType::f32, {4, width}), y(DType::f32, {4, inner});
    const TestTensor arena(DType::f32, {8, 2 * kv_heads * head_dim * page_tokens});
    RopeKvWrite write = f.write(qkv, arena);
    PagedAttention read = f.read(qkv, arena, y);
    const Table two_at_the_end{0, 1, 2, 4};
    write.kv.span_begin = two_at_the_end;
    CHECK_THROWS_WITH_AS(attention_step(queue, write, read),
                         "attention_step: every span has one token, got 3", Error);
    write = f.write(qkv.view().rows(0, 3), arena);
    write.frequencies = rope_frequencies(26);
    read = f.read(qkv.view().rows(0, 3), arena, y.view().rows(0, 3));
    CHECK_THROWS_WITH_AS(attention_step(queue, write, read),
                         "rope_kv_write: pairs are within head_dim, got 13", Error);
    write.frequencies = rope_frequencies(16);
    read.window = -1;
    CHECK_THROWS_WITH_AS(attention_step(queue, write, read),
                         "paged_attention: window is not negative, got -1", Error);
    read.q = y.view().rows(0, 3);
    CHECK_THROWS_WITH_AS(attention_step(queue, write, read),
                         "attention_step: q is the first columns of qkv, got 0", Error);
  }
}

}  // namespace

}  // namespace ops_attention_step_test
