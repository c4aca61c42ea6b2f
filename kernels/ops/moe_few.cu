#include "kernels/linear/input_rows.h"
#include "kernels/ops/moe_few.h"

namespace hyb::kernels::cuda {
namespace {

constexpr std::size_t front_bytes_max = 96 << 10;  ///< sm_86 and sm_89 have 99 KB

FewMoe few_of(const Moe& op, const MoeRoom& room) {
  const bool has_shared = op.shared_down != nullptr;
  const auto weight = [](const Weight* from) {
    return from == nullptr ? nullptr : reinterpret_cast<const bf16*>(from->expert(0));
  };
  return {.x = op.x.as<bf16>(),
          .y = op.y.as<bf16>(),
          .x_stride = op.x.row_stride,
          .y_stride = op.y.row_stride,
          .norm = {.weight = op.norm.weight.as<float>(),
                   .gate = op.norm.gate.as<bf16>(),
                   .gate_stride = op.norm.gate.row_stride,
                   .eps = op.norm.eps,
                   .weight_offset = op.norm.one_plus ? 1.0F : 0.0F,
                   .groups = static_cast<int>(op.norm.groups),
                   .norm_first = op.norm.norm_first},
          .router = weight(op.router),
          .gate_up = weight(op.gate_up),
          .down = weight(op.down),
          .shared_gate_up = weight(op.shared_gate_up),
          .shared_down = weight(op.shared_down),
          .route = {.bias = op.bias.as<float>(),
                    .experts = static_cast<int>(op.router->rows()),
                    .active = static_cast<int>(op.active),
                    .routing = op.routing},
          .ticket = room.tickets.as<unsigned>(),
          .normed = room.normed.as<bf16>(),
          .logits = room.logits.as<float>(),
          .chosen = room.chosen.as<std::int32_t>(),
          .weights = room.weights.as<float>(),
          .shared = has_shared ? room.shared.as<bf16>() : nullptr,
          .visited = room.visited.as<std::int32_t>(),
          .visitors = room.visitors.as<std::int32_t>(),
          .inner = room.inner.as<bf16>(),
          .tokens = static_cast<int>(op.x.dim(0)),
          .hidden = static_cast<int>(op.x.dim(1)),
          .intermediate = static_cast<int>(op.down->columns()),
          .shared_intermediate = has_shared ? static_cast<int>(op.shared_down->columns()) : 0,
          .is_gated = op.activation == Activation::silu_gated,
          .scale = op.scale};
}

}  // namespace

bool few_takes(const Moe& op, const MoeShape& shape) {
  return shape.tokens <= few_tokens_max && shape.tokens * shape.active <= few_visits_max &&
         shape.tokens * op.norm.groups <= norm_slices_max && shape.experts <= few_experts_max &&
         few_front_bytes(shape) <= front_bytes_max;
}

void few_moe(Stream& stream, const Moe& op, const MoeRoom& room) {
  const FewMoe few = few_of(op, room);
  run_few_front(stream, few);
  run_few_experts(stream, few);
}

}  // namespace hyb::kernels::cuda
