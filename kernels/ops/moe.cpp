#include "kernels/ops/moe.h"

#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/linear/linear.h"
#include "kernels/ops/check.h"
#include "kernels/ops/moe_experts.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

bool widens(const MoeShape& shape) {
  return shape.router_dtype == DType::f32 && shape.dtype == DType::bf16;
}

MoeExpertsShape experts_of(const MoeShape& shape) {
  return {.tokens = shape.tokens,
          .chosen = shape.active,
          .experts = shape.experts,
          .hidden = shape.expert_width(),
          .intermediate = shape.intermediate,
          .dtype = shape.dtype,
          .activation = shape.activation};
}

struct Workspace {
  Tensor normed, wide, logits, chosen, weights, experts;
  Tensor latent, latent_sum;                                   ///< [T,L]
  Tensor shared_product, shared, shared_logit, shared_output;  ///< the last two with a gate: f32
  std::size_t bytes;

  Workspace(const MoeShape& shape, std::byte* base) {
    Room room(base);
    const std::int64_t tokens = shape.tokens;
    const std::int64_t shared_rows = shape.activation.inputs() * shape.shared_intermediate;
    const std::int64_t gated_tokens = shape.has_shared_gate ? tokens : 0;
    normed = room.take(shape.dtype, tokens, shape.hidden);
    wide = room.take(DType::f32, widens(shape) ? tokens : 0, shape.hidden);
    logits = room.take(DType::f32, tokens, shape.experts);
    chosen = room.take(DType::i32, tokens, shape.active);
    weights = room.take(DType::f32, tokens, shape.active);
    latent = room.take(shape.dtype, tokens, shape.own_width());
    latent_sum = room.take(shape.dtype, tokens, shape.latent);
    shared_product = room.take(shape.dtype, tokens, shared_rows);
    shared = room.take(shape.dtype, tokens, shape.shared_intermediate);
    shared_logit = room.take(DType::f32, gated_tokens, 1);
    shared_output = room.take(DType::f32, gated_tokens, shape.hidden);
    const auto experts_bytes =
        static_cast<std::int64_t>(moe_experts_workspace_bytes(experts_of(shape)));
    experts = Tensor(room.take(DType::u8, 1, experts_bytes).data, DType::u8, {experts_bytes});
    bytes = room.bytes();
  }
};

/// Checks what the ops that moe calls do not check themselves.
void check(const FusedMoe& op, Device device) {
  const Check check("fused_moe");
  check.that(op.router != nullptr && op.gate_up != nullptr && op.down != nullptr,
             "weights are there", 0);
  check.that((op.shared_gate_up == nullptr) == (op.shared_down == nullptr),
             "a shared expert has both weights", 0);
  check.that(op.shared_gate == nullptr || op.shared_down != nullptr,
             "a shared expert's gate has a shared expert", 0);
  check.that((op.latent_in == nullptr) == (op.latent_out == nullptr),
             "latent experts have both projections", 0);
  check.that(!op.weighs_input || (op.active == 1 && op.latent_in == nullptr),
             "one expert that is not latent sees a weighed input", op.active);
  check.that(op.add || (op.shared_down == nullptr && op.latent_in == nullptr),
             "what replaces y is of experts alone, neither shared nor latent", 0);
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  if (!op.router_x.empty()) {
    check.tensor(op.router_x, "router_x", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
    check.that(op.shared_gate == nullptr, "a gate reads what the router reads", 0);
  }
  check.that(op.x.data != op.y.data || !op.norm.empty(), "y is x only where there is a norm", 0);
  check.function(op.activation);
  if (!op.router_bias.empty()) {
    check.tensor(op.router_bias, "router_bias", DType::f32, {op.router->rows()});
  }
  check_expert_biases("fused_moe", op.gate_up_bias, op.down_bias, *op.gate_up, *op.down);
  check_routing("fused_moe", op.routing, op.router->rows(), op.active);
  const auto wanted = static_cast<std::int64_t>(moe_workspace_bytes(device, shape_of(op)));
  check.that(op.workspace.dtype == DType::u8 && op.workspace.size() >= wanted,
             "workspace has moe_workspace_bytes", op.workspace.size());
}

/// The same numbers in f32.
void widen(Queue& queue, const Tensor& from, const Tensor& to) {
  share(queue, from.dim(0), 1, from.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < from.dim(1); ++i) {
        to.row<float>(t)[i] = to_float(from.row<bf16>(t)[i]);
      }
    }
  });
}

/// to = weight * x of every row, whose weight is 1 from then on.
void weigh_rows(Queue& queue, const Tensor& x, const Tensor& weights, const Tensor& to) {
  share(queue, x.dim(0), 1, x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) {
        float& weight = *weights.row<float>(t);
        for (std::int64_t i = 0; i < x.dim(1); ++i) {
          to.row<T>(t)[i] = from_float<T>(weight * to_float(x.row<T>(t)[i]));
        }
        weight = 1.0F;
      }
    });
  });
}

