#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/layer_norm.h"
#include "tests/cuda/support.h"

namespace norms_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Case {
  std::int64_t tokens, width, heads;
  bool one_plus;
  Strides strides;
};
const Case cases[] = {
    {5, 768, 1, false, {}},     {3, 256, 4, true, {8, 0}}, {3, 17, 1, false, {}},
    {4, 130, 2, true, {3, 1}},  {2, 1, 1, false, {}},      {2, 2048, 1, false, {16, 8}},
    {3, 1500, 1, true, {5, 0}}, {2, 1024, 1, false, {}},   {9, 96, 3, false, {8, 8}}};

/// Relative and absolute: the plain loop sums in another order, which bf16 mostly rounds away.
double bound_of(DType dtype) { return dtype == DType::bf16 ? 0.0079 : 3e-6; }

void check_norm(const Case& c, DType dtype) {
  CAPTURE(c.width);
  const auto x = random_tensor(dtype, {c.tokens, c.width}, 1, 3.0F, c.strides);
  const auto weight = random_tensor(DType::f32, {c.width / c.heads}, 2);
  const TestTensor y(dtype, {c.tokens, c.width}, c.strides);
  TestTensor expected = y;
  Queue plain = test_queue(Isa::plain);
  rms_norm(plain,
           {.x = x, .weight = weight, .y = expected, .one_plus = c.one_plus, .heads = c.heads});

  cuda::Stream stream;
  const DeviceTensor on_x(x), on_weight(weight), on_y(y);
  const RmsNorm op = {
      .x = on_x, .weight = on_weight, .y = on_y, .one_plus = c.one_plus, .heads = c.heads};
  cuda::rms_norm(stream, op);
  stream.wait();
  const TestTensor answer = on_y.fetch();
  CHECK(largest_error(answer, expected, 1e-3) <= bound_of(dtype));
  CHECK(answer.guards_intact());
  CHECK(on_x.fetch().everything() == x.everything());

  // One row alone, then all again from a graph and in place: the same bits.
  TestTensor last(dtype, {1, c.width}, c.strides);
  const DeviceTensor on_last(last);
  const Tensor row = Tensor(on_x).rows(c.tokens - 1, 1);
  cuda::rms_norm(
      stream,
      {.x = row, .weight = on_weight, .y = on_last, .one_plus = c.one_plus, .heads = c.heads});
  const cuda::Graph graph(stream, [&] {
    cuda::rms_norm(
        stream,
        {.x = on_x, .weight = on_weight, .y = on_x, .one_plus = c.one_plus, .heads = c.heads});
  });
  graph.replay(stream);
  stream.wait();
  last = on_last.fetch();
  for (std::int64_t i = 0; i < c.width; ++i) {
    REQUIRE(last.get(i) == answer.get((c.tokens - 1) * c.width + i));
  }
  CHECK(same_bytes(on_x.fetch(), answer));
}

void check_added_norm(const Case& c, DType dtype, bool has_factor) {
  CAPTURE(c.width);
  const auto x = random_tensor(dtype, {c.tokens, c.width}, 1, 3.0F, c.strides);
  const auto weight = random_tensor(DType::f32, {c.width / c.heads}, 2);
  const auto factor = random_tensor(DType::f32, {1}, 3);
  TestTensor expected = random_tensor(dtype, {c.tokens, c.width}, 4, 3.0F, c.strides);
  const DeviceTensor on_x(x), on_weight(weight), on_factor(factor), on_y(expected);
  RmsNorm op = {.x = x,
                .weight = weight,
                .y = expected,
                .one_plus = c.one_plus,
                .heads = c.heads,
                .add = true};
  if (has_factor) op.factor = factor;
  Queue plain = test_queue(Isa::plain);
  rms_norm(plain, op);
  cuda::Stream stream;
  op.x = on_x;
  op.weight = on_weight;
  op.y = on_y;
  if (has_factor) op.factor = on_factor;
  cuda::rms_norm(stream, op);
  stream.wait();
  const TestTensor answer = on_y.fetch();
  CHECK(answer.guards_intact());
  CHECK(largest_error(answer, expected, 1.0) <= bound_of(dtype));
}

