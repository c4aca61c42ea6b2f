#include "models/layer_runner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/floats.h"
#include "kernels/linear/project.h"
#include "kernels/ops/altup.h"
#include "kernels/ops/cap.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/scale_columns.h"
#include "kernels/transfer.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

std::size_t semaphore_bytes(const StepLimits& limits) {
  return static_cast<std::size_t>(limits.step_tokens) * sizeof(std::int32_t);
}

/// Counts the workspace of each kind of part: parts of one kind run one after the other and share
/// it.
std::vector<std::size_t> workspace_sizes(const Plan& plan, const StepSetting& setting) {
  std::vector<std::size_t> sizes(std::variant_size_v<Part>, 0);
  plan.visit_parts([&](const auto& part) {
    std::size_t& size = sizes[Part(part).index()];
    size = std::max(size, part.workspace_bytes(setting));
  });
  return sizes;
}

void run_part(const Part& part, const PartWeights& weights, const PartMemory& memory,
              const PartCall& call) {
  std::visit(
      [&](const auto& known) {
        using Known = std::decay_t<decltype(known)>;
        known.run(std::get<typename Known::Weights>(weights), memory, call);
      },
      part);
}

/// Runs advance() of a part that has states.
void advance_part(const Part& part, const PartWeights& weights, const PartMemory& memory,
                  const PartCall& call) {
  std::visit(
      [&](const auto& known) {
        using Known = std::decay_t<decltype(known)>;
        const auto& own = std::get<typename Known::Weights>(weights);
        if constexpr (requires { known.advance(own, memory, call); }) {
          known.advance(own, memory, call);
        } else {
          require(!known.memory().state, "decoder: what has a state can be moved on");
        }
      },
      part);
}

/// The whole buffer as numbers of a type; empty for none.
Tensor all_of(const kernels::Buffer& buffer, DType dtype) {
  if (buffer.bytes() == 0) return {};
  return buffer.tensor(0, dtype, {static_cast<std::int64_t>(buffer.bytes() / size_of(dtype))});
}

std::int64_t taps_of(const Plan& plan) { return plan.draft ? std::ssize(plan.draft->taps()) : 0; }

/// Counts what a head reads of the model.
std::size_t tap_bytes(const Plan& plan, const StepSetting& setting) {
  return Scratch::space(setting.activation, setting.limits.step_tokens, taps_of(plan) * plan.width);
}

std::size_t row_number_bytes(const Plan& plan, const StepLimits& limits) {
  return taps_of(plan) > 0 ? static_cast<std::size_t>(limits.step_tokens) * sizeof(std::int32_t)
                           : 0;
}

/// Counts what Streams has with several streams or low-rank residuals.
std::size_t altup_bytes(const Plan& plan, const StepSetting& setting) {
  const std::int64_t tokens = setting.limits.step_tokens;
  const std::size_t low_rank = Scratch::space(setting.activation, tokens, plan.low_rank());
  if (!plan.altup) return low_rank;
  const std::int64_t streams = plan.altup->streams;
  return low_rank + 2 * Scratch::space(setting.activation, tokens, streams * plan.width) +
         Scratch::space(DType::f32, tokens, streams);
}

/// Counts the room that a card's queue has for rows in the order of a matrix's columns: those of a
/// step, or of a scan over the rows that drafts keep.
std::size_t ordered_bytes(kernels::Device device, const StepLimits& limits, std::int64_t columns) {
  if (device == kernels::Device::cpu) return 0;
  const std::int64_t rows = std::max(std::int64_t{limits.step_tokens}, limits.ring_rows);
  return static_cast<std::size_t>(rows * columns) * size_of(DType::bf16);
}

std::size_t activation_bytes(const Plan& plan, const StepSetting& setting, std::size_t head_bytes) {
  std::size_t part_max = 0;
  plan.visit_parts(
      [&](const auto& part) { part_max = std::max(part_max, part.scratch_bytes(setting)); });
  const StepLimits& limits = setting.limits;
  const std::size_t stream = Scratch::space(setting.activation, limits.step_tokens, plan.width);
  const std::size_t inputs =
      Scratch::space(setting.activation, limits.step_tokens, plan.layer_inputs_width());
  const std::size_t streams = 2 + (plan.has_branches() ? 1 : 0) + (plan.norms_parts() ? 1 : 0) +
                              (plan.keeps_embedding ? 1 : 0);
  return streams * stream + altup_bytes(plan, setting) + tap_bytes(plan, setting) + inputs +
         std::max(part_max + head_bytes, inputs);
}

}  // namespace

