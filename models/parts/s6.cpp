#include "models/parts/s6.h"

#include <fmt/format.h>

#include "kernels/ops/gated_activation.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/s6.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// The scan with what comes before it: x is convolved, all else follows from it.
struct Scan : kernels::SelectiveScan {
  const S6* part = nullptr;
  const S6Weights* weights = nullptr;
  Scratch* scratch = nullptr;
};

void set_controls(Scan&, const Tensor&) {}

void normalise(kernels::Queue& queue, const S6& part, const Tensor& x, const Tensor& weight) {
  if (part.norms == S6Norms::none) return;
  kernels::rms_norm(queue, {.x = x, .weight = weight, .y = x, .eps = part.dt_norm_eps});
}

void scan(kernels::Queue& queue, const Scan& op) {
  const S6& part = *op.part;
  const S6Weights& weights = *op.weights;
  const ScratchFrame frame(*op.scratch);
  const std::int64_t tokens = op.x.dim(0), rank = part.dt_rank, states = part.state_dim;
  const Tensor selected = op.scratch->take(op.x.dtype, {tokens, part.selected()});
  const Tensor dt = op.scratch->take(op.x.dtype, {tokens, part.channels});
  kernels::project(queue, {.x = op.x, .weight = &weights.x_proj, .y = selected});
  const Tensor low = selected.columns(0, rank);
  kernels::SelectiveScan recurrence = op;
  recurrence.dt = dt;
  recurrence.b = selected.columns(rank, states);
  recurrence.c = selected.columns(rank + states, states);
  normalise(queue, part, low, weights.dt_norm);
  normalise(queue, part, recurrence.b, weights.b_norm);
  normalise(queue, part, recurrence.c, weights.c_norm);
  kernels::project(queue, {.x = low, .weight = &weights.dt_proj, .y = dt});
  kernels::selective_scan(queue, recurrence);
}

Recurrence<Scan> recurrence_of(const S6& part, const S6Weights& weights, Scratch& scratch) {
  Scan op;
  op.part = &part;
  op.weights = &weights;
  op.scratch = &scratch;
  op.rate = weights.rate;
  op.d = weights.d;
  op.dt_bias = weights.dt_bias;
  return {.widths = part.widths(),
          .conv_weight = weights.conv_weight,
          .conv_bias = weights.conv_bias,
          .op = op,
          .scan = scan,
          .step = [](kernels::Queue& queue, const kernels::RecurrentStep<Scan>& ops) {
            kernels::causal_conv(queue, ops.convolution);
            scan(queue, ops.recurrence);
          }};
}

}  // namespace

S6Weights S6::weights(WeightVisitor& visitor, std::int64_t width) const {
  S6Weights weights;
  weights.in_proj = visitor.matrix("s6.in_proj", 2 * std::int64_t{channels}, width);
  weights.conv_weight = visitor.taps({{"s6.conv_weight", channels}}, conv_width);
  if (conv_bias) weights.conv_bias = visitor.vector("s6.conv_bias", channels);
  weights.x_proj = visitor.matrix("s6.x_proj", selected(), channels);
  if (norms == S6Norms::weighted) {
    weights.dt_norm = visitor.vector("s6.dt_norm", dt_rank);
    weights.b_norm = visitor.vector("s6.b_norm", state_dim);
    weights.c_norm = visitor.vector("s6.c_norm", state_dim);
  }
  weights.dt_proj = visitor.matrix("s6.dt_proj", channels, dt_rank);
  weights.dt_bias = visitor.vector("s6.dt_bias", channels);
  const kernels::Tensor rates =
      visitor.rates("s6.rate", "s6.a_log", std::vector<std::int64_t>{channels, state_dim});
  weights.rate = {rates.data, DType::f32, {channels, state_dim}};
  weights.d = visitor.vector("s6.d", channels);
  weights.out_proj = visitor.matrix("s6.out_proj", width, channels);
  return weights;
}

MemoryShape S6::memory() const {
  return {.state = StateShape{.channels = {{Division::heads, channels, 1}},
                              .conv_width = conv_width,
                              .heads = channels,
                              .rows = 1,
                              .columns = state_dim}};
}

/// Counts for every number of the state its decay, what is left, what comes and what is read.
PartWork S6::work() const { return {.token_flops = 6.0 * channels * state_dim}; }

PartText S6::text() const {
  std::string text = fmt::format("Mamba-1, {} channels x {}, steps of rank {}, convolution of {}",
                                 channels, state_dim, dt_rank, conv_width);
  if (norms != S6Norms::none) text += ", norms of dt, B and C";
  return {.kind = "s6", .text = std::move(text)};
}

std::size_t S6::scratch_bytes(const StepSetting& setting) const {
  const std::int64_t rows = std::max(setting.limits.step_tokens, setting.limits.ring_rows);
  return widths().scratch_bytes(setting, 2 * std::int64_t{channels}) +
         Scratch::space(setting.activation, rows, selected()) +
         Scratch::space(setting.activation, rows, channels);
}

void S6::run(const S6Weights& weights, const PartMemory& memory, const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const DType dtype = call.x.dtype;
  const Tensor projected = call.scratch.take(dtype, {tokens, 2 * std::int64_t{channels}});
  const Tensor convolved = call.scratch.take(dtype, {tokens, channels});
  const Tensor mixed = call.scratch.take(dtype, {tokens, channels});

  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.in_proj,
                                .y = projected,
                                .normed = call.normed});
  recurrence_of(*this, weights, call.scratch)
      .run(memory, call,
           {.x = projected.columns(0, channels), .controls = projected.columns(channels, 0)},
           convolved, mixed);
  const Tensor z = projected.columns(channels, channels);
  kernels::gated_activation(call.queue, {.x = z, .y = mixed, .up = mixed});
  kernels::project(call.queue, {.x = mixed,
                                .weight = &weights.out_proj,
                                .y = call.residual,
                                .scale = output_scale,
                                .add = call.add});
}

void S6::advance(const S6Weights& weights, const PartMemory& memory, const PartCall& call) const {
  recurrence_of(*this, weights, call.scratch).advance(memory, call);
}

}  // namespace hyb::models
