#include "kernels/linear/random_rows.h"

#include <vector>

#include "kernels/transfer.h"
#include "kernels/weight.h"
#include "tests/cuda/support.h"

namespace random_rows_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Rows of two tensors, some of them apart and in another order.
WeightSource cut(std::int64_t rows, std::int64_t columns) {
  const WeightSource first(RandomNumbers{.stream = 7, .reach = 0.25F}, 1, rows, columns),
      second(RandomNumbers{.stream = ~std::uint64_t{0} - 3, .reach = 1.0F}, 1, rows, columns);
  WeightSource all(1, 2 * rows, columns);
  all.append(first, rows / 2, rows - rows / 2);
  all.append(second, 0, rows);
  all.append(first, 0, rows / 2);
  return all;
}

std::vector<std::byte> downloaded(Queue& queue, const Weight& weight) {
  std::vector<std::byte> bytes(weight.owned_bytes());
  download(queue, bytes, weight.expert(0));
  return bytes;
}

/// What the CPU makes of the same rows goes to the card as published rows do.
void check_same(Queue& queue, const WeightSource& source, DType dtype, Quantize quantize) {
  const Buffer made = make_rows(queue, source);
  const DType made_as = source.strips.front().dtype;
  const Weight expected = Weight::pack(
      queue, {made_as, source.experts, source.rows, source.columns, {made.data(), made.bytes()}},
      dtype, quantize);
  const Weight weight = Weight::pack(queue, source, dtype, quantize);
  REQUIRE(weight.owned_bytes() == expected.owned_bytes());
  CHECK(downloaded(queue, weight) == downloaded(queue, expected));
}

}  // namespace

TEST_SUITE("cuda/random_rows") {
  TEST_CASE("what the card makes up is what the CPU makes up, to the bit") {
    in_every_schedule([](const std::string& name) {
      CAPTURE(name);
      Queue queue(Device::cuda, {.threads = 2, .isa = {}});
      for (const DType dtype : {DType::bf16, DType::f32}) {
        for (const std::int64_t columns : {1, 7, 64, 2049}) {
          CAPTURE(columns);
          check_same(queue, cut(5, columns), dtype, Quantize::none);
          check_same(queue, {RandomNumbers{.stream = 99, .reach = 0.1F}, 3, 4, columns}, dtype,
                     Quantize::none);
        }
      }
      const RandomNumbers halves = {.stream = 5, .reach = 0.1F, .dtype = DType::f16};
      for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
        check_same(queue, {halves, 3, 4, 130}, dtype, Quantize::none);
      }
      for (const Quantize quantize : {Quantize::q8, Quantize::q4}) {
        check_same(queue, cut(5, 200), DType::bf16, quantize);
        check_same(queue, {RandomNumbers{.stream = 99, .reach = 0.1F}, 3, 4, 130}, DType::bf16,
                   quantize);
      }
    });
  }
}

}  // namespace random_rows_test
