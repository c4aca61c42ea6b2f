#include "models/decoder.h"

#include <algorithm>
#include <cstring>

#include "kernels/linear/linear.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/embed.h"
#include "kernels/ops/rms_norm.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// How attention layers share the keys of long sequences; the largest layer's need.
std::size_t attention_workspace(const Plan& plan, const Decoder::Limits& limits) {
  std::size_t bytes = 0;
  for (const Layer& layer : plan.layers) {
    for (const Block& block : layer.blocks) {
      for (const Part& part : block.parts) {
        if (const auto* attention = std::get_if<Attention>(&part)) {
          // Single-token spans only; a step has at most as many as rows are sampled.
          bytes = std::max(
              bytes, kernels::attention_workspace_bytes(limits.rows, attention->heads,
                                                        attention->head_dim, limits.positions));
        }
      }
    }
  }
  // Less only means fewer threads per sequence: a large batch has enough work without sharing.
  constexpr std::size_t enough = std::size_t{4} << 20;
  return std::min(bytes, enough);
}

std::size_t activations(const Plan& plan, DType activation, const Decoder::Limits& limits) {
  std::size_t part_max = 0;
  for (const Layer& layer : plan.layers) {
    for (const Block& block : layer.blocks) {
      for (const Part& part : block.parts) {
        const auto bytes = [&](const auto& known) -> std::size_t {
          if constexpr (std::is_same_v<std::decay_t<decltype(known)>, DeltaNet>) {
            return 0;  // refused when weights are loaded
          } else {
            return models::scratch_bytes(known, limits.tokens, plan.width, activation);
          }
        };
        part_max = std::max(part_max, std::visit(bytes, part));
      }
    }
  }
  const auto rows_bytes = [&](std::int64_t rows, std::int64_t columns, DType dtype) {
    return Scratch::padded(static_cast<std::size_t>(rows * columns) * size_of(dtype));
  };
  const std::size_t stream = rows_bytes(limits.tokens, plan.width, activation);
  const std::size_t head = rows_bytes(limits.rows, plan.width, activation) +
                           rows_bytes(limits.rows, plan.vocab, DType::f32);
  return 2 * stream + part_max + head;
}

}  // namespace

/// Counts attention and recurrent parts along the walk: the indices of the store.
struct Decoder::Ordinals {
  std::size_t attention = 0;
  std::size_t recurrent = 0;
};

Decoder::Decoder(kernels::Queue& queue, const Plan& plan, const Weights& weights,
                 const Store& store, const Geometry& geometry, const Limits& limits)
    : queue_(queue),
      plan_(plan),
      weights_(weights),
      store_(store),
      page_tokens_(geometry.page_tokens),
      activation_(geometry.activation_dtype),
      scratch_(queue.device(), activations(plan, geometry.activation_dtype, limits)) {
  const std::size_t workspace = attention_workspace(plan, limits);
  if (workspace != 0) workspace_ = kernels::Buffer(queue.device(), workspace);
}

std::size_t Decoder::scratch_bytes(const Plan& plan, DType activation, const Limits& limits) {
  return activations(plan, activation, limits) + attention_workspace(plan, limits);
}

void Decoder::run_part(std::size_t layer, std::size_t block, std::size_t part, const PartCall& call,
                       Ordinals& ordinals) {
  const Part& described = plan_.layers[layer].blocks[block].parts[part];
  const PartWeights& weights = weights_.layers[layer].blocks[block].parts[part];
  if (const auto* attention = std::get_if<Attention>(&described)) {
    const auto bytes = static_cast<std::int64_t>(workspace_.bytes());
    const std::size_t ordinal = ordinals.attention++;
    const AttentionMemory memory = {.arena = store_.arena(ordinal),
                                    .group = store_.group(ordinal),
                                    .workspace = workspace_.tensor(0, DType::u8, {bytes}),
                                    .page_tokens = page_tokens_};
    models::run(*attention, std::get<AttentionWeights>(weights), memory, call);
  } else if (const auto* ssd = std::get_if<Ssd>(&described)) {
    const std::size_t ordinal = ordinals.recurrent++;
    const SsdMemory memory = {.windows = store_.windows(ordinal), .states = store_.states(ordinal)};
    models::run(*ssd, std::get<SsdWeights>(weights), memory, call);
  } else if (const auto* mlp = std::get_if<Mlp>(&described)) {
    models::run(*mlp, std::get<MlpWeights>(weights), call);
  } else {
    models::run(std::get<Moe>(described), std::get<MoeWeights>(weights), call);
  }
}

Tensor Decoder::run(const StepTables& tables, const Tensor& sample_rows) {
  scratch_.return_to(0);
  const std::int64_t tokens = tables.tokens.dim(0);
  const Tensor residual = scratch_.take(activation_, {tokens, plan_.width});
  const Tensor normed = scratch_.take(activation_, {tokens, plan_.width});
  kernels::embed(queue_, {.weight = &weights_.embed,
                          .tokens = tables.tokens,
                          .y = residual,
                          .scale = plan_.embedding_scale});

  Ordinals ordinals;
  for (std::size_t layer = 0; layer < plan_.layers.size(); ++layer) {
    const auto& blocks = plan_.layers[layer].blocks;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      kernels::rms_norm(queue_, {.x = residual,
                                 .weight = weights_.layers[layer].blocks[block].norm,
                                 .y = normed,
                                 .eps = plan_.norm_eps,
                                 .one_plus = blocks[block].norm == Norm::rms_1p});
      const PartCall call = {.queue = queue_,
                             .tables = tables,
                             .scratch = scratch_,
                             .x = normed,
                             .residual = residual,
                             .residual_scale = blocks[block].residual_scale,
                             .norm_eps = plan_.norm_eps};
      for (std::size_t part = 0; part < blocks[block].parts.size(); ++part) {
        run_part(layer, block, part, call, ordinals);
      }
    }
  }
  return logits(residual, sample_rows);
}

Tensor Decoder::logits(const Tensor& residual, const Tensor& sample_rows) {
  const std::int64_t rows = sample_rows.empty() ? 0 : sample_rows.dim(0);
  if (rows == 0) return {};
  const Tensor last = scratch_.take(activation_, {rows, plan_.width});
  const auto row_bytes = static_cast<std::size_t>(plan_.width) * size_of(activation_);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t token = sample_rows.as<std::int32_t>()[i];
    std::memcpy(last.rows(i, 1).data, residual.rows(token, 1).data, row_bytes);
  }
  kernels::rms_norm(queue_, {.x = last,
                             .weight = weights_.final_norm,
                             .y = last,
                             .eps = plan_.norm_eps,
                             .one_plus = plan_.final_norm == Norm::rms_1p});
  const Tensor out = scratch_.take(DType::f32, {rows, plan_.vocab});
  kernels::linear(queue_,
                  {.x = last, .weight = &weights_.output(), .y = out, .scale = plan_.logits_scale});
  return out;
}

}  // namespace hyb::models