kernels::InputNorm norm_of(Norm kind, const Tensor& weight, float eps) {
  if (kind == Norm::none) return {};
  require(kind != Norm::layer, "decoder: no other op does a layer norm on the way");
  return {.weight = weight, .eps = eps, .one_plus = kind == Norm::rms_1p};
}

float rounded_root(DType activation, std::int32_t width) {
  const float root = std::sqrt(static_cast<float>(width));
  return activation == DType::bf16 ? kernels::to_float(kernels::to_bf16(root)) : root;
}

float embedding_scale(const Plan& plan, DType activation) {
  return plan.embedding_times_root ? rounded_root(activation, plan.width) : plan.embedding_scale;
}

LayerRunner::LayerRunner(kernels::Queue& queue, const Plan& plan, const Weights& weights,
                         const Store& store, const Geometry& geometry, const StepLimits& limits,
                         HeadBytes head_bytes)
    : queue_(queue),
      plan_(plan),
      weights_(weights),
      store_(store),
      geometry_(geometry),
      activation_(geometry.load.activation),
      ordered_bytes_(ordered_bytes(queue.device(), limits, weights.ordered_columns)),
      semaphores_(queue.device(), semaphore_bytes(limits)),
      row_numbers_(queue.device(), row_number_bytes(plan, limits)) {
  const StepSetting setting = {queue.device(), activation_, plan.width, limits};
  scratch_ = Scratch(queue.device(), activation_bytes(plan, setting, head_bytes(plan, setting)));
  queue.reserve_ordered(ordered_bytes_);
  for (const std::size_t bytes : workspace_sizes(plan, setting)) {
    workspaces_.emplace_back(queue.device(), bytes);
  }
  std::size_t pages = 0;
  for (const Layer& layer : plan.layers) {
    layer.visit_parts([&](const auto& part) { pages += part.memory().kv.has_value() ? 1 : 0; });
    pages_of_layer_.push_back(pages - 1);
  }
  if (row_numbers_.bytes() == 0) return;
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(limits.step_tokens));
  std::iota(numbers.begin(), numbers.end(), 0);
  kernels::upload(queue, row_numbers_.data(), std::as_bytes(std::span(numbers)));
}

std::size_t LayerRunner::bytes() const {
  std::size_t sum = scratch_.bytes() + ordered_bytes_ + semaphores_.bytes() + row_numbers_.bytes();
  for (const kernels::Buffer& workspace : workspaces_) sum += workspace.bytes();
  return sum;
}

std::size_t LayerRunner::bytes(const Plan& plan, const StepSetting& setting, HeadBytes head_bytes) {
  std::size_t sum = activation_bytes(plan, setting, head_bytes(plan, setting)) +
                    ordered_bytes(setting.device, setting.limits, setting.limits.ordered_columns) +
                    semaphore_bytes(setting.limits) + row_number_bytes(plan, setting.limits);
  for (const std::size_t workspace : workspace_sizes(plan, setting)) sum += workspace;
  return sum;
}

PartMemory LayerRunner::memory_of(const Part& part, Ordinals& ordinals) const {
  const MemoryShape shape = std::visit([](const auto& known) { return known.memory(); }, part);
  PartMemory memory = {.page_tokens = geometry_.page_tokens,
                       .semaphores = all_of(semaphores_, DType::i32),
                       .workspace = all_of(workspaces_[part.index()], DType::u8)};
  if (shape.kv || shape.kv_of >= 0) {
    const std::size_t ordinal =
        shape.kv ? ordinals.pages++ : pages_of_layer_[static_cast<std::size_t>(shape.kv_of)];
    memory.pages = store_.arena(ordinal);
    memory.page_group = store_.group(ordinal);
  }
  if (shape.state) {
    const std::size_t ordinal = ordinals.slots++;
    memory.windows = store_.windows(ordinal);
    memory.states = store_.states(ordinal);
    memory.rings = store_.rings(ordinal);
  }
  return memory;
}

void LayerRunner::norm_rows(Norm kind, const Tensor& weight, const Tensor& x,
                            const Tensor& y) const {
  if (kind == Norm::layer) {
    return kernels::layer_norm(queue_, {.x = x, .weight = weight, .y = y, .eps = plan_.norm_eps});
  }
  kernels::apply(queue_, norm_of(kind, weight, plan_.norm_eps), x, y);
}

PartCall LayerRunner::plain_call(const StepTables& tables, const Tensor& x, float norm_eps) {
  return {.queue = queue_,
          .tables = tables,
          .scratch = scratch_,
          .x = x,
          .norm = {},
          .normed = {},
          .residual = {},
          .norm_eps = norm_eps};
}

