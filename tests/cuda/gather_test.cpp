#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"

namespace cuda_gather_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Case {
  std::int64_t rows, width;
  Strides strides;
};
const Case cases[] = {{7, 96, {}}, {20, 1100, {}}, {9, 64, {8, 8}}, {5, 33, {3, 1}}, {4, 40, {1}}};

/// The table names rows that are not there too: NaN.
std::vector<std::int32_t> names(std::int64_t rows) {
  return {0, static_cast<std::int32_t>(rows - 1), 2, 2, -1, static_cast<std::int32_t>(rows)};
}

void check_rows(const Case& c, const std::vector<std::int32_t>& rows, const TestTensor& expected,
                const TestTensor& answer) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool is_there = rows[i] >= 0 && rows[i] < c.rows;
    for (std::int64_t k = 0; k < c.width; ++k) {
      const std::int64_t at = static_cast<std::int64_t>(i) * c.width + k;
      if (is_there) {
        REQUIRE(answer.get(at) == expected.get(at));
      } else {
        REQUIRE(std::isnan(answer.get(at)));
      }
    }
  }
  CHECK(answer.guards_intact());
}

void check_gather(const Case& c, DType dtype) {
  CAPTURE(c.width);
  const auto rows = names(c.rows);
  const auto count = static_cast<std::int64_t>(rows.size());
  const TestTensor x = random_tensor(dtype, {c.rows, c.width}, 1, 1.0F, c.strides);
  const TestTensor y(dtype, {count, c.width}, c.strides);
  TestTensor expected = y;
  Queue plain = test_queue(Isa::plain);
  const Table there(std::vector<std::int32_t>(rows.begin(), rows.end() - 2));
  gather_rows(plain, {.x = x, .rows = there, .y = expected.view().rows(0, count - 2)});

  cuda::Stream stream;
  const DeviceTensor on_x(x), on_y(y);
  const DeviceTable on_rows(rows);
  const cuda::Graph graph(
      stream, [&] { cuda::gather_rows(stream, {.x = on_x, .rows = on_rows, .y = on_y}); });
  graph.replay(stream);
  stream.wait();
  check_rows(c, rows, expected, on_y.fetch());
}

void check_embed(const Case& c, DType weight_type, DType dtype) {
  CAPTURE(c.width);
  const auto tokens = names(c.rows);
  const auto count = static_cast<std::int64_t>(tokens.size());
  std::vector<std::byte> bytes =
      random_tensor(weight_type == DType::f16 ? DType::bf16 : weight_type, {c.rows, c.width}, 7)
          .packed();
  // A bf16 with its top exponent bit cleared is a finite half.
  for (std::size_t i = 1; weight_type == DType::f16 && i < bytes.size(); i += 2) {
    bytes[i] &= std::byte{0xbf};
  }
  const Weight host = Weight::view({weight_type, 1, c.rows, c.width, bytes});
  const TestTensor y(dtype, {count, c.width}, c.strides);
  TestTensor expected = y;
  Queue plain = test_queue(Isa::plain);
  const Table there(std::vector<std::int32_t>(tokens.begin(), tokens.end() - 2));
  embed(plain,
        {.weight = &host, .tokens = there, .y = expected.view().rows(0, count - 2), .scale = 0.3F});

  cuda::Stream stream;
  std::byte* data = nullptr;
  cuda::check(cudaMalloc(&data, bytes.size()), "cudaMalloc");
  copy_to_card(data, bytes);
  const Weight weight =
      Weight::view({weight_type, 1, c.rows, c.width, std::span(data, bytes.size())});
  const DeviceTensor on_y(y);
  const DeviceTable on_tokens(tokens);
  cuda::embed(stream, {.weight = &weight, .tokens = on_tokens, .y = on_y, .scale = 0.3F});
  stream.wait();
  check_rows(c, tokens, expected, on_y.fetch());
  cudaFree(data);
}

TEST_SUITE("cuda/gather_rows") {
  TEST_CASE("rows are the plain loop's, replayed from a graph; one that is not there is NaN") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Case& c : cases) check_gather(c, dtype);
      }
    });
  }

  TEST_CASE("embedded tokens are the plain loop's; one outside of the vocabulary is NaN") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType weight_type : {DType::f32, DType::bf16, DType::f16}) {
        for (const Case& c : cases) {
          check_embed(c, weight_type, DType::bf16);
          check_embed(c, weight_type, DType::f32);
        }
      }
    });
  }
}

}  // namespace

TEST_SUITE("cuda/spread_columns") {
  TEST_CASE("columns are the plain loop's; one that is not there is NaN") {
    std::vector<std::int32_t> from(701, -1);
    for (std::size_t c = 0; c < from.size(); c += 3) from[c] = static_cast<std::int32_t>(c % 89);
    const TestTensor x = random_tensor(DType::f32, {3, 89}, 1, 1.0F, {3, 1});
    TestTensor expected(DType::f32, {3, 701}, {5, 2});
    const DeviceTensor on_x(x), on_y(expected);
    Queue plain = test_queue(Isa::plain);
    spread_columns(plain, {.x = x, .from = Table(from), .y = expected});
    from[5] = 89;
    const DeviceTable on_from(from);
    cuda::Stream stream;
    cuda::spread_columns(stream, {.x = on_x, .from = on_from, .y = on_y});
    stream.wait();
    TestTensor answer = on_y.fetch();
    CHECK(answer.guards_intact());
    for (const std::int64_t row : {0, 1, 2}) {
      CHECK(std::isnan(answer.get(row * 701 + 5)));
      answer.set(row * 701 + 5, -HUGE_VALF);
    }
    CHECK(same_bytes(answer, expected));
  }
}

}  // namespace cuda_gather_test
