#include "models/parts/delta_net.h"

#include <fmt/format.h>

#include "models/parts/recurrence.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Rows stored per key head, [first | second | ...] of the given lengths each, as all firsts, then
/// all seconds, ...
void append_ungrouped(MatrixRows& rows, const StoredMatrix& stored, std::int64_t groups,
                      std::initializer_list<std::int64_t> lengths) {
  const std::int64_t group = stored.rows / groups;
  std::int64_t offset = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t g = 0; g < groups; ++g) rows.append(stored, g * group + offset, length);
    offset += length;
  }
}

struct InputRows {
  explicit InputRows(std::int64_t width) : qkvz(width), ba(width) {}
  MatrixRows qkvz, ba;
};

/// All that is made of the input, of Kimi delta attention, and what makes a and z.
void pack_per_channel(const DeltaNet& part, WeightVisitor& visitor, std::int64_t width,
                      MatrixRows& rows, DeltaNetWeights& weights) {
  rows.append(visitor.stored("delta.q", part.keys(), width));
  rows.append(visitor.stored("delta.k", part.keys(), width));
  rows.append(visitor.stored("delta.v", part.values(), width));
  if (part.rank > 0) {
    rows.append(visitor.stored("delta.a_a", part.rank, width));
    rows.append(visitor.stored("delta.z_a", part.rank, width));
    weights.a_b = visitor.matrix("delta.a_b", part.decays(), part.rank);
    weights.z_b = visitor.matrix("delta.z_b", part.values(), part.rank);
  } else {
    weights.a_b = visitor.stacked({{"delta.a", part.decays()}, {"delta.z", part.values()}}, width);
  }
  weights.ba = visitor.matrix("delta.b", part.value_heads, width, Packing::activation);
}

/// Qwen3-Next stores qkvz and ba, key head by key head; its GGUF files so only ba.
InputRows input_rows(const DeltaNet& part, WeightVisitor& visitor, std::int64_t width) {
  InputRows rows(width);
  if (visitor.is_fused("delta.qkvz", "delta.qkv")) {
    const std::int64_t values = part.values() / part.shape.key_heads;
    append_ungrouped(rows.qkvz,
                     visitor.stored("delta.qkvz", part.conv_dim() + part.values(), width),
                     part.shape.key_heads, {part.key_dim, part.key_dim, values, values});
  } else {
    if (visitor.is_fused("delta.qkv", "delta.q")) {
      rows.qkvz.append(visitor.stored("delta.qkv", part.conv_dim(), width));
    } else {
      rows.qkvz.append(visitor.stored("delta.q", part.keys(), width));
      rows.qkvz.append(visitor.stored("delta.k", part.keys(), width));
      rows.qkvz.append(visitor.stored("delta.v", part.values(), width));
    }
    rows.qkvz.append(visitor.stored("delta.z", part.values(), width));
  }
  if (visitor.is_fused("delta.ba", "delta.b")) {
    const std::int64_t heads = part.value_heads / part.shape.key_heads;
    append_ungrouped(rows.ba, visitor.stored("delta.ba", 2 * std::int64_t{part.value_heads}, width),
                     part.shape.key_heads, {heads, heads});
  } else {
    rows.ba.append(visitor.stored("delta.b", part.value_heads, width));
    rows.ba.append(visitor.stored("delta.a", part.value_heads, width));
  }
  return rows;
}

Tensor read_taps(const DeltaNet& part, WeightVisitor& visitor) {
  if (visitor.is_fused("delta.conv_weight", "delta.q_conv")) {
    return visitor.taps({{"delta.conv_weight", part.conv_dim()}}, part.conv_width);
  }
  return visitor.taps({{"delta.q_conv", part.keys()},
                       {"delta.k_conv", part.keys()},
                       {"delta.v_conv", part.values()}},
                      part.conv_width);
}

/// Rows of all inputs begin where a vector of a card's loads may.
std::int64_t padded_inputs(const DeltaNet& part) {
  constexpr std::int64_t vector = 8;
  return (part.inputs() + vector - 1) / vector * vector;
}

