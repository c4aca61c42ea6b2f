#include "kernels/linear/input_rows.h"
#include "kernels/ops/moe_few.h"

namespace hyb::kernels::cuda {
namespace {

bool takes_if_there(const Weight* weight) { return weight == nullptr || takes_vectors(*weight); }

/// Of one type: the gate is the router's last row.
bool takes_router(const Moe& op) {
  return takes_pieces(*op.router) &&
         (op.shared_gate == nullptr ||
          (op.shared_gate->dtype() == op.router->dtype() && takes_pieces(*op.shared_gate)));
}

bool takes_weights(const Moe& op) {
  return takes_router(op) && takes_vectors(*op.gate_up) && takes_vectors(*op.down) &&
         takes_if_there(op.shared_gate_up) && takes_if_there(op.shared_down) &&
         takes_if_there(op.latent_in) && takes_if_there(op.latent_out);
}

FrontTiles front_tiles(const Moe& op) {
  const bool is_gated = op.activation == Activation::silu_gated;
  const auto rows = [](const Weight* weight) {
    return weight == nullptr ? 0 : static_cast<int>(weight->rows());
  };
  const int shared = op.shared_down == nullptr ? 0 : static_cast<int>(op.shared_down->columns());
  return {.router = tiles_of(rows(op.router) + rows(op.shared_gate), false),
          .shared = tiles_of(shared, is_gated),
          .latent = tiles_of(rows(op.latent_in), false)};
}

FewMoe few_of(const Moe& op, const MoeRoom& room) {
  const bool has_shared = op.shared_down != nullptr, is_latent = op.latent_in != nullptr;
  const auto weight = [](const Weight* from) {
    return from == nullptr ? nullptr : reinterpret_cast<const bf16*>(from->expert(0));
  };
  return {.x = op.x.as<bf16>(),
          .y = op.y.as<bf16>(),
          .x_stride = op.x.row_stride,
          .y_stride = op.y.row_stride,
          .norm = norm_of(op.norm),
          .router = op.router->expert(0),
          .shared_gate = weight(op.shared_gate),
          .gate_up = weight(op.gate_up),
          .down = weight(op.down),
          .shared_gate_up = weight(op.shared_gate_up),
          .shared_down = weight(op.shared_down),
          .latent_in = weight(op.latent_in),
          .latent_out = weight(op.latent_out),
          .route = {.bias = op.bias.as<float>(),
                    .experts = static_cast<int>(op.router->rows()),
                    .active = static_cast<int>(op.active),
                    .routing = op.routing},
          .ticket = room.tickets.as<unsigned>(),
          .normed = is_latent ? nullptr : room.normed.as<bf16>(),
          .logits = room.logits.as<float>(),
          .shared_logit = room.shared_logit.as<float>(),
          .chosen = room.chosen.as<std::int32_t>(),
          .weights = room.weights.as<float>(),
          .latent = room.latent.as<bf16>(),
          .latent_sum = room.latent_sum.as<bf16>(),
          .shared = has_shared ? room.shared.as<bf16>() : nullptr,
          .visited = room.visited.as<std::int32_t>(),
          .visitors = room.visitors.as<std::int32_t>(),
          .inner = room.inner.as<bf16>(),
          .tokens = static_cast<int>(op.x.dim(0)),
          .hidden = static_cast<int>(op.x.dim(1)),
          .intermediate = static_cast<int>(op.down->columns()),
          .shared_intermediate = has_shared ? static_cast<int>(op.shared_down->columns()) : 0,
          .expert_width = static_cast<int>(op.down->rows()),
          .router_is_f32 = op.router->dtype() == DType::f32,
          .is_gated = op.activation == Activation::silu_gated,
          .scale = op.scale,
          .tiles = front_tiles(op)};
}

}  // namespace

bool few_takes(const Stream& stream, const Moe& op, const MoeShape& shape) {
  return !stream.batch_invariant() && shape.tokens <= few_tokens_max &&
         shape.tokens * shape.active <= few_visits_max &&
         shape.tokens * op.norm.groups <= norm_slices_max && shape.experts <= few_experts_max &&
         takes_vectors(op.x) && (op.norm.gate.empty() || takes_vectors(op.norm.gate)) &&
         takes_weights(op) &&
         few_front_bytes(static_cast<int>(shape.tokens), static_cast<int>(shape.hidden),
                         static_cast<int>(shape.experts)) <= stream.shared_bytes_max();
}

void few_moe(Stream& stream, const Moe& op, const MoeRoom& room) {
  const FewMoe few = few_of(op, room);
  run_few_front(stream, few);
  run_few_experts(stream, few);
}

}  // namespace hyb::kernels::cuda