PartCall LayerRunner::input_of(const Block& block, const BlockWeights& weights,
                               const StepTables& tables, const Streams& streams) {
  PartCall call = {.queue = queue_,
                   .tables = tables,
                   .scratch = scratch_,
                   .x = streams.residual,
                   .norm = {},
                   .normed = streams.normed,
                   .residual = block.post_norm ? streams.branch : streams.residual,
                   .norm_eps = streams.norm_eps,
                   .add = !block.post_norm,
                   .layer_inputs = streams.inputs,
                   .pair = streams.pair};
  if (block.norms_parts) return call;
  const std::size_t readers = block.parts.size() - (block.feeds_norm ? 1 : 0);
  if (readers > 1 || block.norm == Norm::layer || block.low_rank > 0 || block.carried_norm > 0) {
    // No part may see what another one adds.
    norm_rows(block.norm, weights.norm, streams.residual, streams.normed);
    call.x = streams.normed;
    if (block.carried_norm > 0) {
      const kernels::ColumnSegment all = {plan_.width, block.carried_norm};
      norm_rows(block.norm, weights.norm, streams.residual, streams.residual);
      kernels::scale_columns(queue_, {.x = streams.residual, .segments = {&all, 1}});
    }
  } else {
    call.norm = norm_of(block.norm, weights.norm, streams.norm_eps);
  }
  return call;
}

void LayerRunner::run_block(const Block& block, const BlockWeights& weights,
                            const StepTables& tables, const Streams& streams, Ordinals& ordinals) {
  PartCall call = input_of(block, weights, tables, streams);
  if (block.feeds_norm) feed_norm(block, weights, streams, call, ordinals);
  for (std::size_t part = block.feeds_norm ? 1 : 0; part < block.parts.size(); ++part) {
    if (block.norms_parts) {
      call.norm = norm_of(Norm::rms, weights.part_norms[part], plan_.norm_eps);
      call.residual = streams.part;
    }
    run_part(block.parts[part], weights.parts[part], memory_of(block.parts[part], ordinals), call);
    if (block.norms_parts) {
      kernels::rms_norm(queue_, {.x = streams.part,
                                 .weight = weights.part_post_norms[part],
                                 .y = streams.branch,
                                 .eps = plan_.norm_eps,
                                 .add = part > 0});
    } else {
      call.add = true;
    }
  }
  if (!block.post_norm) return;
  kernels::RmsNorm post = {.x = streams.branch,
                           .weight = weights.post_norm,
                           .y = streams.residual,
                           .eps = plan_.norm_eps,
                           .one_plus = *block.post_norm == Norm::rms_1p,
                           .add = true,
                           .factor = weights.factor};
  if (!block.to_others) {
    kernels::rms_norm(queue_, post);
    if (block.low_rank > 0) add_low_rank(weights, streams);
    return;
  }
  for (std::int32_t stream = 1; stream < plan_.altup->streams; ++stream) {
    post.y = streams.stream(streams.all, stream);
    kernels::rms_norm(queue_, post);
  }
}

/// Runs the first part, and lets `call` read what it fed.
void LayerRunner::feed_norm(const Block& block, const BlockWeights& weights, const Streams& streams,
                            PartCall& call, Ordinals& ordinals) {
  PartCall own = call;
  own.residual = streams.branch;
  own.add = false;
  std::visit(
      [&]<typename Known>(const Known& known) {
        if constexpr (requires { known.first_layer; }) {
          const auto& first = weights_.layers[static_cast<std::size_t>(known.first_layer)];
          own.shared = &std::get<typename Known::Weights>(first.blocks.front().parts.front());
        }
      },
      block.parts.front());
  run_first_part(block, weights, own, ordinals);
  kernels::add_rows(queue_, {.x = streams.residual, .y = streams.branch});
  call.x = streams.branch;
}

void LayerRunner::run_first_part(const Block& block, const BlockWeights& weights,
                                 const PartCall& call, Ordinals& ordinals) {
  const Part& part = block.parts.front();
  run_part(part, weights.parts.front(), memory_of(part, ordinals), call);
}

/// Adds the residual of a block whose norm's rows are still there.
void LayerRunner::add_low_rank(const BlockWeights& weights, const Streams& streams) {
  const Tensor left = streams.low_rank.columns(0, weights.left.rows());
  kernels::project(queue_, {.x = streams.normed, .weight = &weights.left, .y = left});
  kernels::project(queue_, {.x = left, .weight = &weights.right, .y = streams.branch});
  kernels::rms_norm(queue_, {.x = streams.branch,
                             .weight = weights.low_rank_norm,
                             .y = streams.normed,
                             .eps = plan_.norm_eps,
                             .add = true});
  kernels::add_rows(queue_, {.x = streams.normed, .y = streams.residual, .scale = std::sqrt(0.5F)});
}

