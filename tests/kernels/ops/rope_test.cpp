#include "kernels/ops/rope.h"

#include <doctest/doctest.h>

#include "tests/kernels/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

TEST_SUITE("kernels/ops/rope") {
  TEST_CASE("turns each pair by its angle and leaves the rest, on every route") {
    constexpr std::int64_t heads = 3, head_dim = 20, rotary_dim = 12;
    const Table positions{0, 7, 131071, 31};
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Queue queue = test_queue(isa, 2);
        const auto before = random_tensor(dtype, {4, heads * head_dim}, 1, 1.0F, {5, 1});
        TestTensor x = before;
        rope(queue, {.x = x,
                     .position_of_row = positions,
                     .heads = heads,
                     .head_dim = head_dim,
                     .rotary_dim = rotary_dim,
                     .theta = 10000.0});
        CHECK(x.guards_intact());
        for (std::int64_t t = 0; t < 4; ++t) {
          for (std::int64_t h = 0; h < heads; ++h) {
            const std::int64_t at = (t * heads + h) * head_dim;
            for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
              const double angle = positions.values()[static_cast<std::size_t>(t)] *
                                   std::pow(10000.0, -2.0 * static_cast<double>(i) / rotary_dim);
              const double low = before.get(at + i), high = before.get(at + i + rotary_dim / 2);
              const double bound =
                  (dtype == DType::bf16 ? 0.004 : 3e-7) * (std::fabs(low) + std::fabs(high));
              REQUIRE(std::fabs(x.get(at + i) - (low * std::cos(angle) - high * std::sin(angle))) <=
                      bound);
              REQUIRE(std::fabs(x.get(at + i + rotary_dim / 2) -
                                (high * std::cos(angle) + low * std::sin(angle))) <= bound);
            }
            for (std::int64_t i = rotary_dim; i < head_dim; ++i) {
              REQUIRE(x.get(at + i) == before.get(at + i));
            }
          }
        }
      }
    }
  }

  TEST_CASE("a row's answer depends on its position only") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 3), one = test_queue(isa, 1);
      const auto before = random_tensor(DType::bf16, {50, 4 * 64}, 2);
      std::vector<std::int32_t> positions(50);
      std::iota(positions.begin(), positions.end(), 900);
      TestTensor whole = before, rows = before;
      Rope op;
      op.heads = 4;
      op.head_dim = op.rotary_dim = 64;
      op.theta = 1e6;
      const Table all(positions);
      op.x = whole;
      op.position_of_row = all;
      rope(queue, op);
      for (std::int64_t t = 0; t < 50; ++t) {
        const Table position{positions[static_cast<std::size_t>(t)]};
        op.x = rows.view().rows(t, 1);
        op.position_of_row = position;
        rope(one, op);
      }
      CHECK(same_bytes(whole, rows));
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const TestTensor x(DType::f32, {1, 16});
    const Table position{0};
    CHECK_THROWS_WITH_AS(
        rope(queue,
             {.x = x, .position_of_row = position, .heads = 2, .head_dim = 8, .rotary_dim = 10}),
        "rope: rotary_dim is within head_dim, got 10", Error);
  }
}

}  // namespace