/// x times the weights of all inputs.
void project_inputs(const DeltaNet& part, const DeltaNetWeights& weights, const PartCall& call,
                    const Tensor& inputs) {
  if (!weights.ba) {
    kernels::project(call.queue, {.x = call.x,
                                  .norm = call.norm,
                                  .weight = &weights.in_proj,
                                  .y = inputs,
                                  .normed = call.normed});
    return;
  }
  const std::int64_t qkvz = part.conv_dim() + part.values();
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.in_proj,
                                .y = inputs.columns(0, qkvz),
                                .keep_normed = !call.norm.empty(),
                                .normed = call.normed});
  kernels::project(call.queue, {.x = call.norm.empty() ? call.x : call.normed,
                                .weight = &*weights.ba,
                                .y = inputs.columns(qkvz, part.inputs() - qkvz)});
}

/// Inputs that control the recurrence, b | a, and the gate that its answers meet.
struct Gates {
  Tensor controls, z;
};

Gates gates_of(const DeltaNet& part, const Tensor& inputs) {
  const std::int64_t heads = part.value_heads, z = part.conv_dim();
  return {.controls = inputs.columns(z + part.values(), 2 * heads),
          .z = inputs.columns(z, part.values())};
}

/// Makes the gates of Kimi delta attention.
Gates make_gates(const DeltaNet& part, const DeltaNetWeights& weights, const PartCall& call,
                 const Tensor& inputs) {
  const std::int64_t heads = part.value_heads, decays = part.decays();
  const Tensor made =
      call.scratch.take(inputs.dtype, {inputs.dim(0), heads + decays + part.values()});
  const bool has_norm = !call.norm.empty();
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.in_proj,
                                .y = inputs,
                                .keep_normed = has_norm,
                                .normed = call.normed});
  const Tensor x = has_norm ? call.normed : call.x;
  kernels::project(call.queue, {.x = x, .weight = &*weights.ba, .y = made.columns(0, heads)});
  const Gates gates = {.controls = made.columns(0, heads + decays),
                       .z = made.columns(heads + decays, part.values())};
  if (part.rank == 0) {
    kernels::project(
        call.queue,
        {.x = x, .weight = &weights.a_b, .y = made.columns(heads, decays + part.values())});
    return gates;
  }
  kernels::project(call.queue, {.x = inputs.columns(part.conv_dim(), part.rank),
                                .weight = &weights.a_b,
                                .y = made.columns(heads, decays)});
  kernels::project(call.queue, {.x = inputs.columns(part.conv_dim() + part.rank, part.rank),
                                .weight = &weights.z_b,
                                .y = gates.z});
  return gates;
}

Recurrence<kernels::DeltaRule> recurrence_of(const DeltaNet& part, const DeltaNetWeights& weights) {
  kernels::DeltaRule op;
  op.rate = weights.rate;
  op.dt_bias = weights.dt_bias;
  op.shape = part.shape;
  return {.widths = part.widths(),
          .conv_weight = weights.conv_weight,
          .conv_bias = {},
          .op = op,
          .scan = kernels::delta_rule,
          .step = kernels::delta_step};
}

}  // namespace

DeltaNetWeights DeltaNet::weights(WeightVisitor& visitor, std::int64_t width) const {
  DeltaNetWeights weights;
  const std::int64_t heads = value_heads;
  InputRows rows(width);
  if (shape.per_channel) {
    pack_per_channel(*this, visitor, width, rows.qkvz, weights);
  } else if (rows = input_rows(*this, visitor, width);
             visitor.pack_alike(rows.qkvz, Packing::linear, rows.ba, Packing::activation)) {
    rows.qkvz.append(rows.ba);
  } else {
    weights.ba = visitor.pack(rows.ba, Packing::activation);
  }
  weights.in_proj = visitor.pack(rows.qkvz);
  weights.conv_weight = read_taps(*this, visitor);
  weights.rate = rank > 0 ? visitor.rates("delta.rate", "delta.a_log", {1, 1, heads, 1})
                          : visitor.rates("delta.rate", "delta.a_log", heads);
  weights.dt_bias = visitor.vector("delta.dt_bias", decays());
  weights.norm = visitor.vector("delta.norm", value_dim, heads);
  weights.out_proj = visitor.matrix("delta.out_proj", width, values());
  return weights;
}

