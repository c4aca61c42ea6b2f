#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/cuda/staging.h"
#include "tests/cuda/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

enum class Experts { any, one, spread };  ///< which ones the router's bias prefers

struct Case {
  std::int64_t tokens, hidden, experts, active, intermediate, shared;
  DType dtype, weights;
  Activation activation = Activation::silu_gated;
  Experts preferred = Experts::any;
  Strides strides = {};
};
constexpr DType f32 = DType::f32, bf16_type = DType::bf16;
const Case cases[] = {
    // few tokens
    {1, 136, 40, 3, 48, 24, bf16_type, bf16_type},
    {3, 64, 6, 6, 8, 0, bf16_type, bf16_type, Activation::relu2, Experts::any, {8, 0}},
    {9, 72, 20, 2, 280, 264, bf16_type, bf16_type, Activation::silu_gated, Experts::spread},
    {16, 200, 5, 2, 40, 24, bf16_type, bf16_type, Activation::relu2, Experts::one, {16, 8}},
    // tiles
    {37, 72, 10, 2, 40, 24, bf16_type, bf16_type, Activation::silu_gated, Experts::one, {8, 8}},
    {60, 40, 3, 3, 72, 0, bf16_type, bf16_type, Activation::relu2, Experts::any},
    {70, 40, 1, 1, 24, 8, bf16_type, bf16_type, Activation::silu_gated, Experts::any},
    {140, 32, 1, 1, 24, 0, bf16_type, bf16_type, Activation::silu_gated, Experts::any},
    // any size, any type
    {5, 30, 7, 2, 9, 11, bf16_type, bf16_type, Activation::silu_gated, Experts::any, {1, 1}},
    {20, 24, 4, 2, 16, 8, f32, f32, Activation::relu2, Experts::spread},
    {2, 33, 5, 5, 10, 0, f32, bf16_type, Activation::silu_gated, Experts::one, {3, 1}},
};

/// A weight in rows, here and on the device.
struct TestWeight {
  TestWeight(DType dtype, std::int64_t experts, std::int64_t rows, std::int64_t columns,
             unsigned seed)
      : bytes(random_tensor(dtype, {std::max<std::int64_t>(experts, 1), rows, columns}, seed, 0.2F)
                  .packed()),
        on_device(cuda::make_device(bytes.size())) {
    cuda::check(cudaMemcpy(on_device.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
                "cudaMemcpy");
    host = Weight::view({dtype, experts, rows, columns, bytes});
    device = Weight::view({dtype, experts, rows, columns, {on_device.get(), bytes.size()}});
  }
  std::vector<std::byte> bytes;
  cuda::DeviceBytes on_device;
  Weight host, device;
};

std::int64_t halves(const Case& c) { return c.activation == Activation::silu_gated ? 2 : 1; }

struct Weights {
  explicit Weights(const Case& c)
      : router(c.weights, 1, c.experts, c.hidden, 1),
        gate_up(c.weights, c.experts, halves(c) * c.intermediate, c.hidden, 2),
        down(c.weights, c.experts, c.hidden, c.intermediate, 3),
        shared_gate_up(c.weights, 1, std::max<std::int64_t>(1, halves(c) * c.shared), c.hidden, 4),
        shared_down(c.weights, 1, c.hidden, std::max<std::int64_t>(1, c.shared), 5),
        norm(random_tensor(f32, {c.hidden}, 6)),
        bias(f32, {c.experts}) {
    for (std::int64_t e = 0; e < c.experts; ++e) {
      const bool is_one = c.preferred == Experts::one && e == c.experts / 2;
      bias.set(e, is_one ? 9.0F : c.preferred == Experts::spread && e % 3 == 1 ? 2.0F : 0.0F);
    }
  }
  TestWeight router, gate_up, down, shared_gate_up, shared_down;
  TestTensor norm, bias;
};

MoeShape shape_of(const Case& c) {
  return {c.tokens, c.active, c.experts, c.hidden, c.intermediate, c.shared, c.dtype, c.activation};
}

struct Room {
  explicit Room(std::size_t size) : bytes(size), on_device(cuda::make_device(size)) {
    cuda::check(cudaMemset(on_device.get(), 0, size), "cudaMemset");
  }
  Tensor host() { return {bytes.data(), DType::u8, {std::ssize(bytes)}}; }
  Tensor device() { return {on_device.get(), DType::u8, {std::ssize(bytes)}}; }
  std::vector<std::byte> bytes;
  cuda::DeviceBytes on_device;
};

/// The op but for its rows and its workspace.
Moe op_of(const Case& c, const Weights& w, Weight TestWeight::*side, const Tensor& norm,
          const Tensor& bias) {
  return {.x = {},
          .norm = {.weight = norm, .eps = 1e-5F, .one_plus = c.active == 2},
          .router = &(w.router.*side),
          .gate_up = &(w.gate_up.*side),
          .down = &(w.down.*side),
          .shared_gate_up = c.shared == 0 ? nullptr : &(w.shared_gate_up.*side),
          .shared_down = c.shared == 0 ? nullptr : &(w.shared_down.*side),
          .bias = bias,
          .routing = {.score = Routing::Score::sigmoid, .renormalize = true},
          .active = c.active,
          .activation = c.activation,
          .y = {},
          .scale = 0.8F};
}

TestTensor by_plain_loops(const Case& c, const Weights& w, const TestTensor& x) {
  Queue plain = test_queue(Isa::plain);
  TestTensor y = x;
  Room room(moe_workspace_bytes(Device::cpu, shape_of(c)));
  Moe op = op_of(c, w, &TestWeight::host, w.norm, w.bias);
  op.x = op.y = y;
  op.workspace = room.host();
  moe(plain, op);
  return y;
}

/// Within some roundings of what the block adds to the residual stream.
void check_close(const Case& c, const TestTensor& x, const TestTensor& expected,
                 const TestTensor& answer) {
  double largest = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::fabs(double{expected.get(i)} - x.get(i)));
  }
  const double rounding = c.dtype == bf16_type ? 0x1p-7 : 0x1p-19;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double error = std::fabs(double{answer.get(i)} - expected.get(i));
    REQUIRE(error <= rounding * (std::fabs(expected.get(i)) + largest));
  }
  CHECK(answer.guards_intact());
}

