#include "kernels/linear/dense.h"
#include "kernels/ops/moe_device.h"

namespace hyb::kernels::cuda {
namespace {

/// down_s * activation(gate_up_s * x), added to y, or with a gate as it is to shared_output.
void multiply_shared(Stream& stream, const Moe& op, const Tensor& x, const MoeRoom& room) {
  project(stream, {.x = x,
                   .weight = op.shared_gate_up,
                   .y = room.shared,
                   .activation = op.activation,
                   .product = room.shared_product});
  if (op.shared_gate == nullptr) {
    linear(stream,
           {.x = room.shared, .weight = op.shared_down, .y = op.y, .scale = op.scale, .add = true});
  } else {
    linear(stream, {.x = room.shared, .weight = op.shared_down, .y = room.shared_output});
  }
}

void multiply_experts(Stream& stream, const Moe& op, const MoeShape& shape, const Tensor& x,
                      const MoeRoom& room) {
  sort_visits(stream, shape, room, tile_tokens(shape));
  const ExpertProducts products = {
      .x = x, .gate_up = op.gate_up, .down = op.down, .activation = op.activation, .shape = shape};
  if (takes_vectors(x) && takes_vectors(*op.gate_up) && takes_vectors(*op.down)) {
    tile_products(stream, products, room);
  } else {
    plain_products(stream, products, room);
  }
}

/// The parts one after the other, the experts' products grouped by expert. No sum depends on the
/// number of rows where linear's do not.
void many_moe(Stream& stream, const Moe& op, const MoeShape& shape, const MoeRoom& room) {
  Tensor x = op.x;
  if (!op.norm.empty()) {
    x = room.normed;
    apply(stream, op.norm, op.x, x);
  }
  router_logits(stream, x, *op.router, room.logits);
  moe_route(stream, {.logits = room.logits,
                     .bias = op.bias,
                     .chosen = room.chosen,
                     .weights = room.weights,
                     .routing = op.routing});
  if (op.shared_down != nullptr) multiply_shared(stream, op, x, room);
  const VisitSum sum = {.y = op.y,
                        .active = op.active,
                        .scale = op.scale,
                        .add = true,
                        .gate_x = x,
                        .gate = op.shared_gate};
  if (op.latent_in == nullptr) {
    multiply_experts(stream, op, shape, x, room);
    return sum_visits(stream, sum, room);
  }
  linear(stream, {.x = x, .weight = op.latent_in, .y = room.latent});
  multiply_experts(stream, op, shape, room.latent, room);
  sum_visits(stream, {.y = room.latent_sum, .active = op.active, .scale = 1.0F, .add = false},
             room);
  if (op.shared_gate != nullptr) {
    VisitSum shared = sum;
    shared.active = 0;
    sum_visits(stream, shared, room);
  }
  linear(
      stream,
      {.x = room.latent_sum, .weight = op.latent_out, .y = op.y, .scale = op.scale, .add = true});
}

}  // namespace

std::size_t moe_workspace_bytes(const MoeShape& shape) { return MoeRoom(shape, nullptr).bytes; }

void moe(Stream& stream, const Moe& op) {
  const MoeShape shape = shape_of(op);
  if (shape.tokens == 0) return;
  const MoeRoom room(shape, op.workspace.as<std::byte>());
  if (few_takes(stream, op, shape)) return few_moe(stream, op, room);
  many_moe(stream, op, shape, room);
}

}  // namespace hyb::kernels::cuda
