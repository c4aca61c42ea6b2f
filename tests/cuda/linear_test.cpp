#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Case {
  std::int64_t tokens, outputs, inner;
  DType x, weight, y;
  bool add;
  Strides strides;
};
const Case cases[] = {
    {70, 150, 96, DType::bf16, DType::bf16, DType::bf16, false, {}},
    {130, 40, 200, DType::bf16, DType::bf16, DType::f32, true, {8, 0}},
    {3, 70, 264, DType::bf16, DType::bf16, DType::bf16, true, {8, 8}},
    {1, 5, 8, DType::bf16, DType::bf16, DType::f32, false, {}},
    {5, 33, 30, DType::bf16, DType::bf16, DType::bf16, false, {3, 1}},  // no multiple of 8
    {4, 19, 70, DType::f32, DType::f32, DType::f32, true, {}},
    {2, 9, 65, DType::bf16, DType::f16, DType::f32, false, {}},
    {3, 8, 40, DType::f32, DType::bf16, DType::f32, false, {1, 1}},
};

/// The weight's published bytes, here and on the device.
struct TestWeight {
  TestWeight(const Case& c, const std::vector<std::byte>& bytes)
      : source{.dtype = c.weight,
               .experts = 1,
               .rows = c.outputs,
               .columns = c.inner,
               .bytes = bytes},
        host(Weight::view(source)) {
    cuda::check(cudaMalloc(&data, bytes.size()), "cudaMalloc");
    cuda::check(cudaMemcpy(data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    WeightSource there = source;
    there.bytes = {data, bytes.size()};
    device = Weight::view(there);
  }
  ~TestWeight() { cudaFree(data); }
  TestWeight(const TestWeight&) = delete;
  TestWeight& operator=(const TestWeight&) = delete;

  WeightSource source;
  Weight host, device;
  std::byte* data = nullptr;
};

std::vector<std::byte> weight_bytes(const Case& c) {
  if (c.weight != DType::f16) return random_tensor(c.weight, {c.outputs, c.inner}, 7).packed();
  std::mt19937 random(7);
  std::vector<std::byte> bytes(static_cast<std::size_t>(c.outputs * c.inner) * 2);
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto half = static_cast<std::uint16_t>((random() & 0x83ffU) | (13 + random() % 3) << 10);
    std::memcpy(&bytes[i], &half, 2);
  }
  return bytes;
}

/// Against the exact sum, by the contract's bound and one rounding of y.
void check_close(const Case& c, const TestTensor& x, const Weight& weight, const TestTensor& before,
                 const TestTensor& answer, float scale) {
  std::vector<float> row(static_cast<std::size_t>(c.inner));
  for (std::int64_t n = 0; n < c.outputs; ++n) {
    weight.read_row(0, n, row);
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      double sum = 0, size = 0;
      for (std::int64_t k = 0; k < c.inner; ++k) {
        const double product = double{x.get(t * c.inner + k)} * row[static_cast<std::size_t>(k)];
        sum += product;
        size += std::fabs(product);
      }
      const double exact = (c.add ? before.get(t * c.outputs + n) : 0.0) + scale * sum;
      const double rounding = c.y == DType::bf16 ? 0x1p-8 : 0x1p-23;
      const double bound = static_cast<double>(c.inner + 4) * 0x1p-23 * std::fabs(scale) * size +
                           rounding * std::fabs(exact) + 1e-30;
      REQUIRE(std::fabs(answer.get(t * c.outputs + n) - exact) <= bound);
    }
  }
}

void check_case(const Case& c) {
  CAPTURE(c.tokens);
  CAPTURE(c.inner);
  constexpr float scale = 0.7F;
  const auto x = random_tensor(c.x, {c.tokens, c.inner}, 5, 1.0F, c.strides);
  const auto before = random_tensor(c.y, {c.tokens, c.outputs}, 6, 1.0F, {5, 1});
  const std::vector<std::byte> bytes = weight_bytes(c);
  const TestWeight weight(c, bytes);

  cuda::Stream stream;
  const DeviceTensor on_x(x), on_y(before), on_row(before);
  const Linear op = {.x = on_x, .weight = &weight.device, .y = on_y, .scale = scale, .add = c.add};
  cuda::linear(stream, op);
  stream.wait();
  const TestTensor answer = on_y.fetch();
  check_close(c, x, weight.host, before, answer, scale);
  CHECK(answer.guards_intact());
  CHECK(on_x.fetch().everything() == x.everything());

  // The last row alone, from a graph: the same bits, though the tile is another.
  Linear alone = op;
  alone.x = Tensor(on_x).rows(c.tokens - 1, 1);
  alone.y = Tensor(on_row).rows(c.tokens - 1, 1);
  const cuda::Graph graph(stream, [&] { cuda::linear(stream, alone); });
  graph.replay(stream);
  stream.wait();
  const TestTensor row = on_row.fetch();
  for (std::int64_t i = (c.tokens - 1) * c.outputs; i < c.tokens * c.outputs; ++i) {
    REQUIRE(row.get(i) == answer.get(i));
  }
}

TEST_SUITE("cuda/linear") {
  TEST_CASE("is the definition within its bound, and a row's answer is its own") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : cases) check_case(c);
    });
  }
}

}  // namespace
