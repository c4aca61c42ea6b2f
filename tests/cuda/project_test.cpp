#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"
#include "tests/kernels/linear/coded_weights.h"

namespace cuda_project_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

enum class Norm { none, rms, one_plus, gated, before_gate };

struct Case {
  std::int64_t tokens, outputs, inner;
  Norm norm = Norm::none;
  std::int64_t groups = 1;
  std::optional<Activation> activation = {};
  bool add = false;
  DType dtype = DType::bf16;
  Strides strides = {};
};
constexpr DType f32 = DType::f32, bf = DType::bf16;
const Case cases[] = {
    {.tokens = 1, .outputs = 22, .inner = 1608, .norm = Norm::rms, .add = true},
    {.tokens = 1, .outputs = 70, .inner = 264, .norm = Norm::one_plus, .activation = gated_silu},
    {.tokens = 1, .outputs = 77, .inner = 392, .norm = Norm::rms, .activation = plain_relu2},
    {.tokens = 2, .outputs = 37, .inner = 512, .norm = Norm::gated, .add = true, .strides = {8, 0}},
    {.tokens = 3,
     .outputs = 42,
     .inner = 2080,
     .norm = Norm::gated,
     .groups = 2,
     .activation = gated_silu,
     .strides = {16, 8}},
    {.tokens = 4, .outputs = 301, .inner = 64, .norm = Norm::gated, .groups = 8},
    {.tokens = 5,
     .outputs = 30,
     .inner = 1032,
     .norm = Norm::rms,
     .activation = plain_relu2,
     .strides = {8, 8}},
    {.tokens = 8, .outputs = 602, .inner = 136, .norm = Norm::rms, .activation = gated_silu},
    {.tokens = 4,
     .outputs = 12,
     .inner = 6152,
     .norm = Norm::rms,
     .activation = gated_silu},  // x does not fit into shared memory
    {.tokens = 2,
     .outputs = 26,
     .inner = 512,
     .norm = Norm::before_gate,
     .groups = 4,
     .add = true,
     .strides = {8, 0}},
    {.tokens = 3,
     .outputs = 42,
     .inner = 2080,
     .norm = Norm::before_gate,
     .groups = 2,
     .activation = gated_silu,
     .strides = {16, 8}},
    {.tokens = 4,
     .outputs = 20,
     .inner = 264,
     .norm = Norm::before_gate,
     .groups = 33,
     .add = true},  // narrow slices: of 8
    {.tokens = 3,
     .outputs = 20,
     .inner = 2304,
     .norm = Norm::before_gate,
     .groups = 18,
     .add = true,
     .strides = {8, 8}},  // of 128
    {.tokens = 2,
     .outputs = 20,
     .inner = 1280,
     .norm = Norm::gated,
     .groups = 5,
     .add = true},  // of 256
    {.tokens = 4,
     .outputs = 12,
     .inner = 408,
     .norm = Norm::gated,
     .groups = 17,
     .add = true},  // of 24, and more than a block may norm
    {.tokens = 9,
     .outputs = 34,
     .inner = 264,
     .norm = Norm::before_gate,
     .groups = 3,
     .activation = gated_silu,
     .strides = {8, 0}},
    {.tokens = 2,
     .outputs = 18,
     .inner = 60,
     .norm = Norm::before_gate,
     .groups = 4,
     .activation = gated_silu},
    {.tokens = 5,
     .outputs = 22,
     .inner = 70,
     .norm = Norm::before_gate,
     .groups = 2,
     .activation = gated_silu,
     .dtype = f32},
    {.tokens = 7, .outputs = 6, .inner = 256, .activation = gated_silu},
    {.tokens = 3, .outputs = 2, .inner = 128, .activation = gated_silu},
    {.tokens = 9,
     .outputs = 34,
     .inner = 264,
     .norm = Norm::gated,
     .groups = 3,
     .activation = gated_silu,
     .strides = {8, 0}},
    {.tokens = 9, .outputs = 1034, .inner = 24, .activation = gated_silu},
    {.tokens = 17, .outputs = 70, .inner = 72, .norm = Norm::rms, .activation = plain_relu2},
    {.tokens = 33, .outputs = 26, .inner = 136, .norm = Norm::one_plus, .add = true},
    {.tokens = 66, .outputs = 42, .inner = 64, .norm = Norm::rms, .activation = gated_silu},
    {.tokens = 66, .outputs = 130, .inner = 40, .activation = plain_relu2},
    {.tokens = 2,
     .outputs = 18,
     .inner = 60,
     .norm = Norm::gated,
     .groups = 4,
     .activation = gated_silu},  // no multiple of 8
    {.tokens = 3,
     .outputs = 18,
     .inner = 33,
     .norm = Norm::rms,
     .activation = gated_silu,
     .strides = {1, 1}},
    {.tokens = 5,
     .outputs = 22,
     .inner = 70,
     .norm = Norm::gated,
     .groups = 2,
     .activation = gated_silu,
     .dtype = f32},
    {.tokens = 1,
     .outputs = 21,
     .inner = 68,
     .norm = Norm::rms,
     .activation = plain_relu2,
     .dtype = f32},
    {.tokens = 2,
     .outputs = 9,
     .inner = 64,
     .norm = Norm::rms,
     .add = true,
     .dtype = f32,
     .strides = {3, 1}},
    {.tokens = 4, .outputs = 70, .inner = 264, .norm = Norm::rms, .activation = gated_relu2},
    {.tokens = 4, .outputs = 69, .inner = 264, .norm = Norm::rms, .activation = plain_silu},
    {.tokens = 19, .outputs = 42, .inner = 64, .activation = gated_relu2},
    {.tokens = 70, .outputs = 43, .inner = 64, .activation = plain_silu},
    {.tokens = 3, .outputs = 18, .inner = 33, .activation = gated_relu2, .dtype = f32},
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
    return c.activation ? c.outputs / c.activation->inputs() : c.outputs;
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

Project on_device(const Case& c, const Inputs& in, const Weight& weight) {
  return {.x = in.on_x,
          .norm = norm_of(c, in.on_norm, in.on_gate),
          .weight = &weight,
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
TestTensor one_by_one(cuda::Stream& stream, const Case& c, const Inputs& in, const Weight& weight) {
  const DeviceTensor on_y(in.before);
  const Project op = on_device(c, in, weight);
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
  const cuda::Graph graph(stream,
                          [&] { cuda::project(stream, on_device(c, in, in.weight.device)); });
  graph.replay(stream);
  stream.wait();
  const TestTensor answer = in.on_y.fetch();
  CHECK(answer.guards_intact());
  CHECK(in.on_x.fetch().everything() == in.x.everything());
  CHECK(same_bytes(answer, one_by_one(stream, c, in, in.weight.device)));
  // Sums that end on two sides of a rounding, of the norm, the product or y.
  CHECK(largest_error(answer, expected(c, in), 1.0) <= (c.dtype == bf ? 0.03 : 1e-5));
}

/// The same with a weight in codes; the normed rows are kept.
void check_codes(const Case& c, const CodedFormat& format) {
  CAPTURE(name_of(format.code));
  CAPTURE(c.tokens);
  CAPTURE(c.inner);
  Queue queue(Device::cuda, {.threads = 1, .isa = {}});
  const CodedMatrix coded(queue, format, 1, c.outputs, c.inner, 7);
  queue.stream().wait();
  cuda::Stream stream;
  const Inputs in(c);
  Project op = on_device(c, in, coded.weight);
  op.keep_normed = true;
  cuda::project(stream, op);
  stream.wait();
  const TestTensor answer = in.on_y.fetch(), kept = in.on_normed.fetch();
  CHECK(answer.guards_intact());
  CHECK(in.on_x.fetch().everything() == in.x.everything());
  CHECK(same_bytes(answer, one_by_one(stream, c, in, coded.weight)));
  CHECK(same_bytes(kept, in.on_normed.fetch()));  // as the norm by itself has written them
}

TEST_SUITE("cuda/project") {
  TEST_CASE("with codes too, and the normed rows are there afterwards where that is requested") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      std::size_t format = 0;
      for (const Case& c : cases) {
        if (c.norm == Norm::none || c.dtype != bf) continue;
        check_codes(c, all_formats[format++ % std::size(all_formats)]);
      }
    });
    for (const CodedFormat& format : all_formats) {
      check_codes({.tokens = 4, .outputs = 40, .inner = 520, .norm = Norm::rms, .add = true},
                  format);
      check_codes({.tokens = 1, .outputs = 300, .inner = 1024, .norm = Norm::gated, .groups = 8},
                  format);
    }
  }

  TEST_CASE("normed rows are kept beside plain weights, and never in the place of x") {
    for (const std::int64_t tokens : {1, 4, 6}) {
      const Case c = {.tokens = tokens, .outputs = 30, .inner = 264, .norm = Norm::one_plus};
      cuda::Stream stream;
      const Inputs in(c);
      Project op = on_device(c, in, in.weight.device);
      op.keep_normed = true;
      cuda::project(stream, op);
      stream.wait();
      const TestTensor kept = in.on_normed.fetch();
      one_by_one(stream, c, in, in.weight.device);
      CHECK(same_bytes(kept, in.on_normed.fetch()));
      Queue queue(Device::cuda, {.threads = 1, .isa = {}});
      op.normed = op.x;
      CHECK_THROWS_WITH_AS(project(queue, op), doctest::Contains("kept rows are not x"), Error);
    }
  }

  TEST_CASE("is norm, product and activation one after the other, bit for bit") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : cases) check_case(c, false);
    });
  }

  TEST_CASE("batch-invariant too") {
    for (const Case& c : cases) check_case(c, true);
  }

  TEST_CASE("a function that no kernel knows is refused for any row count, not run as another") {
    for (const bool batch_invariant : {false, true}) {
      for (const std::int64_t tokens : {1, 20, 100}) {
        const Inputs in(
            {.tokens = tokens, .outputs = 8, .inner = 64, .activation = unknown_activation});
        cuda::Stream stream;
        stream.set_batch_invariant(batch_invariant);
        CHECK_THROWS_WITH_AS(cuda::project(stream, {.x = in.on_x,
                                                    .weight = &in.weight.device,
                                                    .y = in.on_y,
                                                    .activation = unknown_activation,
                                                    .product = in.on_product}),
                             "project: the activation's function exists, got 99", Error);
      }
    }
  }
}

}  // namespace

}  // namespace cuda_project_test