/// y = y + scale * sigmoid(logit) * output, rounded once.
void add_gated(Queue& queue, const FusedMoe& op, const Workspace& room) {
  const std::int64_t hidden = op.y.dim(1);
  share(queue, op.y.dim(0), 1, hidden, [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.y.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) {
        const float gate = 1.0F / (1.0F + std::exp(-*room.shared_logit.row<float>(t)));
        const float scale = op.scale * gate;
        const float* const output = room.shared_output.row<float>(t);
        T* const y = op.y.row<T>(t);
        for (std::int64_t i = 0; i < hidden; ++i) {
          y[i] = from_float<T>(to_float(y[i]) + scale * output[i]);
        }
      }
    });
  });
}

/// `wide` is x in f32 where the router is, else x.
void add_shared(Queue& queue, const FusedMoe& op, const Tensor& x, const Tensor& wide,
                const Workspace& room) {
  project(queue, {.x = x,
                  .weight = op.shared_gate_up,
                  .y = room.shared,
                  .activation = op.shared_activation.value_or(op.activation),
                  .product = room.shared_product});
  if (op.shared_gate == nullptr) {
    linear(queue,
           {.x = room.shared, .weight = op.shared_down, .y = op.y, .scale = op.scale, .add = true});
    return;
  }
  const Tensor& gate_x = op.shared_gate->dtype() == wide.dtype ? wide : x;
  linear(queue, {.x = gate_x, .weight = op.shared_gate, .y = room.shared_logit});
  linear(queue, {.x = room.shared, .weight = op.shared_down, .y = room.shared_output});
  add_gated(queue, op, room);
}

void add_experts(Queue& queue, const FusedMoe& op, const Tensor& x, const Workspace& room) {
  MoeExperts experts = {.x = x,
                        .chosen = room.chosen,
                        .weights = room.weights,
                        .gate_up = op.gate_up,
                        .down = op.down,
                        .y = op.y,
                        .workspace = room.experts,
                        .activation = op.activation,
                        .scale = op.scale,
                        .add = op.add,
                        .gate_up_bias = op.gate_up_bias,
                        .down_bias = op.down_bias};
  if (op.latent_in == nullptr) return moe_experts(queue, experts);
  linear(queue, {.x = x, .weight = op.latent_in, .y = room.latent});
  experts.x = room.latent;
  experts.y = room.latent_sum;
  experts.scale = 1.0F;
  experts.add = false;
  moe_experts(queue, experts);
  linear(
      queue,
      {.x = room.latent_sum, .weight = op.latent_out, .y = op.y, .scale = op.scale, .add = true});
}

}  // namespace

MoeShape shape_of(const FusedMoe& op) {
  return {.tokens = op.x.dim(0),
          .active = op.active,
          .experts = op.router->rows(),
          .hidden = op.x.dim(1),
          .intermediate = op.down->columns(),
          .shared_intermediate = op.shared_down == nullptr ? 0 : op.shared_down->columns(),
          .dtype = op.x.dtype,
          .activation = op.activation,
          .latent = op.latent_in == nullptr ? 0 : op.latent_in->rows(),
          .router_dtype = op.router->dtype(),
          .has_shared_gate = op.shared_gate != nullptr,
          .weighs_input = op.weighs_input};
}

std::size_t moe_workspace_bytes(Device device, const MoeShape& shape) {
  if constexpr (has_cuda) {
    if (device == Device::cuda) return cuda::moe_workspace_bytes(shape);
  }
  return Workspace(shape, nullptr).bytes;
}

void fused_moe(Queue& queue, const FusedMoe& op) {
  check(op, queue.device());
  if (on_card(queue, [&](auto& stream) { cuda::fused_moe(stream, op); })) return;
  const Workspace room(shape_of(op), op.workspace.as<std::byte>());
  Tensor x = op.x;
  if (!op.norm.empty()) {
    apply(queue, op.norm, op.x, room.normed);
    x = room.normed;
  }
  Tensor wide = op.router_x.empty() ? x : op.router_x;
  if (widens(shape_of(op))) {
    widen(queue, wide, room.wide);
    wide = room.wide;
  }
  linear(queue, {.x = wide, .weight = op.router, .y = room.logits, .bias = op.router_bias});
  moe_route(queue, {.logits = room.logits,
                    .bias = op.bias,
                    .chosen = room.chosen,
                    .weights = room.weights,
                    .routing = op.routing,
                    .expert_scale = op.expert_scale});
  if (op.shared_down != nullptr) add_shared(queue, op, x, wide, room);
  if (op.weighs_input) {
    weigh_rows(queue, x, room.weights, room.latent);
    x = room.latent;
  }
  add_experts(queue, op, x, room);
}

}  // namespace hyb::kernels
