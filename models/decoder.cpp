#include "models/decoder.h"

#include <chrono>
#include <cmath>

#include "kernels/linear/project.h"
#include "kernels/ops/altup.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/rms_norm.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Counts the scratch that the last rows and their logits take, and what drafts take.
std::size_t head_bytes(const Plan& plan, const StepSetting& setting) {
  const StepLimits& limits = setting.limits;
  const std::size_t logits = Scratch::space(setting.activation, limits.rows, plan.width) +
                             Scratch::space(DType::f32, limits.rows, plan.vocab);
  return logits + DraftRunner::scratch_bytes(plan, setting);
}

}  // namespace

Decoder::Decoder(kernels::Queue& queue, const Plan& plan, const Weights& weights,
                 const Store& store, const Geometry& geometry, const StepLimits& limits)
    : queue_(queue),
      plan_(plan),
      weights_(weights),
      layers_(queue, plan, weights, store, geometry, limits, head_bytes) {
  if (plan.draft) draft_runner_ = make_draft_runner(layers_, limits);
}

std::size_t Decoder::scratch_bytes() const {
  return layers_.bytes() + (draft_runner_ ? draft_runner_->bytes() : 0);
}

std::size_t Decoder::scratch_bytes(const Plan& plan, kernels::Device device, DType activation,
                                   const StepLimits& limits) {
  const StepSetting setting = {device, activation, plan.width, limits};
  return LayerRunner::bytes(plan, setting, head_bytes) + DraftRunner::bytes(plan, setting);
}

/// The streams from the first one, which is there.
void Decoder::spread(const Streams& streams) {
  const Tensor first = streams.stream(streams.all, 0);
  for (std::size_t i = 0; i < weights_.stream_projections.size(); ++i) {
    const Tensor stream = streams.stream(streams.all, static_cast<std::int64_t>(i) + 1);
    kernels::project(queue_, {.x = first, .weight = &weights_.stream_projections[i], .y = stream});
    kernels::match_magnitude(queue_, {.x = stream, .like = first});
  }
}

/// Their mean, in place of the first.
Tensor Decoder::unite(const Streams& streams) {
  const Tensor first = streams.stream(streams.all, 0);
  const std::int64_t others = std::ssize(weights_.stream_outputs);
  for (std::int64_t i = 0; i < others; ++i) {
    const Tensor own = streams.stream(streams.predicted, i + 1);
    kernels::project(queue_, {.x = streams.stream(streams.all, i + 1),
                              .weight = &weights_.stream_outputs[static_cast<std::size_t>(i)],
                              .y = own});
    kernels::match_magnitude(queue_, {.x = own, .like = first});
  }
  for (std::int64_t i = 0; i < others; ++i) {
    const float scale = i + 1 < others ? 1.0F : 1.0F / static_cast<float>(others + 1);
    kernels::add_rows(queue_,
                      {.x = streams.stream(streams.predicted, i + 1), .y = first, .scale = scale});
  }
  return first;
}

void Decoder::make_inputs(const StepTables& tables, const Tensor& embedding,
                          const Streams& streams) {
  const ScratchFrame frame(layers_.scratch());
  const Tensor projected = layers_.scratch().take(
      layers_.activation(), {tables.tokens.dim(0), plan_.layer_inputs_width()});
  kernels::embed(queue_, {.weight = &weights_.inputs_embed,
                          .tokens = tables.tokens,
                          .y = streams.inputs,
                          .scale = rounded_root(layers_.activation(), plan_.layer_inputs->width)});
  kernels::project(queue_, {.x = embedding,
                            .weight = &weights_.inputs_projection,
                            .y = projected,
                            .scale = 1.0F / std::sqrt(static_cast<float>(plan_.width))});
  kernels::rms_norm(queue_, {.x = projected,
                             .weight = weights_.inputs_norm,
                             .y = streams.inputs,
                             .eps = plan_.norm_eps,
                             .heads = std::ssize(plan_.layers),
                             .add = true,
                             .scale = std::sqrt(0.5F)});
}

