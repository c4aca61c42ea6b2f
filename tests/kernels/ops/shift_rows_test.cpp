#include <doctest/doctest.h>

#include "tests/kernels/ops/shift_rows_case.h"

namespace ops_shift_rows_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

void run(Queue& queue, ShiftInputs& in) {
  shift_rows(queue, {.x = in.x,
                     .kept = in.kept,
                     .span_begin = Table(shift_begin()),
                     .read_slot = Table(shift_read()),
                     .write_slot = Table(shift_write()),
                     .y = in.y});
}

/// The definition, span by span: a chain reads what the span before it has left.
void shift(const ShiftCase& c, const ShiftInputs& before, ShiftInputs& in) {
  for (std::size_t span = 0; span + 1 < shift_begin().size(); ++span) {
    const std::int32_t read = shift_read()[span], write = shift_write()[span];
    for (std::int64_t column = 0; column < c.columns; ++column) {
      float last = read < 0 ? 0.0F : in.kept.get(read * c.columns + column);
      for (std::int64_t t = shift_begin()[span]; t < shift_begin()[span + 1]; ++t) {
        in.y.set(t * c.columns + column, last);
        last = before.x.get(t * c.columns + column);
      }
      if (write >= 0) in.kept.set(write * c.columns + column, last);
    }
  }
}

}  // namespace

TEST_SUITE("kernels/ops/shift_rows") {
  TEST_CASE("rows of the token before, of slots, and zeros; nothing else is written") {
    for (const int threads : {1, 3}) {
      Queue queue = test_queue(best_isa(), threads);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const ShiftCase& c : shift_cases()) {
          CAPTURE(c.columns);
          ShiftInputs in(c, dtype), expected(c, dtype);
          run(queue, in);
          shift(c, in, expected);
          CHECK(in.y.everything() == expected.y.everything());
          CHECK(in.kept.everything() == expected.kept.everything());
        }
      }
    }
  }

  TEST_CASE("what a bug of the caller would break is refused") {
    Queue queue = test_queue(best_isa(), 1);
    ShiftInputs in({8}, DType::f32);
    const Table begin(shift_begin()), read(shift_read()), write(shift_write());
    const ShiftRows op = {.x = in.x,
                          .kept = in.kept,
                          .span_begin = begin,
                          .read_slot = read,
                          .write_slot = write,
                          .y = in.y};
    const auto refuses = [&](const ShiftRows& wrong) {
      CHECK_THROWS_AS(shift_rows(queue, wrong), Error);
    };
    ShiftRows same = op;
    same.y = in.x;
    refuses(same);
    ShiftRows narrow = op;
    narrow.kept = Tensor(in.kept).columns(0, 4);
    refuses(narrow);
    const Table beyond(std::vector<std::int32_t>{7, 1, 6, 3, 4, 6, 2});
    ShiftRows past = op;
    past.read_slot = beyond;
    refuses(past);
  }
}

}  // namespace ops_shift_rows_test
