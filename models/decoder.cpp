#include "models/decoder.h"

#include <algorithm>

#include "kernels/linear/project.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/ssd.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// The largest of what `bytes_of` says of the plan's parts.
template <typename BytesOf>
std::size_t largest(const Plan& plan, BytesOf bytes_of) {
  std::size_t bytes = 0;
  plan.visit_parts([&](const auto& part) { bytes = std::max(bytes, bytes_of(part)); });
  return bytes;
}

template <typename Wanted>
const Wanted* as(const auto& part) {
  if constexpr (std::is_same_v<std::decay_t<decltype(part)>, Wanted>) return &part;
  return nullptr;
}

/// One function for each kind of part.
template <typename... Kinds>
struct Runs : Kinds... {
  using Kinds::operator()...;
};

/// How attention layers share the keys of long sequences.
std::size_t attention_workspace(const Plan& plan, kernels::Device device,
                                const Decoder::Limits& limits) {
  const std::size_t bytes = largest(plan, [&](const auto& part) -> std::size_t {
    const auto* attention = as<Attention>(part);
    if (attention == nullptr) return 0;
    // Single-token spans only; a step has at most as many as rows are sampled.
    return kernels::attention_workspace_bytes(device, limits.rows, attention->heads,
                                              attention->head_dim, limits.positions);
  });
  // Less only means fewer workers per sequence: a large batch has enough work without sharing.
  const std::size_t enough = std::size_t{device == kernels::Device::cpu ? 4U : 64U} << 20;
  return std::min(bytes, enough);
}

/// Recurrent layers run one after the other: they share one.
std::size_t recurrent_workspace(const Plan& plan, kernels::Device device,
                                const Decoder::Limits& limits) {
  return largest(plan, [&](const auto& part) -> std::size_t {
    if (const auto* ssd = as<Ssd>(part)) {
      return kernels::ssd_workspace_bytes(device, ssd->heads, ssd->head_dim, ssd->state_dim);
    }
    if (const auto* delta = as<DeltaNet>(part)) {
      return kernels::delta_rule_workspace_bytes(device, limits.tokens, limits.spans,
                                                 delta->value_heads);
    }
    return 0;
  });
}

std::size_t moe_workspace(const Plan& plan, kernels::Device device, DType activation,
                          const Decoder::Limits& limits) {
  return largest(plan, [&](const auto& part) -> std::size_t {
    const auto* moe = as<Moe>(part);
    if (moe == nullptr) return 0;
    return workspace_bytes(*moe, device, limits.tokens, plan.width, activation);
  });
}

std::size_t tickets(const Decoder::Limits& limits) {
  return static_cast<std::size_t>(limits.tokens) * sizeof(std::int32_t);
}

std::size_t activations(const Plan& plan, DType activation, const Decoder::Limits& limits) {
  const std::size_t part_max = largest(plan, [&](const auto& part) {
    return models::scratch_bytes(part, limits.tokens, activation);
  });
  const std::size_t stream = Scratch::space(activation, limits.tokens, plan.width);
  const std::size_t head = Scratch::space(activation, limits.rows, plan.width) +
                           Scratch::space(DType::f32, limits.rows, plan.vocab);
  return 2 * stream + part_max + head;
}

