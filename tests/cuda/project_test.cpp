#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

enum class Norm { none, rms, one_plus, gated, before_gate };

struct Case {
  std::int64_t tokens, outputs, inner;
  Norm norm;
  std::int64_t groups;
  std::optional<Activation> activation;
  bool add;
  DType dtype;
  Strides strides;
};
constexpr DType f32 = DType::f32, bf = DType::bf16;
constexpr auto silu = Activation::silu_gated, relu2 = Activation::relu2;
const Case cases[] = {
    {1, 22, 1608, Norm::rms, 1, {}, true, bf, {}},
    {1, 70, 264, Norm::one_plus, 1, silu, false, bf, {}},
    {1, 77, 392, Norm::rms, 1, relu2, false, bf, {}},
    {2, 37, 512, Norm::gated, 1, {}, true, bf, {8, 0}},
    {3, 42, 2080, Norm::gated, 2, silu, false, bf, {16, 8}},
    {4, 301, 64, Norm::gated, 8, {}, false, bf, {}},
    {5, 30, 1032, Norm::rms, 1, relu2, false, bf, {8, 8}},
    {8, 602, 136, Norm::rms, 1, silu, false, bf, {}},
    {8, 12, 3080, Norm::rms, 1, silu, false, bf, {}},  // x does not fit into shared memory
    {2, 26, 512, Norm::before_gate, 4, {}, true, bf, {8, 0}},
    {3, 42, 2080, Norm::before_gate, 2, silu, false, bf, {16, 8}},
    {8, 20, 264, Norm::before_gate, 33, {}, true, bf, {}},       // narrow slices: of 8
    {3, 20, 2304, Norm::before_gate, 18, {}, true, bf, {8, 8}},  // of 128
    {2, 20, 1280, Norm::gated, 5, {}, true, bf, {}},             // of 256
    {8, 12, 240, Norm::gated, 10, {}, true, bf, {}},  // of 24, and more than a block may norm
    {9, 34, 264, Norm::before_gate, 3, silu, false, bf, {8, 0}},
    {2, 18, 60, Norm::before_gate, 4, silu, false, bf, {}},
    {5, 22, 70, Norm::before_gate, 2, silu, false, f32, {}},
    {7, 6, 256, Norm::none, 1, silu, false, bf, {}},
    {3, 2, 128, Norm::none, 1, silu, false, bf, {}},
    {9, 34, 264, Norm::gated, 3, silu, false, bf, {8, 0}},
    {9, 1034, 24, Norm::none, 1, silu, false, bf, {}},
    {17, 70, 72, Norm::rms, 1, relu2, false, bf, {}},
    {33, 26, 136, Norm::one_plus, 1, {}, true, bf, {}},
    {66, 42, 64, Norm::rms, 1, silu, false, bf, {}},
    {66, 130, 40, Norm::none, 1, relu2, false, bf, {}},
    {2, 18, 60, Norm::gated, 4, silu, false, bf, {}},  // no multiple of 8
    {3, 18, 33, Norm::rms, 1, silu, false, bf, {1, 1}},
    {5, 22, 70, Norm::gated, 2, silu, false, f32, {}},
    {1, 21, 68, Norm::rms, 1, relu2, false, f32, {}},
    {2, 9, 64, Norm::rms, 1, {}, true, f32, {3, 1}},
};

/// What a case projects, here and on the device.
struct Inputs {
  explicit Inputs(const Case& c)
      : x(random_tensor(c.dtype, {c.tokens, c.inner}, 1, 1.0F, c.strides)),
        gate(random_tensor(c.dtype, {c.tokens, c.inner}, 2, 1.0F, c.strides)),
        norm(random_tensor(f32, {c.inner}, 3)),
        before(random_tensor(c.dtype, {c.tokens, columns(c)}, 4, 1.0F, {5, 1})),
        normed(c.dtype, {c.tokens, c.inner}),
        product(c.dtype, {c.tokens, c.outputs}),
        weight(c.dtype, c.outputs, c.inner,
               random_tensor(c.dtype, {c.outputs, c.inner}, 5, 0.2F).packed()),
        on_x(x),
        on_gate(gate),
        on_norm(norm),
        on_y(before),
        on_normed(normed),
        on_product(product) {}

