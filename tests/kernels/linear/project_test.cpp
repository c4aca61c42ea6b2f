#include "kernels/linear/project.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/linear/linear.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/rms_norm.h"
#include "tests/kernels/support.h"

namespace linear_project_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr std::int64_t rows = 5, inner = 36, outputs = 70;

struct Inputs {
  explicit Inputs(DType dtype)
      : x(random_tensor(dtype, {rows, inner}, 1, 1.0F, {3, 1})),
        gate(random_tensor(dtype, {rows, inner}, 2)),
        norm(random_tensor(DType::f32, {inner}, 3)),
        values(random_tensor(dtype, {outputs, inner}, 4).packed()),
        source{dtype, 1, outputs, inner, values} {}

  TestTensor x, gate, norm;
  std::vector<std::byte> values;
  WeightSource source;
};

template <typename Body>
void for_every_route(Body&& body) {
  for (const Isa isa : available_isas()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Queue queue = test_queue(isa, 2);
      body(queue, dtype);
    }
  }
}

TEST_SUITE("kernels/linear/project") {
  TEST_CASE("is norm, product and addition one after the other") {
    for_every_route([](Queue& queue, DType dtype) {
      const Inputs in(dtype);
      const Weight weight = Weight::pack(queue, in.source, dtype);
      const auto before = random_tensor(dtype, {rows, outputs}, 5, 1.0F, {7, 0});
      TestTensor normed(dtype, {rows, inner}), y = before, n(dtype, {rows, inner}), z = before;
      project(queue, {.x = in.x,
                      .norm = {.weight = in.norm, .eps = 1e-3F, .one_plus = true},
                      .weight = &weight,
                      .y = y,
                      .normed = normed,
                      .scale = 0.5F,
                      .add = true});
      rms_norm(queue, {.x = in.x, .weight = in.norm, .y = n, .eps = 1e-3F, .one_plus = true});
      linear(queue, {.x = n, .weight = &weight, .y = z, .scale = 0.5F, .add = true});
      CHECK(y.everything() == z.everything());
    });
  }

  TEST_CASE("gates and norms in groups, and activates what it projects") {
    for_every_route([](Queue& queue, DType dtype) {
      for (const Activation activation : all_activations) {
        const bool norm_first = activation.function == ActivationFunction::relu2;
        const Inputs in(dtype);
        const Weight weight = Weight::pack(queue, in.source, dtype);
        const std::int64_t columns = activation.gated ? outputs / 2 : outputs;
        TestTensor normed(dtype, {rows, inner}), product(dtype, {rows, outputs}),
            n = normed, p = product, y(dtype, {rows, columns}, {1, 0}), z = y;
        project(
            queue,
            {.x = in.x,
             .norm = {.weight = in.norm, .gate = in.gate, .groups = 4, .norm_first = norm_first},
             .weight = &weight,
             .y = y,
             .activation = activation,
             .normed = normed,
             .product = product});
        gated_norm(queue, {.x = in.x,
                           .gate = in.gate,
                           .weight = in.norm,
                           .y = n,
                           .groups = 4,
                           .norm_first = norm_first});
        linear(queue, {.x = n, .weight = &weight, .y = p});
        gated_activation(queue, {.x = p, .y = z, .activation = activation});
        CHECK(y.everything() == z.everything());
      }
    });
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const Inputs in(DType::f32);
    const Weight weight = Weight::view(in.source);
    const TestTensor y(DType::f32, {rows, outputs / 2}), product(DType::f32, {rows, outputs});
    CHECK_THROWS_WITH_AS(project(queue, {.x = in.x,
                                         .weight = &weight,
                                         .y = y,
                                         .activation = gated_silu,
                                         .product = product,
                                         .add = true}),
                         "project: an activation is neither scaled nor added, got 1", Error);
    CHECK_THROWS_WITH_AS(project(queue, {.x = in.x,
                                         .weight = &weight,
                                         .y = product,
                                         .activation = unknown_activation,
                                         .product = product}),
                         "project: the activation's function exists, got 99", Error);
    CHECK_THROWS_WITH_AS(project(queue, {.x = in.x,
                                         .norm = {.weight = in.norm, .norm_first = true},
                                         .weight = &weight,
                                         .y = product,
                                         .normed = in.x}),
                         "project: norm_first is a gated norm's, got 1", Error);
    CHECK_THROWS_AS(
        project(queue, {.x = in.x, .norm = {.weight = in.norm}, .weight = &weight, .y = product}),
        Error);
  }
}

}  // namespace

}  // namespace linear_project_test