TEST_SUITE("cuda/layer_norm") {
  TEST_CASE("is the plain loop's answer, in place and from a graph, and a row's alone") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t width : {1, 17, 256, 1500}) {
          CAPTURE(width);
          TestTensor x = random_tensor(dtype, {3, width}, 1, 3.0F, {8, 3});
          for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, x.get(i) + 5.0F);
          const auto weight = random_tensor(DType::f32, {width}, 2);
          TestTensor expected(dtype, {3, width}, {8, 3}), last(dtype, {1, width});
          Queue plain = test_queue(Isa::plain);
          layer_norm(plain, {.x = x, .weight = weight, .y = expected});
          cuda::Stream stream;
          const DeviceTensor on_x(x), on_weight(weight), on_last(last);
          cuda::layer_norm(stream,
                           {.x = Tensor(on_x).rows(2, 1), .weight = on_weight, .y = on_last});
          const cuda::Graph graph(stream, [&] {
            cuda::layer_norm(stream, {.x = on_x, .weight = on_weight, .y = on_x});
          });
          graph.replay(stream);
          stream.wait();
          const TestTensor answer = on_x.fetch();
          CHECK(answer.guards_intact());
          CHECK(largest_error(answer, expected, 1.0) <= bound_of(dtype));
          last = on_last.fetch();
          for (std::int64_t i = 0; i < width; ++i) {
            REQUIRE(last.get(i) == answer.get(2 * width + i));
          }
        }
      }
    });
  }
}

TEST_SUITE("cuda/rms_norm") {
  TEST_CASE("no weight is a weight of ones") {
    const auto x = random_tensor(DType::bf16, {3, 96}, 1, 3.0F);
    TestTensor ones(DType::f32, {32}), with(DType::bf16, {3, 96}), without(DType::bf16, {3, 96});
    for (std::int64_t i = 0; i < 32; ++i) ones.set(i, 1.0F);
    cuda::Stream stream;
    const DeviceTensor on_x(x), on_ones(ones), on_with(with), on_without(without);
    cuda::rms_norm(stream, {.x = on_x, .weight = on_ones, .y = on_with, .heads = 3});
    cuda::rms_norm(stream, {.x = on_x, .weight = {}, .y = on_without, .heads = 3});
    stream.wait();
    CHECK(same_bytes(on_with.fetch(), on_without.fetch()));
  }

  TEST_CASE("adds to what is there, with a factor or without") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Case& c : cases) {
        check_added_norm(c, dtype, false);
        check_added_norm(c, dtype, true);
      }
    }
  }

  TEST_CASE("is the plain loop's answer, alone, among others, in place and from a graph") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Case& c : cases) check_norm(c, dtype);
      }
    });
  }
}

struct GatedCase {
  std::int64_t tokens, width, groups;
  Strides strides;
};
const GatedCase gated_cases[] = {{5, 768, 1, {}},     {3, 256, 4, {8, 0}},   {3, 17, 1, {}},
                                 {4, 130, 2, {3, 1}}, {2, 2048, 1, {16, 8}}, {3, 3000, 2, {5, 0}},
                                 {9, 96, 3, {8, 8}},  {2, 512, 4, {8, 0}}};