/// Keeps what a head reads of what enters a layer.
void Decoder::tap(std::size_t layer, const Streams& streams) {
  if (streams.taps.empty()) return;
  const std::span<const std::int32_t> taps = plan_.draft->taps();
  for (std::size_t i = 0; i < taps.size(); ++i) {
    if (static_cast<std::size_t>(taps[i]) != layer) continue;
    const std::int64_t first = static_cast<std::int64_t>(i) * plan_.width;
    layers_.copy_rows(streams.residual, streams.taps.columns(first, plan_.width));
  }
}

Tensor Decoder::run(const StepTables& tables, const Tensor& sample_rows, bool draft_entries) {
  layers_.scratch().return_to(0);
  const Streams streams = layers_.take_streams(tables.tokens.dim(0), draft_entries);
  const Tensor embedding = plan_.altup ? streams.stream(streams.all, 0) : streams.residual;
  kernels::embed(queue_, {.weight = &weights_.embed,
                          .tokens = tables.tokens,
                          .y = embedding,
                          .scale = embedding_scale(plan_, layers_.activation())});
  if (plan_.keeps_embedding) {
    kernels::embed(queue_, {.weight = &weights_.embed,
                            .tokens = tables.tokens,
                            .y = streams.pair.columns(plan_.width, plan_.width),
                            .scale = embedding_scale(plan_, layers_.activation())});
  }
  if (plan_.layer_inputs) make_inputs(tables, embedding, streams);
  if (plan_.altup) spread(streams);

  Ordinals ordinals;
  for (std::size_t layer = 0; layer < plan_.layers.size(); ++layer) {
    tap(layer, streams);
    layers_.run_layer(plan_.layers[layer], weights_.layers[layer], tables, streams, ordinals);
  }
  const Tensor out = logits(plan_.altup ? unite(streams) : streams.residual, sample_rows);
  draft_entry_seconds_ = 0;
  if (!draft_runner_) return out;
  if (!draft_entries) {
    draft_runner_->clear_entries(tables, streams);
    return out;
  }
  const auto begin = std::chrono::steady_clock::now();
  draft_runner_->write_entries(tables, streams);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  draft_entry_seconds_ = taken.count();
  return out;
}

void Decoder::advance(const StepTables& tables) {
  layers_.scratch().return_to(0);
  const PartCall call = layers_.plain_call(tables, {}, plan_.norm_eps);
  Ordinals ordinals;
  for (std::size_t layer = 0; layer < plan_.layers.size(); ++layer) {
    layers_.advance_layer(plan_.layers[layer], weights_.layers[layer], ordinals, call);
  }
  if (draft_runner_) draft_runner_->advance(tables);
}

Tensor Decoder::logits(const Tensor& residual, const Tensor& sample_rows) {
  const std::int64_t rows = sample_rows.empty() ? 0 : sample_rows.dim(0);
  if (rows == 0) return {};
  const Tensor last = layers_.scratch().take(layers_.activation(), {rows, plan_.width});
  kernels::gather_rows(queue_, {.x = residual, .rows = sample_rows, .y = last});
  const bool is_apart = plan_.final_norm == Norm::layer;
  if (is_apart) layers_.norm_rows(plan_.final_norm, weights_.final_norm, last, last);
  const Norm norm = is_apart ? Norm::none : plan_.final_norm;
  return layers_.head_logits(weights_.output(), last,
                             norm_of(norm, weights_.final_norm, plan_.norm_eps), plan_.logits_scale,
                             plan_.logits_cap);
}

Tensor Decoder::draft(const StepTables& tables, const Tensor& sample_rows, bool is_further) {
  layers_.scratch().return_to(0);
  return draft_runner_->draft(tables, sample_rows, is_further);
}

}  // namespace hyb::models
