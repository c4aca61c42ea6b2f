#include "models/parts/shared_transformer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "kernels/ops/rms_norm.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Stacks adapters of this use, which files keep under the first layer of the block.
kernels::Weight use_adapter(const SharedTransformer& part, WeightVisitor& visitor,
                            std::initializer_list<Role> roles, std::int64_t rows,
                            std::int64_t columns) {
  MatrixRows all(columns);
  for (const Role role : roles) {
    all.append(visitor.stored_expert(role, part.use, rows, columns));
  }
  return visitor.pack(all);
}

}  // namespace

SharedTransformerWeights SharedTransformer::weights(WeightVisitor& visitor,
                                                    std::int64_t width) const {
  require(attention.reads_pairs && attention.kv_of < 0 && attention.gate_width() == 0,
          "shared transformer: attention over pairs");
  SharedTransformerWeights weights;
  weights.linear = visitor.matrix("shared.linear", width, width);
  visitor.set_layer(first_layer);
  if (layer == first_layer) {
    weights.norm = visitor.vector("shared.norm", 2 * width);
    weights.attention = attention.weights(visitor, width);
    weights.mlp_norm = visitor.vector("shared.mlp_norm", width);
    weights.mlp = mlp.weights(visitor, width);
  }
  if (adapts_qkv) {
    weights.qkv_adapter.left = use_adapter(
        *this, visitor, {"shared.q_left", "shared.k_left", "shared.v_left"}, rank, 2 * width);
    for (const auto& [role, rows] : {RoleSize{"shared.q_right", attention.inner()},
                                     RoleSize{"shared.k_right", attention.kv_width()},
                                     RoleSize{"shared.v_right", attention.kv_width()}}) {
      weights.qkv_adapter.rights.push_back(use_adapter(*this, visitor, {role}, rows, rank));
    }
  }
  weights.mlp_adapter.left = use_adapter(*this, visitor, {"shared.mlp_left"}, rank, width);
  weights.mlp_adapter.rights.push_back(
      use_adapter(*this, visitor, {"shared.mlp_right"}, 2 * std::int64_t{mlp.hidden}, rank));
  visitor.set_layer(layer);
  return weights;
}

PartText SharedTransformer::text() const {
  const char* const adapted = adapts_qkv ? "q, k, v, gate and up" : "gate and up";
  return {.kind = "shared",
          .text = fmt::format("{}; {}; block of layer {}, adapters of {} of rank {}",
                              attention.text().text, mlp.text().text, first_layer, adapted, rank)};
}

std::size_t SharedTransformer::scratch_bytes(const StepSetting& setting) const {
  const std::int64_t tokens = setting.limits.step_tokens;
  const std::int64_t low = std::int64_t{adapts_qkv ? 3 : 1} * rank;
  return Scratch::space(setting.activation, tokens, 2 * setting.width) +
         2 * Scratch::space(setting.activation, tokens, setting.width) +
         Scratch::space(setting.activation, tokens, low) +
         std::max(attention.scratch_bytes(setting), mlp.scratch_bytes(setting));
}

void SharedTransformer::run(const SharedTransformerWeights& weights, const PartMemory& memory,
                            const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const SharedTransformerWeights& shared = *call.shared;
  const std::int64_t tokens = call.x.dim(0), width = call.x.dim(1);
  const auto take = [&](std::int64_t columns) {
    return call.scratch.take(call.x.dtype, {tokens, columns});
  };
  const auto norm = [&](const Tensor& x, const Tensor& weight, const Tensor& y) {
    kernels::rms_norm(call.queue, {.x = x, .weight = weight, .y = y, .eps = call.norm_eps});
  };
  PartCall own = call;
  own.norm = {};
  own.add = false;
  own.x = take(2 * width);
  own.residual = take(width);
  own.adapter = adapts_qkv ? &weights.qkv_adapter : nullptr;
  norm(call.pair, shared.norm, own.x);
  attention.run(shared.attention, memory, own);

  own.x = own.residual;
  own.residual = take(width);
  own.adapter = &weights.mlp_adapter;
  norm(own.x, shared.mlp_norm, own.x);
  mlp.run(shared.mlp, memory, own);
  kernels::project(call.queue, {.x = own.residual,
                                .weight = &weights.linear,
                                .y = call.residual,
                                .scale = output_scale,
                                .add = call.add});
}

}  // namespace hyb::models