void check_norm(const GatedCase& c, DType dtype, bool norm_first, bool sigmoid_gate = false) {
  CAPTURE(c.width);
  CAPTURE(norm_first);
  CAPTURE(sigmoid_gate);
  const auto x = random_tensor(dtype, {c.tokens, c.width}, 1, 3.0F, c.strides);
  const auto gate = random_tensor(dtype, {c.tokens, c.width}, 2, 3.0F, c.strides);
  const auto weight = random_tensor(DType::f32, {c.width}, 3);
  const TestTensor y(dtype, {c.tokens, c.width}, c.strides);
  TestTensor expected = y;
  Queue plain = test_queue(Isa::plain);
  gated_norm(plain, {.x = x,
                     .gate = gate,
                     .weight = weight,
                     .y = expected,
                     .groups = c.groups,
                     .norm_first = norm_first,
                     .sigmoid_gate = sigmoid_gate});

  cuda::Stream stream;
  const DeviceTensor on_x(x), on_gate(gate), on_weight(weight), on_y(y);
  const auto norm = [&](const Tensor& to) {
    cuda::gated_norm(stream, {.x = on_x,
                              .gate = on_gate,
                              .weight = on_weight,
                              .y = to,
                              .groups = c.groups,
                              .norm_first = norm_first,
                              .sigmoid_gate = sigmoid_gate});
  };
  norm(on_y);
  stream.wait();
  const TestTensor answer = on_y.fetch();
  CHECK(largest_error(answer, expected, 1e-3) <= (dtype == DType::bf16 ? 0.0079 : 4e-6));
  CHECK(answer.guards_intact());
  CHECK(on_x.fetch().everything() == x.everything());

  const cuda::Graph in_place(stream, [&] { norm(on_x); });
  in_place.replay(stream);
  stream.wait();
  CHECK(same_bytes(on_x.fetch(), answer));
}

TEST_SUITE("cuda/gated_norm") {
  TEST_CASE("is the plain loop's answer, also in place and from a graph") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const GatedCase& c : gated_cases) {
          check_norm(c, dtype, false);
          check_norm(c, dtype, true);
          check_norm(c, dtype, true, true);
        }
      }
    });
  }
}

struct ActivationCase {
  std::int64_t tokens, width;
  DType dtype;
  Activation activation;
  Strides strides;
};
const ActivationCase activation_cases[] = {
    {3, 40, DType::bf16, gated_silu, {8, 0}}, {5, 17, DType::bf16, gated_silu, {3, 1}},
    {2, 24, DType::f32, gated_silu, {}},      {300, 8, DType::bf16, plain_relu2, {}},
    {3, 9, DType::f32, plain_relu2, {1, 0}},  {4, 24, DType::bf16, gated_relu2, {}},
    {4, 25, DType::bf16, plain_silu, {3, 1}}, {2, 7, DType::f32, gated_relu2, {1, 0}},
    {2, 24, DType::f32, plain_silu, {}},      {4, 24, DType::bf16, gated_gelu, {}},
    {3, 7, DType::f32, plain_gelu, {1, 0}},   {5, 24, DType::bf16, clamped_swiglu, {}},
    {3, 9, DType::f32, clamped_swiglu, {}},   {5, 24, DType::bf16, gated_exact_gelu, {3, 1}},
    {3, 9, DType::f32, plain_exact_gelu, {}},
};

void check_case(const ActivationCase& c) {
  CAPTURE(c.width);
  const std::int64_t inputs = c.activation.inputs();
  auto x = random_tensor(c.dtype, {c.tokens, inputs * c.width}, 1, 3.0F, c.strides);
  x.set(1, NAN);
  x.set(2, -90.0F);
  TestTensor y(c.dtype, {c.tokens, c.width}, c.strides);
  const DeviceTensor on_x(x), on_y(y);
  Queue plain = test_queue(Isa::plain);
  gated_activation(plain, {.x = x, .y = y, .activation = c.activation});

  cuda::Stream stream;
  cuda::gated_activation(stream, {.x = on_x, .y = on_y, .activation = c.activation});
  const cuda::Graph in_place(stream, [&] {
    const Tensor first = Tensor(on_x).columns(0, c.width);
    cuda::gated_activation(stream, {.x = on_x, .y = first, .activation = c.activation});
  });
  in_place.replay(stream);
  stream.wait();
  const TestTensor answer = on_y.fetch(), both = on_x.fetch();
  CHECK(answer.guards_intact());
  CHECK(both.guards_intact());
  // Of an exponent up to 20 four more ulp each in gelu_tanh and clamped_swiglu.
  const bool is_exact = c.activation.function == ActivationFunction::silu ||
                        c.activation.function == ActivationFunction::relu2;
  const double rounding = c.dtype == DType::bf16 ? 0x1p-8 : (is_exact ? 8 : 88) * 0x1p-24;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const double is = answer.get(i), expected = y.get(i);
    REQUIRE(std::isnan(is) == std::isnan(expected));
    if (std::isnan(is)) continue;
    const std::int64_t from = i / c.width * inputs * c.width + i % c.width;
    const double up = c.activation.gated ? x.get(from + c.width) : 1.0;
    REQUIRE(std::fabs(is - expected) <=
            rounding * std::fabs(expected) + activation_slack(c.activation, x.get(from), up));
    REQUIRE(both.get(from) == answer.get(i));
  }
}

