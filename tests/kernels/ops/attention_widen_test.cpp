#include <doctest/doctest.h>

#include "tests/kernels/ops/attention_support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr AttentionShape shapes[] = {
    {.heads = 4, .kv_heads = 2, .head_dim = 24},
    {.heads = 12, .kv_heads = 4, .head_dim = 64, .page_tokens = 64},
    {.heads = 3, .kv_heads = 3, .head_dim = 128},
    {.heads = 8, .kv_heads = 1, .head_dim = 80, .page_tokens = 32},
    {.heads = 2, .kv_heads = 2, .head_dim = 32, .page_tokens = 6},
    {.heads = 7, .kv_heads = 1, .head_dim = 256},
    {.heads = 1, .kv_heads = 1, .head_dim = 512},
    {.heads = 5, .kv_heads = 5, .head_dim = 2}};

TEST_SUITE("kernels/ops/attention_widen") {
  TEST_CASE("pages of F8_E4M3 answer as pages of bf16 with the same numbers, cut anywhere") {
    std::mt19937 engine(6);
    constexpr std::int64_t tokens = attention_run_keys + 85;
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const AttentionShape& shape : shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(shape.head_dim);
          Queue queue = test_queue(isa, 2);
          AttentionFixture f(dtype, shape, tokens, 1, DType::f8_e4m3);
          f.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
          f.write(queue, 0, tokens);
          const auto q = f.q.everything(), arena = f.arena.everything();
          f.attend(queue, 0, tokens);
          CHECK(f.y.guards_intact());
          CHECK(f.q.everything() == q);
          CHECK(f.arena.everything() == arena);
          AttentionFixture wide(dtype, shape, tokens, 1, DType::bf16);
          wide.scale = f.scale;
          wide.arena = pages_as(f.arena, DType::f8_e4m3, DType::bf16, shape);
          wide.attend(queue, 0, tokens);
          CHECK(same_bytes(wide.y, f.y));

          AttentionFixture cut(dtype, shape, tokens, 1, DType::f8_e4m3);
          cut.scale = f.scale;
          const auto cuts = random_cuts(static_cast<std::int32_t>(tokens), engine);
          for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            cut.write(queue, cuts[i], cuts[i + 1] - cuts[i]);
            cut.attend(queue, cuts[i], cuts[i + 1] - cuts[i]);
          }
          CHECK(same_bytes(cut.y, f.y));
        }
      }
    }
  }

  TEST_CASE("windows, sinks and gates over pages of F8_E4M3 are those over bf16, too") {
    const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 32};
    for (const Isa isa : available_isas()) {
      for (const std::int64_t window : {0, 37}) {
        Queue queue = test_queue(isa, 2);
        AttentionFixture f(DType::bf16, shape, 85, 1, DType::f8_e4m3);
        f.window = window;
        if (window != 0) f.sinks = random_tensor(DType::f32, {6}, 9, 3.0F);
        f.gate = random_tensor(DType::bf16, {85, 6 * 32}, 8, 4.0F);
        f.write(queue, 0, 85);
        AttentionFixture wide = f;
        wide.arena = pages_as(f.arena, DType::f8_e4m3, DType::bf16, shape);
        f.attend(queue, 0, 85);
        wide.attend(queue, 0, 85);
        CHECK(same_bytes(wide.y, f.y));
      }
    }
  }

  TEST_CASE("every code of F8_E4M3 is read as its number") {
    const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 256};
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa);
      AttentionFixture f(DType::bf16, shape, 1, 1, DType::f8_e4m3);
      for (std::int64_t i = 0; i < 256; ++i) {
        f.v.set(i, e4m3_to_float(static_cast<std::uint8_t>(i)));
      }
      f.write(queue, 0, 1);
      f.attend(queue, 0, 1);
      for (std::int64_t i = 0; i < 256; ++i) {
        CAPTURE(i);
        CHECK(std::isnan(f.y.get(i)) == std::isnan(f.v.get(i)));
        if (!std::isnan(f.v.get(i))) CHECK(f.y.get(i) == f.v.get(i));
      }
    }
  }
}

}  // namespace