void LayerRunner::run_layer(const Layer& layer, const LayerWeights& weights,
                            const StepTables& tables, const Streams& streams, Ordinals& ordinals) {
  if (plan_.altup) {
    route(weights.altup, streams.stream(streams.all, plan_.altup->active), streams);
    kernels::altup_predict(queue_, {.x = streams.all,
                                    .router = streams.router,
                                    .coefs = weights.altup.prediction,
                                    .y = streams.predicted,
                                    .h = streams.residual,
                                    .active = plan_.altup->active});
  }
  for (std::size_t block = 0; block < layer.blocks.size(); ++block) {
    if (layer.blocks[block].to_others) correct(weights.altup, streams);
    run_block(layer.blocks[block], weights.blocks[block], tables, streams, ordinals);
  }
}

/// Makes the numbers that weigh the coefficients of the streams, from the active one.
void LayerRunner::route(const AltUpWeights& weights, const Tensor& active, const Streams& streams) {
  kernels::project(queue_, {.x = active,
                            .norm = norm_of(Norm::rms, weights.router_norm, plan_.norm_eps),
                            .weight = &weights.router,
                            .y = streams.router,
                            .normed = streams.normed,
                            .scale = 1.0F / static_cast<float>(plan_.width)});
}

/// All streams by the active one, which becomes what the layer's last block reads.
void LayerRunner::correct(const AltUpWeights& weights, const Streams& streams) {
  route(weights, streams.residual, streams);
  kernels::altup_correct(queue_, {.x = streams.predicted,
                                  .router = streams.router,
                                  .coefs = weights.correction,
                                  .scale = plan_.altup->scales_output ? weights.scale : Tensor(),
                                  .y = streams.all,
                                  .h = streams.residual,
                                  .active = plan_.altup->active});
}

Streams LayerRunner::take_streams(std::int64_t tokens, bool has_taps) {
  const auto take = [&](std::int64_t columns) {
    return scratch_.take(activation_, {tokens, columns});
  };
  Streams streams = {.residual = take(plan_.keeps_embedding ? 2 * plan_.width : plan_.width),
                     .normed = take(plan_.width),
                     .norm_eps = plan_.norm_eps};
  if (plan_.keeps_embedding) {
    streams.pair = streams.residual;
    streams.residual = streams.pair.columns(0, plan_.width);
  }
  if (plan_.has_branches()) streams.branch = take(plan_.width);
  if (plan_.norms_parts()) streams.part = take(plan_.width);
  if (plan_.layer_inputs) streams.inputs = take(plan_.layer_inputs_width());
  if (plan_.low_rank() > 0) streams.low_rank = take(plan_.low_rank());
  if (has_taps && taps_of(plan_) > 0) streams.taps = take(taps_of(plan_) * plan_.width);
  if (plan_.altup) {
    const std::int64_t count = plan_.altup->streams;
    streams.all = take(count * plan_.width);
    streams.predicted = take(count * plan_.width);
    streams.router = scratch_.take(DType::f32, {tokens, count});
  }
  return streams;
}

void LayerRunner::advance_layer(const Layer& layer, const LayerWeights& weights, Ordinals& ordinals,
                                const PartCall& call) {
  for (std::size_t block = 0; block < layer.blocks.size(); ++block) {
    const std::vector<Part>& parts = layer.blocks[block].parts;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      advance_part(parts[part], weights.blocks[block].parts[part], memory_of(parts[part], ordinals),
                   call);
    }
  }
}

Tensor LayerRunner::head_logits(const kernels::Weight& head, const Tensor& x,
                                const kernels::InputNorm& norm, float scale, float cap) {
  const Tensor out = scratch_.take(DType::f32, {x.dim(0), plan_.vocab});
  kernels::project(queue_,
                   {.x = x, .norm = norm, .weight = &head, .y = out, .normed = x, .scale = scale});
  if (cap > 0) kernels::cap(queue_, {.x = out, .cap = cap});
  return out;
}

void LayerRunner::copy_rows(const Tensor& x, const Tensor& y) {
  const Tensor rows = row_numbers_.tensor(0, DType::i32, {x.dim(0)});
  kernels::gather_rows(queue_, {.x = x, .rows = rows, .y = y});
}

Ordinals LayerRunner::draft_ordinals() const {
  const auto first = std::ranges::find_if(geometry_.pages, [&](const PageLayout& pages) {
    return pages.layer >= std::ssize(plan_.layers);
  });
  const std::size_t carried = plan_.draft->runs_in_passes() ? 1 : 0;
  return {.pages = static_cast<std::size_t>(first - geometry_.pages.begin()),
          .slots = geometry_.pieces.size() - carried};
}

}  // namespace hyb::models