MemoryShape DeltaNet::memory() const {
  const HeadNumbers q = {Division::groups, shape.key_heads, key_dim}, k = q;
  const HeadNumbers v = {Division::heads, value_heads, value_dim};
  const HeadNumbers b = {Division::heads, value_heads, 1};
  const HeadNumbers a = {Division::heads, value_heads, decays() / value_heads};
  return {.state = StateShape{.channels = {q, k, v},
                              .conv_width = conv_width,
                              .heads = value_heads,
                              .rows = key_dim,
                              .columns = value_dim,
                              .inputs = {b, a}}};
}

/// Chunks of Q = 64: 2 Q heads (3 K + 2 V) + 6 heads K V per token.
PartWork DeltaNet::work() const {
  const double heads = value_heads, keys = key_dim, values = value_dim;
  return {.token_flops = 6 * heads * keys * values,
          .chunk_flops = 2 * heads * (3 * keys + 2 * values),
          .chunk_tokens = 64};
}

PartText DeltaNet::text() const {
  return {.kind = "delta",
          .text = fmt::format(
              "{}, {} value heads, {} key heads, {} x {}, "
              "convolution of {}{}",
              shape.per_channel ? "Kimi delta attention" : "gated delta net", value_heads,
              shape.key_heads, key_dim, value_dim, conv_width,
              shape.beta_scale == 1.0F ? "" : fmt::format(", beta x {}", shape.beta_scale))};
}

std::size_t DeltaNet::scratch_bytes(const StepSetting& setting) const {
  const std::int64_t made = shape.per_channel ? value_heads + decays() + values() : 0;
  return widths().scratch_bytes(setting, padded_inputs(*this)) +
         Scratch::space(setting.activation, setting.limits.step_tokens, made);
}

std::size_t DeltaNet::workspace_bytes(const StepSetting& setting) const {
  return kernels::delta_rule_workspace_bytes(setting.device, setting.limits.step_tokens,
                                             setting.limits.spans, value_heads,
                                             shape.per_channel ? key_dim : 0);
}

void DeltaNet::run(const DeltaNetWeights& weights, const PartMemory& memory,
                   const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const DType dtype = call.x.dtype;
  const std::int64_t heads = value_heads;
  const Tensor inputs =
      call.scratch.take(dtype, {tokens, padded_inputs(*this)}).columns(0, this->inputs());
  const Tensor convolved = call.scratch.take(dtype, {tokens, conv_dim()});
  const Tensor mixed = call.scratch.take(dtype, {tokens, values()});

  Gates gates;
  if (shape.per_channel) {
    gates = make_gates(*this, weights, call, inputs);
  } else {
    project_inputs(*this, weights, call, inputs);
    gates = gates_of(*this, inputs);
  }
  recurrence_of(*this, weights)
      .run(memory, call, {.x = inputs.columns(0, conv_dim()), .controls = gates.controls},
           convolved, mixed);
  kernels::project(call.queue, {.x = mixed,
                                .norm = {.weight = weights.norm,
                                         .eps = norm_eps > 0 ? norm_eps : call.norm_eps,
                                         .gate = gates.z,
                                         .groups = heads,
                                         .norm_first = true,
                                         .sigmoid_gate = shape.per_channel},
                                .weight = &weights.out_proj,
                                .y = call.residual,
                                .normed = mixed,
                                .scale = output_scale,
                                .add = call.add});
}

void DeltaNet::advance(const DeltaNetWeights& weights, const PartMemory& memory,
                       const PartCall& call) const {
  recurrence_of(*this, weights).advance(memory, call);
}

}  // namespace hyb::models