/// The whole buffer as numbers of a type; empty for none.
Tensor all_of(const kernels::Buffer& buffer, DType dtype) {
  if (buffer.bytes() == 0) return {};
  return buffer.tensor(0, dtype, {static_cast<std::int64_t>(buffer.bytes() / size_of(dtype))});
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
      scratch_(queue.device(), activations(plan, geometry.activation_dtype, limits)),
      attention_workspace_(queue.device(), attention_workspace(plan, queue.device(), limits)),
      recurrent_workspace_(queue.device(), recurrent_workspace(plan, queue.device(), limits)),
      moe_workspace_(queue.device(),
                     moe_workspace(plan, queue.device(), geometry.activation_dtype, limits)),
      tickets_(queue.device(), tickets(limits)) {}

std::size_t Decoder::scratch_bytes() const {
  return scratch_.bytes() + attention_workspace_.bytes() + recurrent_workspace_.bytes() +
         moe_workspace_.bytes() + tickets_.bytes();
}

std::size_t Decoder::scratch_bytes(const Plan& plan, kernels::Device device, DType activation,
                                   const Limits& limits) {
  return activations(plan, activation, limits) + attention_workspace(plan, device, limits) +
         recurrent_workspace(plan, device, limits) +
         moe_workspace(plan, device, activation, limits) + tickets(limits);
}

RecurrentMemory Decoder::recurrent(std::size_t ordinal) const {
  return {.windows = store_.windows(ordinal),
          .states = store_.states(ordinal),
          .tickets = all_of(tickets_, DType::i32),
          .workspace = all_of(recurrent_workspace_, DType::u8)};
}

void Decoder::run_part(std::size_t layer, std::size_t block, std::size_t part, const PartCall& call,
                       Ordinals& ordinals) {
  const PartWeights& weights = weights_.layers[layer].blocks[block].parts[part];
  const auto recur = [&](const auto& known, const auto& own) {
    models::run(known, own, recurrent(ordinals.recurrent++), call);
  };
  const Runs runs = {
      [&](const Attention& known) {
        const std::size_t ordinal = ordinals.attention++;
        const AttentionMemory memory = {.arena = store_.arena(ordinal),
                                        .group = store_.group(ordinal),
                                        .workspace = all_of(attention_workspace_, DType::u8),
                                        .page_tokens = page_tokens_};
        models::run(known, std::get<AttentionWeights>(weights), memory, call);
      },
      [&](const Ssd& known) { recur(known, std::get<SsdWeights>(weights)); },
      [&](const DeltaNet& known) { recur(known, std::get<DeltaNetWeights>(weights)); },
      [&](const ShortConv& known) { recur(known, std::get<ShortConvWeights>(weights)); },
      [&](const Mlp& known) { models::run(known, std::get<MlpWeights>(weights), call); },
      [&](const Moe& known) {
        models::run(known, std::get<MoeWeights>(weights),
                    {.workspace = all_of(moe_workspace_, DType::u8)}, call);
      }};
  std::visit(runs, plan_.layers[layer].blocks[block].parts[part]);
}

kernels::InputNorm Decoder::norm_of(Norm kind, const Tensor& weight) const {
  return {.weight = weight, .eps = plan_.norm_eps, .one_plus = kind == Norm::rms_1p};
}

PartCall Decoder::input_of(std::size_t layer, std::size_t block, const StepTables& tables,
                           const Tensor& residual, const Tensor& normed) {
  const Block& described = plan_.layers[layer].blocks[block];
  PartCall call = {.queue = queue_,
                   .tables = tables,
                   .scratch = scratch_,
                   .x = residual,
                   .norm = norm_of(described.norm, weights_.layers[layer].blocks[block].norm),
                   .normed = normed,
                   .residual = residual,
                   .residual_scale = described.residual_scale,
                   .norm_eps = plan_.norm_eps};
  if (described.parts.size() > 1) {
    // What the first part adds, the second must not see.
    kernels::apply(queue_, call.norm, residual, normed);
    call.x = normed;
    call.norm = {};
  }
  return call;
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
      const PartCall call = input_of(layer, block, tables, residual, normed);
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
  kernels::gather_rows(queue_, {.x = residual, .rows = sample_rows, .y = last});
  const Tensor out = scratch_.take(DType::f32, {rows, plan_.vocab});
  kernels::project(queue_, {.x = last,
                            .norm = norm_of(plan_.final_norm, weights_.final_norm),
                            .weight = &weights_.output(),
                            .y = out,
                            .normed = last,
                            .scale = plan_.logits_scale});
  return out;
}

}  // namespace hyb::models