  static std::int64_t columns(const Case& c) {
    return c.activation == silu ? c.outputs / 2 : c.outputs;
  }

  TestTensor x, gate, norm, before, normed, product;
  TestWeight weight;
  DeviceTensor on_x, on_gate, on_norm, on_y, on_normed, on_product;
};

InputNorm norm_of(const Case& c, const Tensor& weight, const Tensor& gate) {
  if (c.norm == Norm::none) return {};
  InputNorm norm = {.weight = weight, .eps = 1e-3F, .one_plus = c.norm == Norm::one_plus};
  norm.norm_first = c.norm == Norm::before_gate;
  if (c.norm == Norm::gated || norm.norm_first) norm.gate = gate, norm.groups = c.groups;
  return norm;
}

Project on_device(const Case& c, const Inputs& in) {
  return {.x = in.on_x,
          .norm = norm_of(c, in.on_norm, in.on_gate),
          .weight = &in.weight.device,
          .y = in.on_y,
          .activation = c.activation,
          .normed = in.on_normed,
          .product = in.on_product,
          .scale = c.activation ? 1.0F : 0.6F,
          .add = c.add};
}

TestTensor expected(const Case& c, const Inputs& in) {
  TestTensor y = in.before, normed = in.normed, product = in.product;
  Queue plain = test_queue(Isa::plain);
  project(plain, {.x = in.x,
                  .norm = norm_of(c, in.norm, in.gate),
                  .weight = &in.weight.host,
                  .y = y,
                  .activation = c.activation,
                  .normed = normed,
                  .product = product,
                  .scale = c.activation ? 1.0F : 0.6F,
                  .add = c.add});
  return y;
}

/// norm, linear and gated_activation, each by itself.
TestTensor one_by_one(cuda::Stream& stream, const Case& c, const Inputs& in) {
  const DeviceTensor on_y(in.before);
  const Project op = on_device(c, in);
  Tensor x = op.x;
  if (c.norm == Norm::gated || c.norm == Norm::before_gate) {
    cuda::gated_norm(stream, {.x = x,
                              .gate = op.norm.gate,
                              .weight = op.norm.weight,
                              .y = op.normed,
                              .eps = op.norm.eps,
                              .groups = op.norm.groups,
                              .norm_first = op.norm.norm_first});
  } else if (c.norm != Norm::none) {
    cuda::rms_norm(stream, {.x = x,
                            .weight = op.norm.weight,
                            .y = op.normed,
                            .eps = op.norm.eps,
                            .one_plus = op.norm.one_plus});
  }
  if (c.norm != Norm::none) x = op.normed;
  if (c.activation) {
    cuda::linear(stream, {.x = x, .weight = op.weight, .y = op.product});
    cuda::gated_activation(stream, {.x = op.product, .y = on_y, .activation = *c.activation});
  } else {
    cuda::linear(stream,
                 {.x = x, .weight = op.weight, .y = on_y, .scale = op.scale, .add = op.add});
  }
  stream.wait();
  return on_y.fetch();
}

void check_case(const Case& c, bool batch_invariant) {
  CAPTURE(c.tokens);
  CAPTURE(c.inner);
  cuda::Stream stream;
  stream.set_batch_invariant(batch_invariant);
  const Inputs in(c);
  const cuda::Graph graph(stream, [&] { cuda::project(stream, on_device(c, in)); });
  graph.replay(stream);
  stream.wait();
  const TestTensor answer = in.on_y.fetch();
  CHECK(answer.guards_intact());
  CHECK(in.on_x.fetch().everything() == in.x.everything());
  CHECK(same_bytes(answer, one_by_one(stream, c, in)));
  // Sums that end on two sides of a rounding, of the norm, the product or y.
  CHECK(largest_error(answer, expected(c, in), 1.0) <= (c.dtype == bf ? 0.03 : 1e-5));
}

TEST_SUITE("cuda/project") {
  TEST_CASE("is norm, product and activation one after the other, bit for bit") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : cases) check_case(c, false);
    });
  }

  TEST_CASE("batch-invariant too") {
    for (const Case& c : cases) check_case(c, true);
  }
}

}  // namespace