void check_case(const Case& c) {
  CAPTURE(c.tokens);
  CAPTURE(c.hidden);
  const Weights w(c);
  const DeviceTensor norm(w.norm), bias(w.bias);
  Room room(cuda::moe_workspace_bytes(shape_of(c)));
  const auto first = random_tensor(c.dtype, {c.tokens, c.hidden}, 7, 1.0F, c.strides);
  const auto second = random_tensor(c.dtype, {c.tokens, c.hidden}, 8, 1.0F, c.strides);
  DeviceTensor y(first);
  cuda::Stream stream;
  Moe op = op_of(c, w, &TestWeight::device, norm, bias);
  op.x = op.y = y;
  op.workspace = room.device();
  const cuda::Graph graph(stream, [&] { cuda::moe(stream, op); });
  const auto answer_to = [&](const TestTensor& x) {
    y.set(x);
    graph.replay(stream);
    stream.wait();
    return y.fetch();
  };
  const TestTensor answer = answer_to(first);
  check_close(c, first, by_plain_loops(c, w, first), answer);
  check_close(c, second, by_plain_loops(c, w, second), answer_to(second));
  CHECK(answer_to(first).everything() == answer.everything());
  // Once more without a graph, by fewer rows: room and tickets are as good as new.
  op.x = op.y = Tensor(y).rows(0, 1);
  cuda::moe(stream, op);
  stream.wait();
  CHECK(y.fetch().guards_intact());
}

/// A row alone, among others, and where they stand in another order: the same bits.
void check_invariance(const Case& c) {
  CAPTURE(c.tokens);
  const Weights w(c);
  const DeviceTensor norm(w.norm), bias(w.bias);
  Room room(cuda::moe_workspace_bytes(shape_of(c)));
  const auto x = random_tensor(c.dtype, {c.tokens, c.hidden}, 9);
  DeviceTensor y(x);
  cuda::Stream stream;
  stream.set_batch_invariant(true);
  Moe op = op_of(c, w, &TestWeight::device, norm, bias);
  op.workspace = room.device();
  op.x = op.y = y;
  cuda::moe(stream, op);
  stream.wait();
  const TestTensor together = y.fetch();
  for (const std::int64_t count : {std::int64_t{1}, std::min<std::int64_t>(c.tokens, 5)}) {
    y.set(x);
    const std::int64_t begin = c.tokens - count;
    op.x = op.y = Tensor(y).rows(begin, count);
    cuda::moe(stream, op);
    stream.wait();
    const TestTensor alone = y.fetch();
    for (std::int64_t i = begin * c.hidden; i < c.tokens * c.hidden; ++i) {
      REQUIRE(alone.get(i) == together.get(i));
    }
  }
}

TEST_SUITE("cuda/moe") {
  TEST_CASE("is the plain loops' block, replayed with other inputs, however tokens meet experts") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : cases) check_case(c);
    });
  }

  TEST_CASE("batch-invariant: a row's answer is its own") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : {cases[0], cases[2], cases[4]}) check_invariance(c);
    });
  }
}

}  // namespace
