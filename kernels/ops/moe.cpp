#include "kernels/ops/moe.h"

#include "kernels/cuda/routes.h"
#include "kernels/linear/linear.h"
#include "kernels/ops/check.h"
#include "kernels/ops/moe_experts.h"
#include "kernels/ops/room.h"

namespace hyb::kernels {
namespace {

struct Workspace {
  Tensor normed, logits, chosen, weights, experts, shared_product, shared;
  std::size_t bytes;

  Workspace(const MoeShape& shape, std::byte* base) {
    Room room(base);
    const std::int64_t tokens = shape.tokens;
    const std::int64_t shared_rows =
        (shape.activation == Activation::silu_gated ? 2 : 1) * shape.shared_intermediate;
    normed = room.take(shape.dtype, tokens, shape.hidden);
    logits = room.take(DType::f32, tokens, shape.experts);
    chosen = room.take(DType::i32, tokens, shape.active);
    weights = room.take(DType::f32, tokens, shape.active);
    shared_product = room.take(shape.dtype, tokens, shared_rows);
    shared = room.take(shape.dtype, tokens, shape.shared_intermediate);
    const auto experts_bytes =
        static_cast<std::int64_t>(moe_experts_workspace_bytes({.tokens = tokens,
                                                               .chosen = shape.active,
                                                               .experts = shape.experts,
                                                               .hidden = shape.hidden,
                                                               .intermediate = shape.intermediate,
                                                               .dtype = shape.dtype,
                                                               .activation = shape.activation}));
    experts = Tensor(room.take(DType::u8, 1, experts_bytes).data, DType::u8, {experts_bytes});
    bytes = room.bytes();
  }
};

/// What the ops that it calls do not check of their own arguments.
void check(const Moe& op, Device device) {
  const Check check("moe");
  check.that(op.router != nullptr && op.gate_up != nullptr && op.down != nullptr,
             "weights are there", 0);
  check.that((op.shared_gate_up == nullptr) == (op.shared_down == nullptr),
             "a shared expert has both weights", 0);
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.x.data != op.y.data || !op.norm.empty(), "y is x only where there is a norm", 0);
  check.that(op.active >= 1 && op.active <= op.router->rows(), "active is 1 to E", op.active);
  const auto wanted = static_cast<std::int64_t>(moe_workspace_bytes(device, shape_of(op)));
  check.that(op.workspace.dtype == DType::u8 && op.workspace.size() >= wanted,
             "workspace has moe_workspace_bytes", op.workspace.size());
}

void add_shared(Queue& queue, const Moe& op, const Tensor& normed, const Workspace& room) {
  project(queue, {.x = normed,
                  .weight = op.shared_gate_up,
                  .y = room.shared,
                  .activation = op.activation,
                  .product = room.shared_product});
  linear(queue,
         {.x = room.shared, .weight = op.shared_down, .y = op.y, .scale = op.scale, .add = true});
}

}  // namespace

MoeShape shape_of(const Moe& op) {
  return {.tokens = op.x.dim(0),
          .active = op.active,
          .experts = op.router->rows(),
          .hidden = op.x.dim(1),
          .intermediate = op.down->columns(),
          .shared_intermediate = op.shared_down == nullptr ? 0 : op.shared_down->columns(),
          .dtype = op.x.dtype,
          .activation = op.activation};
}

std::size_t moe_workspace_bytes(Device device, const MoeShape& shape) {
  if constexpr (has_cuda) {
    if (device == Device::cuda) return cuda::moe_workspace_bytes(shape);
  }
  return Workspace(shape, nullptr).bytes;
}

void moe(Queue& queue, const Moe& op) {
  check(op, queue.device());
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::moe(queue.stream(), op);
  }
  const Workspace room(shape_of(op), op.workspace.as<std::byte>());
  Tensor x = op.x;
  if (!op.norm.empty()) {
    apply(queue, op.norm, op.x, room.normed);
    x = room.normed;
  }
  linear(queue, {.x = x, .weight = op.router, .y = room.logits});
  moe_route(queue, {.logits = room.logits,
                    .bias = op.bias,
                    .chosen = room.chosen,
                    .weights = room.weights,
                    .routing = op.routing});
  if (op.shared_down != nullptr) add_shared(queue, op, x, room);
  moe_experts(queue, {.x = x,
                      .chosen = room.chosen,
                      .weights = room.weights,
                      .gate_up = op.gate_up,
                      .down = op.down,
                      .y = op.y,
                      .workspace = room.experts,
                      .activation = op.activation,
                      .scale = op.scale,
                      .add = true});
}

}  // namespace hyb::kernels
