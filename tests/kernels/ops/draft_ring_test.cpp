#include "kernels/ops/draft_ring.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/kernels/ops/draft_ring_case.h"

namespace ops_draft_ring_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Calls body(queue, case, inputs) for all of them.
template <typename Body>
void in_every_case(Body&& body) {
  for (const int threads : {1, 3}) {
    Queue queue = test_queue(best_isa(), threads);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const RingCase& c : ring_cases()) {
        CAPTURE(c.columns);
        RingInputs in(c, dtype);
        body(queue, c, in);
      }
    }
  }
}

float ring_value(const RingCase& c, const RingInputs& in, std::int64_t row, std::int64_t column) {
  return in.ring.get(row * c.ring_columns + c.ring_column + column);
}

}  // namespace

TEST_SUITE("kernels/ops/draft_ring") {
  TEST_CASE("extend_rows: rows of the step and of rings, byte for byte, nothing else is written") {
    const std::vector<std::int32_t> from = extended_from();
    in_every_case([&](Queue& queue, const RingCase& c, RingInputs& in) {
      extend_rows(queue, {.x = in.x,
                          .ring = in.ring,
                          .from = Table(from),
                          .y = in.y,
                          .ring_column = c.ring_column});
      for (std::int64_t i = 0; i < in.y.size(); ++i) {
        const std::int32_t row = from[static_cast<std::size_t>(i / c.columns)];
        const std::int64_t column = i % c.columns;
        REQUIRE(in.y.get(i) == (row >= 0        ? in.x.get(row * c.columns + column)
                                : row == no_row ? 0.0F
                                                : ring_value(c, in, -1 - row, column)));
      }
      CHECK(in.y.guards_intact());
    });
  }

  TEST_CASE("extend_rows: without a ring its rows are ones; there need not be any of the step") {
    const std::vector<std::int32_t> from = extended_from();
    in_every_case([&](Queue& queue, const RingCase& c, RingInputs& in) {
      extend_rows(queue, {.x = in.x, .ring = {}, .from = Table(from), .y = in.y});
      for (std::int64_t i = 0; i < in.y.size(); ++i) {
        const std::int32_t row = from[static_cast<std::size_t>(i / c.columns)];
        REQUIRE(in.y.get(i) == (row >= 0        ? in.x.get(row * c.columns + i % c.columns)
                                : row == no_row ? 0.0F
                                                : 1.0F));
      }
      const Tensor none(nullptr, in.x.view().dtype, {0, c.columns});
      extend_rows(queue, {.x = none,
                          .ring = in.ring,
                          .from = Table{-8, -7},
                          .y = in.y.view().rows(0, 2),
                          .ring_column = c.ring_column});
      for (std::int64_t i = 0; i < 2 * c.columns; ++i) {
        REQUIRE(in.y.get(i) == ring_value(c, in, 7 - i / c.columns, i % c.columns));
      }
    });
  }

  TEST_CASE("keep_rows: the named rows, with a gate as short_conv multiplies") {
    const std::vector<std::int32_t> to = kept_to();
    for (const bool has_gate : {false, true}) {
      in_every_case([&](Queue& queue, const RingCase& c, RingInputs& in) {
        const TestTensor before = in.ring;
        keep_rows(queue, {.x = in.x,
                          .gate = has_gate ? Tensor(in.gate) : Tensor(),
                          .to = Table(to),
                          .ring = in.ring,
                          .ring_column = c.ring_column});
        CHECK(in.ring.guards_intact());
        for (std::int64_t i = 0; i < in.ring.size(); ++i) {
          const std::int64_t row = i / c.ring_columns, column = i % c.ring_columns - c.ring_column;
          const auto kept = std::find(to.begin(), to.end(), static_cast<std::int32_t>(row));
          if (kept == to.end() || column < 0 || column >= c.columns) {
            REQUIRE(in.ring.get(i) == before.get(i));
            continue;
          }
          const std::int64_t at = (kept - to.begin()) * c.columns + column;
          float wanted = in.x.get(at);
          if (has_gate) wanted *= in.gate.get(at);
          if (in.x.view().dtype == DType::bf16) wanted = to_float(to_bf16(wanted));
          REQUIRE(in.ring.get(i) == wanted);
        }
      });
    }
  }

  TEST_CASE("names the broken rule before anything is written") {
    Queue queue = test_queue(best_isa());
    RingInputs in({8, 8, 0}, DType::f32);
    const TestTensor ring = in.ring;
    const auto extend = [&](std::int32_t from, std::int64_t ring_column) {
      extend_rows(queue, {.x = in.x,
                          .ring = in.ring,
                          .from = Table{0, from},
                          .y = in.y.view().rows(0, 2),
                          .ring_column = ring_column});
    };
    CHECK_THROWS_WITH_AS(extend(6, 0), "extend_rows: from is a row of x, got 6", Error);
    CHECK_THROWS_WITH_AS(extend(-16, 0), "extend_rows: from is a row of a ring, got -16", Error);
    CHECK_THROWS_WITH_AS(extend(0, 1), "extend_rows: the columns are within the ring, got 1",
                         Error);
    for (const float value : in.y.values()) CHECK(value == 0.0F);
    CHECK_THROWS_WITH_AS(
        keep_rows(queue,
                  {.x = in.x.view().rows(0, 2), .gate = {}, .to = Table{0, 15}, .ring = in.ring}),
        "keep_rows: to is a row of a ring, got 15", Error);
    CHECK(in.ring.everything() == ring.everything());
  }
}

}  // namespace ops_draft_ring_test
