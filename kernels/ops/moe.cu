#include "kernels/linear/dense.h"
#include "kernels/ops/moe_device.h"

namespace hyb::kernels::cuda {
namespace {

/// Rows of bf16 that can be read in vectors; no weight has none that cannot.
bool takes_vectors(const Weight* weight) {
  return weight == nullptr ||
         (weight->dtype() == DType::bf16 &&
          is_vector_aligned(reinterpret_cast<const bf16*>(weight->expert(0)), weight->columns()));
}

bool takes_vectors(const Tensor& rows) {
  return rows.dtype == DType::bf16 && is_vector_aligned(rows.as<bf16>(), rows.row_stride);
}

bool takes_few(const Stream& stream, const Moe& op, const MoeShape& shape) {
  return !stream.batch_invariant() && takes_vectors(op.x) &&
         (op.norm.gate.empty() || takes_vectors(op.norm.gate)) && takes_vectors(op.router) &&
         takes_vectors(op.shared_gate_up) && takes_vectors(op.shared_down) &&
         takes_vectors(op.gate_up) && takes_vectors(op.down) && few_takes(op, shape);
}

void add_shared(Stream& stream, const Moe& op, const Tensor& x, const MoeRoom& room) {
  project(stream, {.x = x,
                   .weight = op.shared_gate_up,
                   .y = room.shared,
                   .activation = op.activation,
                   .product = room.shared_product});
  linear(stream,
         {.x = room.shared, .weight = op.shared_down, .y = op.y, .scale = op.scale, .add = true});
}

/// The parts one after the other, the experts' products grouped by expert. No sum depends on the
/// number of rows where linear's do not.
void many_moe(Stream& stream, const Moe& op, const MoeShape& shape, const MoeRoom& room) {
  Tensor x = op.x;
  if (!op.norm.empty()) {
    x = room.normed;
    apply(stream, op.norm, op.x, x);
  }
  linear(stream, {.x = x, .weight = op.router, .y = room.logits});
  moe_route(stream, {.logits = room.logits,
                     .bias = op.bias,
                     .chosen = room.chosen,
                     .weights = room.weights,
                     .routing = op.routing});
  if (op.shared_down != nullptr) add_shared(stream, op, x, room);
  sort_visits(stream, shape, room, tile_tokens(shape));
  const ExpertProducts products = {
      .x = x, .gate_up = op.gate_up, .down = op.down, .activation = op.activation, .shape = shape};
  if (takes_vectors(x) && takes_vectors(op.gate_up) && takes_vectors(op.down)) {
    tile_products(stream, products, room);
  } else {
    plain_products(stream, products, room);
  }
  sum_visits(stream, shape, room, op.y, op.scale);
}

}  // namespace

std::size_t moe_workspace_bytes(const MoeShape& shape) { return MoeRoom(shape, nullptr).bytes; }

void moe(Stream& stream, const Moe& op) {
  const MoeShape shape = shape_of(op);
  if (shape.tokens == 0) return;
  const MoeRoom room(shape, op.workspace.as<std::byte>());
  if (takes_few(stream, op, shape)) return few_moe(stream, op, room);
  many_moe(stream, op, shape, room);
}

}  // namespace hyb::kernels::cuda