/// Factors that are not beside x, in their place: the same bits.
void check_factors_elsewhere(const ActivationCase& c) {
  const auto x = random_tensor(c.dtype, {c.tokens, 2 * c.width}, 1, 3.0F);
  TestTensor up(c.dtype, {c.tokens, c.width}, c.strides);
  for (std::int64_t i = 0; i < up.size(); ++i) {
    up.set(i, x.get(i / c.width * 2 * c.width + c.width + i % c.width));
  }
  const DeviceTensor on_x(x), on_up(up), on_y(TestTensor(c.dtype, {c.tokens, c.width}));
  cuda::Stream stream;
  cuda::gated_activation(stream, {.x = on_x, .y = on_y, .activation = c.activation});
  cuda::gated_activation(
      stream,
      {.x = Tensor(on_x).columns(0, c.width), .y = on_up, .activation = c.activation, .up = on_up});
  stream.wait();
  const TestTensor answer = on_up.fetch();
  CHECK(answer.guards_intact());
  CHECK(answer.values() == on_y.fetch().values());
}

TEST_SUITE("cuda/gated_activation") {
  TEST_CASE("factors may be elsewhere, and y may be them") {
    for (const ActivationCase& c : activation_cases) {
      if (c.activation.gated) check_factors_elsewhere(c);
    }
  }

  TEST_CASE("is the plain loop's within one rounding, out of place and in place") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const ActivationCase& c : activation_cases) check_case(c);
    });
  }

  TEST_CASE("a function that the kernel does not know is refused, not run as another") {
    const DeviceTensor x(TestTensor(DType::f32, {2, 6})), y(TestTensor(DType::f32, {2, 6}));
    cuda::Stream stream;
    CHECK_THROWS_WITH_AS(
        cuda::gated_activation(stream, {.x = x, .y = y, .activation = unknown_activation}),
        "gated_activation: the activation's function exists, got 99", Error);
  }
}

void check_scaled(const Case& c, DType dtype) {
  CAPTURE(c.width);
  std::vector<ColumnSegment> segments = {{(c.width + 1) / 2, -1.7F}};
  if (c.width > 1) segments.push_back({c.width / 2, 3.1F});
  TestTensor expected = random_tensor(dtype, {c.tokens, c.width}, 1, 3.0F, c.strides);
  const DeviceTensor on_x(expected);
  Queue plain = test_queue(Isa::plain);
  scale_columns(plain, {.x = expected, .segments = segments});
  cuda::Stream stream;
  cuda::scale_columns(stream, {.x = on_x, .segments = segments});
  stream.wait();
  CHECK(same_bytes(on_x.fetch(), expected));
}

TEST_SUITE("cuda/cap") {
  TEST_CASE("the answer of the plain loop, row by row") {
    for (const std::int64_t width : {std::int64_t{1}, std::int64_t{300}, std::int64_t{5003}}) {
      TestTensor expected = random_tensor(DType::f32, {3, width}, 1, 80.0F, {5, 2});
      const DeviceTensor on_x(expected);
      Queue plain = test_queue(Isa::plain);
      cap(plain, {.x = expected, .cap = 30.0F});
      cuda::Stream stream;
      cuda::cap(stream, {.x = on_x, .cap = 30.0F});
      stream.wait();
      const TestTensor answer = on_x.fetch();
      CHECK(answer.guards_intact());
      CHECK(largest_error(answer, expected, 1e-3) <= 1e-6);
    }
  }
}

TEST_SUITE("cuda/scale_columns") {
  TEST_CASE("the bits of the plain loop") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Case& c : cases) check_scaled(c, dtype);
      }
    });
  }
}

}  // namespace

}  // namespace norms_test
