#include "models/decoder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "kernels/floats.h"
#include "kernels/linear/project.h"
#include "kernels/ops/altup.h"
#include "kernels/ops/cap.h"
#include "kernels/ops/draft_ring.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/kv_clear.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/scale_columns.h"
#include "kernels/ops/shift_rows.h"
#include "kernels/transfer.h"
#include "models/parts/recurrence.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

std::size_t semaphore_bytes(const StepLimits& limits) {
  return static_cast<std::size_t>(limits.step_tokens) * sizeof(std::int32_t);
}

/// By kind of part: parts of one kind run one after the other and share a workspace.
std::vector<std::size_t> workspace_sizes(const Plan& plan, const StepSetting& setting) {
  std::vector<std::size_t> sizes(std::variant_size_v<Part>, 0);
  plan.visit_parts([&](const auto& part) {
    std::size_t& size = sizes[Part(part).index()];
    size = std::max(size, part.workspace_bytes(setting));
  });
  return sizes;
}

bool has_eagle(const Plan& plan) { return plan.draft && plan.draft->eagle; }
bool has_dflash(const Plan& plan) { return plan.draft && plan.draft->dflash; }
std::int64_t taps_of(const Plan& plan) { return plan.draft ? std::ssize(plan.draft->taps()) : 0; }

/// Pairs of embedding and hidden, and what goes through rings; of an EAGLE-3 head the logits.
std::size_t draft_bytes(const Plan& plan, const StepSetting& setting) {
  if (!plan.draft || has_dflash(plan)) return 0;
  const StepLimits& limits = setting.limits;
  const std::int32_t own_vocab = has_eagle(plan) ? plan.draft->eagle->vocab : 0;
  return Scratch::space(setting.activation, limits.step_tokens, 2 * std::int64_t{plan.width}) +
         2 * Scratch::space(setting.activation, limits.ring_rows, plan.width) +
         Scratch::space(DType::f32, limits.rows, own_vocab);
}

/// What a head reads of the model.
std::size_t tap_bytes(const Plan& plan, const StepSetting& setting) {
  return Scratch::space(setting.activation, setting.limits.step_tokens, taps_of(plan) * plan.width);
}

std::size_t row_number_bytes(const Plan& plan, const StepLimits& limits) {
  return taps_of(plan) > 0 ? static_cast<std::size_t>(limits.step_tokens) * sizeof(std::int32_t)
                           : 0;
}

/// What further drafts begin with.
std::size_t draft_hidden_bytes(const Plan& plan, DType activation, const StepLimits& limits) {
  if (!plan.draft || has_dflash(plan)) return 0;
  return Scratch::space(activation, limits.rows, plan.width);
}

/// The hidden state of tokens without draft entries.
std::size_t zeros_bytes(const Plan& plan, DType activation) {
  return plan.draft && !has_dflash(plan) ? Scratch::space(activation, 1, plan.width) : 0;
}

/// The same row for all tokens.
Tensor repeated(const kernels::Buffer& row, DType dtype, std::int64_t tokens,
                std::int64_t columns) {
  Tensor rows = row.tensor(0, dtype, {1, columns});
  rows.dims[0] = tokens;
  rows.row_stride = 0;
  return rows;
}

float rounded_root(DType activation, std::int32_t width) {
  const float root = std::sqrt(static_cast<float>(width));
  return activation == DType::bf16 ? kernels::to_float(kernels::to_bf16(root)) : root;
}

float embedding_scale(const Plan& plan, DType activation) {
  return plan.embedding_times_root ? rounded_root(activation, plan.width) : plan.embedding_scale;
}

/// What Streams has with several streams or low-rank residuals.
std::size_t altup_bytes(const Plan& plan, const StepSetting& setting) {
  const std::int64_t tokens = setting.limits.step_tokens;
  const std::size_t low_rank = Scratch::space(setting.activation, tokens, plan.low_rank());
  if (!plan.altup) return low_rank;
  const std::int64_t streams = plan.altup->streams;
  return low_rank + 2 * Scratch::space(setting.activation, tokens, streams * plan.width) +
         Scratch::space(DType::f32, tokens, streams);
}

std::size_t activation_bytes(const Plan& plan, const StepSetting& setting) {
  std::size_t part_max = 0;
  plan.visit_parts(
      [&](const auto& part) { part_max = std::max(part_max, part.scratch_bytes(setting)); });
  const StepLimits& limits = setting.limits;
  const std::size_t stream = Scratch::space(setting.activation, limits.step_tokens, plan.width);
  const std::size_t head = Scratch::space(setting.activation, limits.rows, plan.width) +
                           Scratch::space(DType::f32, limits.rows, plan.vocab);
  const std::size_t inputs =
      Scratch::space(setting.activation, limits.step_tokens, plan.layer_inputs_width());
  const std::size_t streams = 2 + (plan.has_post_norms() ? 1 : 0) + (plan.norms_parts() ? 1 : 0);
  return streams * stream + altup_bytes(plan, setting) + tap_bytes(plan, setting) + inputs +
         std::max(part_max + head + draft_bytes(plan, setting), inputs);
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

/// Of parts that have states.
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

/// Of parts whose keys can be written without attention.
void write_keys(const Part& part, const PartWeights& weights, const PartMemory& memory,
                const PartCall& call) {
  std::visit(
      [&](const auto& known) {
        using Known = std::decay_t<decltype(known)>;
        if constexpr (requires(const typename Known::Weights& own) {
                        known.write_keys(own, memory, call);
                      }) {
          known.write_keys(std::get<typename Known::Weights>(weights), memory, call);
        } else {
          require(false, "decoder: a draft layer begins with attention");
        }
      },
      part);
}

/// Of any part: where it has keys and values, those of all tokens become zeros.
void clear_keys(kernels::Queue& queue, const Part& part, const PartMemory& memory,
                const StepTables& tables) {
  const auto shape = std::visit([](const auto& known) { return known.memory().kv; }, part);
  if (!shape) return;
  kernels::kv_clear(queue, {.pages_of_layer = memory.pages,
                            .span_begin = tables.span_begin,
                            .position = tables.position,
                            .page_begin = tables.page_begin[memory.page_group],
                            .pages = tables.pages,
                            .tokens = tables.tokens.dim(0),
                            .kv_heads = shape->kv_heads,
                            .head_dim = shape->head_dim,
                            .page_tokens = memory.page_tokens});
}

kernels::InputNorm norm_of(Norm kind, const Tensor& weight, float eps) {
  if (kind == Norm::none) return {};
  require(kind != Norm::layer, "decoder: no other op does a layer norm on the way");
  return {.weight = weight, .eps = eps, .one_plus = kind == Norm::rms_1p};
}

float draft_eps(const Plan& plan) {
  const DraftLayer& draft = *plan.draft;
  return draft.eagle    ? draft.eagle->norm_eps
         : draft.dflash ? draft.dflash->norm_eps
                        : plan.norm_eps;
}

/// The whole buffer as numbers of a type; empty for none.
Tensor all_of(const kernels::Buffer& buffer, DType dtype) {
  if (buffer.bytes() == 0) return {};
  return buffer.tensor(0, dtype, {static_cast<std::int64_t>(buffer.bytes() / size_of(dtype))});
}

}  // namespace

/// Counts parts with pages and parts with slots in the order of the plan: the indices of the store.
struct Decoder::Ordinals {
  std::size_t pages = 0;
  std::size_t slots = 0;
};

Decoder::Decoder(kernels::Queue& queue, const Plan& plan, const Weights& weights,
                 const Store& store, const Geometry& geometry, const StepLimits& limits)
    : queue_(queue),
      plan_(plan),
      weights_(weights),
      store_(store),
      geometry_(geometry),
      activation_(geometry.activation_dtype),
      semaphores_(queue.device(), semaphore_bytes(limits)),
      draft_hidden_(queue.device(), draft_hidden_bytes(plan, geometry.activation_dtype, limits)),
      row_numbers_(queue.device(), row_number_bytes(plan, limits)),
      zeros_(queue.device(), zeros_bytes(plan, geometry.activation_dtype)) {
  const StepSetting setting = {queue.device(), geometry.activation_dtype, plan.width, limits};
  scratch_ = Scratch(queue.device(), activation_bytes(plan, setting));
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

std::size_t Decoder::scratch_bytes() const {
  std::size_t bytes = scratch_.bytes() + semaphores_.bytes() + draft_hidden_.bytes() +
                      row_numbers_.bytes() + zeros_.bytes();
  for (const kernels::Buffer& workspace : workspaces_) bytes += workspace.bytes();
  return bytes;
}

std::size_t Decoder::scratch_bytes(const Plan& plan, kernels::Device device, DType activation,
                                   const StepLimits& limits) {
  const StepSetting setting = {device, activation, plan.width, limits};
  std::size_t bytes = activation_bytes(plan, setting) + semaphore_bytes(limits) +
                      draft_hidden_bytes(plan, activation, limits) +
                      row_number_bytes(plan, limits) + zeros_bytes(plan, activation);
  for (const std::size_t workspace : workspace_sizes(plan, setting)) bytes += workspace;
  return bytes;
}

PartMemory Decoder::memory_of(const Part& part, Ordinals& ordinals) const {
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

/// Of a row that several parts or a projection read.
void Decoder::norm_rows(Norm kind, const Tensor& weight, const Tensor& x, const Tensor& y) const {
  if (kind == Norm::layer) {
    return kernels::layer_norm(queue_, {.x = x, .weight = weight, .y = y, .eps = plan_.norm_eps});
  }
  kernels::apply(queue_, norm_of(kind, weight, plan_.norm_eps), x, y);
}

/// Of parts that neither norm their input nor add to the stream.
PartCall Decoder::plain_call(const StepTables& tables, const Tensor& x, float norm_eps) {
  return {.queue = queue_,
          .tables = tables,
          .scratch = scratch_,
          .x = x,
          .norm = {},
          .normed = {},
          .residual = {},
          .norm_eps = norm_eps};
}

PartCall Decoder::input_of(const Block& block, const BlockWeights& weights,
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
                   .layer_inputs = streams.inputs};
  if (block.norms_parts) return call;
  if (block.parts.size() > 1 || block.norm == Norm::layer || block.low_rank > 0 ||
      block.carried_norm > 0) {
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

void Decoder::run_block(const Block& block, const BlockWeights& weights, const StepTables& tables,
                        const Streams& streams, Ordinals& ordinals) {
  PartCall call = input_of(block, weights, tables, streams);
  for (std::size_t part = 0; part < block.parts.size(); ++part) {
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

/// Of a block whose norm's rows are still there.
void Decoder::add_low_rank(const BlockWeights& weights, const Streams& streams) {
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

void Decoder::run_layer(const Layer& layer, const LayerWeights& weights, const StepTables& tables,
                        const Streams& streams, Ordinals& ordinals) {
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

/// What weighs the coefficients of the streams, by the active one.
void Decoder::route(const AltUpWeights& weights, const Tensor& active, const Streams& streams) {
  kernels::project(queue_, {.x = active,
                            .norm = norm_of(Norm::rms, weights.router_norm, plan_.norm_eps),
                            .weight = &weights.router,
                            .y = streams.router,
                            .normed = streams.normed,
                            .scale = 1.0F / static_cast<float>(plan_.width)});
}

/// All streams by the active one, which becomes what the layer's last block reads.
void Decoder::correct(const AltUpWeights& weights, const Streams& streams) {
  route(weights, streams.residual, streams);
  kernels::altup_correct(queue_, {.x = streams.predicted,
                                  .router = streams.router,
                                  .coefs = weights.correction,
                                  .scale = plan_.altup->scales_output ? weights.scale : Tensor(),
                                  .y = streams.all,
                                  .h = streams.residual,
                                  .active = plan_.altup->active});
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

Decoder::Streams Decoder::take_streams(std::int64_t tokens, bool has_taps) {
  const auto take = [&](std::int64_t columns) {
    return scratch_.take(activation_, {tokens, columns});
  };
  Streams streams = {
      .residual = take(plan_.width), .normed = take(plan_.width), .norm_eps = plan_.norm_eps};
  if (plan_.has_post_norms()) streams.branch = take(plan_.width);
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

void Decoder::make_inputs(const StepTables& tables, const Tensor& embedding,
                          const Streams& streams) {
  const ScratchFrame frame(scratch_);
  const Tensor projected =
      scratch_.take(activation_, {tables.tokens.dim(0), plan_.layer_inputs_width()});
  kernels::embed(queue_, {.weight = &weights_.inputs_embed,
                          .tokens = tables.tokens,
                          .y = streams.inputs,
                          .scale = rounded_root(activation_, plan_.layer_inputs->width)});
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

Tensor Decoder::run(const StepTables& tables, const Tensor& sample_rows, bool draft_entries) {
  scratch_.return_to(0);
  const Streams streams = take_streams(tables.tokens.dim(0), draft_entries);
  const Tensor embedding = plan_.altup ? streams.stream(streams.all, 0) : streams.residual;
  kernels::embed(queue_, {.weight = &weights_.embed,
                          .tokens = tables.tokens,
                          .y = embedding,
                          .scale = embedding_scale(plan_, activation_)});
  if (plan_.layer_inputs) make_inputs(tables, embedding, streams);
  if (plan_.altup) spread(streams);

  Ordinals ordinals;
  for (std::size_t layer = 0; layer < plan_.layers.size(); ++layer) {
    tap(layer, streams);
    run_layer(plan_.layers[layer], weights_.layers[layer], tables, streams, ordinals);
  }
  const Tensor out = logits(plan_.altup ? unite(streams) : streams.residual, sample_rows);
  draft_entry_seconds_ = 0;
  if (!plan_.draft) return out;
  draft_entries ? write_draft_entries(tables, streams) : clear_draft_entries(tables, streams);
  return out;
}

void Decoder::advance_layer(const Layer& layer, const LayerWeights& weights, Ordinals& ordinals,
                            const PartCall& call) {
  for (std::size_t block = 0; block < layer.blocks.size(); ++block) {
    const std::vector<Part>& parts = layer.blocks[block].parts;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      advance_part(parts[part], weights.blocks[block].parts[part], memory_of(parts[part], ordinals),
                   call);
    }
  }
}

void Decoder::advance(const StepTables& tables) {
  scratch_.return_to(0);
  const PartCall call = plain_call(tables, {}, plan_.norm_eps);
  Ordinals ordinals;
  for (std::size_t layer = 0; layer < plan_.layers.size(); ++layer) {
    advance_layer(plan_.layers[layer], weights_.layers[layer], ordinals, call);
  }
  if (!plan_.draft || has_dflash(plan_)) return;
  const Tensor& rings = carry().rings;
  carried_with_ring(call, Tensor(rings.data, rings.dtype, {0, plan_.width}));
}

Tensor Decoder::logits(const Tensor& residual, const Tensor& sample_rows) {
  const std::int64_t rows = sample_rows.empty() ? 0 : sample_rows.dim(0);
  if (rows == 0) return {};
  const Tensor last = scratch_.take(activation_, {rows, plan_.width});
  kernels::gather_rows(queue_, {.x = residual, .rows = sample_rows, .y = last});
  const bool is_apart = plan_.final_norm == Norm::layer;
  if (is_apart) norm_rows(plan_.final_norm, weights_.final_norm, last, last);
  const Norm norm = is_apart ? Norm::none : plan_.final_norm;
  return head_logits(weights_.output(), last, norm_of(norm, weights_.final_norm, plan_.norm_eps),
                     plan_.logits_scale, plan_.logits_cap);
}

/// Where there is a norm, x holds it afterwards.
Tensor Decoder::head_logits(const kernels::Weight& head, const Tensor& x,
                            const kernels::InputNorm& norm, float scale, float cap) {
  const Tensor out = scratch_.take(DType::f32, {x.dim(0), plan_.vocab});
  kernels::project(queue_,
                   {.x = x, .norm = norm, .weight = &head, .y = out, .normed = x, .scale = scale});
  if (cap > 0) kernels::cap(queue_, {.x = out, .cap = cap});
  return out;
}

void Decoder::copy_rows(const Tensor& x, const Tensor& y) {
  const Tensor rows = row_numbers_.tensor(0, DType::i32, {x.dim(0)});
  kernels::gather_rows(queue_, {.x = x, .rows = rows, .y = y});
}

/// Its layers come after all others.
Decoder::Ordinals Decoder::draft_ordinals() const {
  const auto first = std::ranges::find_if(geometry_.pages, [&](const PageLayout& pages) {
    return pages.layer >= std::ssize(plan_.layers);
  });
  const std::size_t carried = has_dflash(plan_) ? 0 : 1;
  return {.pages = static_cast<std::size_t>(first - geometry_.pages.begin()),
          .slots = geometry_.pieces.size() - carried};
}

/// The hidden state of a sequence's last position: in every slot, and of drafts in rings.
PartMemory Decoder::carry() const {
  const std::size_t last = draft_ordinals().slots;
  Tensor kept = store_.windows(last);
  kept.rank = 2;  // a window of one
  return {.windows = kept, .rings = store_.rings(last)};
}

namespace {

void shift(const PartCall& call, const PartMemory& memory, const RecurrentSpans& spans,
           const Tensor& x, const Tensor& y) {
  kernels::shift_rows(call.queue, {.x = x,
                                   .kept = memory.windows,
                                   .span_begin = spans.span_begin,
                                   .read_slot = spans.read_slot,
                                   .write_slot = spans.write_slot,
                                   .y = y});
}

}  // namespace

/// Of the spans in the ring tables, whose tokens' own rows are `hidden`: for all their rows that of
/// the token before.
Tensor Decoder::carried_with_ring(const PartCall& call, const Tensor& hidden) {
  const RingTables& ring = call.tables.ring;
  const PartMemory memory = carry();
  const Tensor rows = call.scratch.take(activation_, {ring.from.dim(0), plan_.width});
  const Tensor y = call.scratch.take(activation_, {ring.from.dim(0), plan_.width});
  kernels::extend_rows(call.queue,
                       {.x = hidden, .ring = memory.rings, .from = ring.from, .y = rows});
  shift(call, memory, RecurrentSpans::with_ring(ring), rows, y);
  return y;
}

/// For every token the hidden state of the one before. That of the last ones is kept, in
/// pages where `keeps`; slots have their tables for that.
void Decoder::carry_over(const PartCall& call, const Tensor& hidden, const Tensor& y, bool keeps) {
  if (geometry_.has_hidden_pages()) return carry_in_pages(call, hidden, y, keeps);
  run_spans(
      call, y,
      [&](std::int64_t tokens) {
        shift(call, carry(), RecurrentSpans::without_ring(call.tables), hidden.rows(0, tokens),
              y.rows(0, tokens));
      },
      [&](std::int64_t first, std::int64_t tokens) {
        const Tensor own = hidden.rows(first, tokens);
        const Tensor all = carried_with_ring(call, own);
        kernels::keep_rows(
            call.queue, {.x = own, .gate = {}, .to = call.tables.ring.kept, .ring = carry().rings});
        return all;
      });
}

void Decoder::carry_in_pages(const PartCall& call, const Tensor& hidden, const Tensor& y,
                             bool keeps) {
  const Tensor arena = store_.arena(geometry_.pages.size() - 1);
  const Tensor pages(arena.data, activation_, {arena.dim(0), geometry_.page_tokens, plan_.width});
  const StepTables& tables = call.tables;
  kernels::extend_rows(queue_, {.x = hidden, .ring = pages, .from = tables.hidden_before, .y = y});
  if (keeps)
    kernels::keep_rows(queue_, {.x = hidden, .gate = {}, .to = tables.hidden, .ring = pages});
}

/// What a head reads of what enters a layer.
void Decoder::tap(std::size_t layer, const Streams& streams) {
  if (streams.taps.empty()) return;
  const std::span<const std::int32_t> taps = plan_.draft->taps();
  for (std::size_t i = 0; i < taps.size(); ++i) {
    if (static_cast<std::size_t>(taps[i]) != layer) continue;
    const std::int64_t first = static_cast<std::int64_t>(i) * plan_.width;
    copy_rows(streams.residual, streams.taps.columns(first, plan_.width));
  }
}

/// Of all tokens, to `streams.normed`.
void Decoder::find_hidden(const Streams& streams) {
  if (!plan_.draft->eagle) {
    return kernels::apply(queue_, norm_of(plan_.final_norm, weights_.final_norm, plan_.norm_eps),
                          streams.residual, streams.normed);
  }
  kernels::project(queue_, {.x = streams.taps, .weight = &weights_.draft->fc, .y = streams.normed});
}

/// Pairs of the tokens' embeddings and of the hidden states before them, both normed. Of these the
/// layer's input is made, in the residual stream; an EAGLE-3 head reads them themselves, and the
/// hidden states are its residual stream.
void Decoder::join(const StepTables& tables, const Tensor& hidden, const Tensor& pairs,
                   const Streams& streams) {
  const DraftWeights& weights = *weights_.draft;
  const Tensor embedding = pairs.columns(0, plan_.width);
  const Norm norm = plan_.draft->norm;
  const float eps = streams.norm_eps;
  kernels::embed(queue_, {.weight = &weights_.embed,
                          .tokens = tables.tokens,
                          .y = embedding,
                          .scale = has_eagle(plan_) ? 1.0F : embedding_scale(plan_, activation_)});
  kernels::apply(queue_, norm_of(norm, weights.embedding_norm, eps), embedding, embedding);
  const kernels::InputNorm hidden_norm = norm_of(norm, weights.hidden_norm, eps);
  kernels::apply(queue_, hidden_norm, hidden, pairs.columns(plan_.width, plan_.width));
  if (!has_eagle(plan_)) {
    kernels::project(queue_, {.x = pairs, .weight = &weights.fc, .y = streams.residual});
  } else if (plan_.draft->eagle->adds_to_normed) {
    kernels::apply(queue_, hidden_norm, streams.residual, streams.residual);
  }
}

/// Of the draft layers' first block.
PartCall Decoder::draft_input(const StepTables& tables, const Tensor& pairs,
                              const Streams& streams) {
  PartCall call = input_of(plan_.draft->layers.front().blocks.front(),
                           weights_.draft->layers.front().blocks.front(), tables, streams);
  if (has_eagle(plan_)) call.x = pairs;
  return call;
}

void Decoder::write_draft_keys(const StepTables& tables, const Streams& model_streams) {
  const ScratchFrame frame(scratch_);
  Streams streams = model_streams;
  const std::int64_t tokens = streams.residual.dim(0);
  const Tensor pairs = scratch_.take(activation_, {tokens, 2 * std::int64_t{plan_.width}});
  find_hidden(streams);
  streams.norm_eps = draft_eps(plan_);
  const PartCall call = draft_input(tables, pairs, streams);
  carry_over(call, streams.normed, streams.residual, true);
  join(tables, streams.residual, pairs, streams);
  Ordinals ordinals = draft_ordinals();
  const Part& part = plan_.draft->layers.front().blocks.front().parts.front();
  write_keys(part, weights_.draft->layers.front().blocks.front().parts.front(),
             memory_of(part, ordinals), call);
}

/// Of all layers, made of what the model's left; no token's is made of another's.
void Decoder::write_block_keys(const StepTables& tables, const Streams& streams) {
  const ScratchFrame frame(scratch_);
  const DraftWeights& weights = *weights_.draft;
  kernels::project(queue_, {.x = streams.taps, .weight = &weights.fc, .y = streams.normed});
  kernels::apply(queue_, norm_of(plan_.draft->norm, weights.hidden_norm, draft_eps(plan_)),
                 streams.normed, streams.normed);
  const PartCall call = plain_call(tables, streams.normed, draft_eps(plan_));
  Ordinals ordinals = draft_ordinals();
  for (std::size_t layer = 0; layer < weights.layers.size(); ++layer) {
    const Part& part = plan_.draft->layers[layer].blocks.front().parts.front();
    write_keys(part, weights.layers[layer].blocks.front().parts.front(), memory_of(part, ordinals),
               call);
  }
}

void Decoder::write_draft_entries(const StepTables& tables, const Streams& streams) {
  const auto begin = std::chrono::steady_clock::now();
  has_dflash(plan_) ? write_block_keys(tables, streams) : write_draft_keys(tables, streams);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  draft_entry_seconds_ = taken.count();
}

/// A session that had no drafts leaves the same. Nothing may stay of what other tokens wrote.
void Decoder::clear_draft_entries(const StepTables& tables, const Streams& streams) {
  const ScratchFrame frame(scratch_);
  Ordinals ordinals = draft_ordinals();
  for (const Layer& layer : plan_.draft->layers) {
    for (const Block& block : layer.blocks) {
      for (const Part& part : block.parts) {
        clear_keys(queue_, part, memory_of(part, ordinals), tables);
      }
    }
  }
  if (has_dflash(plan_)) return;
  carry_over(plain_call(tables, {}, plan_.norm_eps),
             repeated(zeros_, activation_, tables.tokens.dim(0), plan_.width), streams.normed,
             true);
}

void Decoder::run_draft_layers(const StepTables& tables, const Tensor& pairs,
                               const Streams& streams) {
  Ordinals ordinals = draft_ordinals();
  const std::vector<Layer>& layers = plan_.draft->layers;
  const std::vector<LayerWeights>& weights = weights_.draft->layers;
  if (!has_eagle(plan_)) {
    for (std::size_t layer = 0; layer < weights.size(); ++layer) {
      run_layer(layers[layer], weights[layer], tables, streams, ordinals);
    }
    return;
  }
  const Part& attention = layers.front().blocks.front().parts.front();
  run_part(attention, weights.front().blocks.front().parts.front(), memory_of(attention, ordinals),
           draft_input(tables, pairs, streams));
  run_block(layers.front().blocks.back(), weights.front().blocks.back(), tables, streams, ordinals);
}

/// The hidden states of the sampled rows are kept for the drafts after them.
Tensor Decoder::draft_logits(const Streams& streams, const Tensor& sample_rows) {
  const DraftWeights& weights = *weights_.draft;
  const std::int64_t rows = sample_rows.dim(0);
  const Tensor last = scratch_.take(activation_, {rows, plan_.width});
  const Tensor hidden = draft_hidden_.tensor(0, activation_, {rows, plan_.width});
  const kernels::InputNorm norm = norm_of(plan_.draft->norm, weights.norm, streams.norm_eps);
  if (has_eagle(plan_)) {
    const Tensor out = scratch_.take(DType::f32, {rows, plan_.vocab});
    const Tensor own = scratch_.take(DType::f32, {rows, plan_.draft->eagle->vocab});
    kernels::gather_rows(queue_, {.x = streams.residual, .rows = sample_rows, .y = hidden});
    kernels::project(
        queue_, {.x = hidden, .norm = norm, .weight = &weights.head, .y = own, .normed = last});
    kernels::spread_columns(queue_, {.x = own, .from = weights.columns, .y = out});
    return out;
  }
  kernels::gather_rows(queue_, {.x = streams.residual, .rows = sample_rows, .y = last});
  kernels::apply(queue_, norm, last, hidden);
  const bool has_copy = weights.head.rows() > 0;
  return head_logits(has_copy ? weights.head : weights_.output(), hidden, {}, plan_.logits_scale,
                     plan_.logits_cap);
}

Tensor Decoder::draft_blocks(const StepTables& tables, const Tensor& sample_rows) {
  const Dflash& dflash = *plan_.draft->dflash;
  scratch_.return_to(0);
  Streams streams = take_streams(tables.tokens.dim(0), false);
  streams.norm_eps = draft_eps(plan_);
  kernels::embed(queue_, {.weight = &weights_.embed,
                          .tokens = tables.tokens,
                          .y = streams.residual,
                          .scale = dflash.embedding_scale});
  Ordinals ordinals = draft_ordinals();
  for (std::size_t layer = 0; layer < plan_.draft->layers.size(); ++layer) {
    run_layer(plan_.draft->layers[layer], weights_.draft->layers[layer], tables, streams, ordinals);
  }
  const Tensor last = scratch_.take(activation_, {sample_rows.dim(0), plan_.width});
  kernels::gather_rows(queue_, {.x = streams.residual, .rows = sample_rows, .y = last});
  return head_logits(weights_.output(), last,
                     norm_of(plan_.draft->norm, weights_.draft->norm, dflash.norm_eps),
                     dflash.logits_scale, dflash.logits_cap);
}

Tensor Decoder::draft(const StepTables& tables, const Tensor& sample_rows, bool is_further) {
  scratch_.return_to(0);
  const std::int64_t rows = tables.tokens.dim(0);
  Streams streams = take_streams(rows, false);
  streams.norm_eps = draft_eps(plan_);
  const Tensor pairs = scratch_.take(activation_, {rows, 2 * std::int64_t{plan_.width}});
  Tensor hidden = streams.residual;
  if (!is_further) {
    // The hidden states of these tokens are not known yet: no row reads them.
    kernels::embed(queue_,
                   {.weight = &weights_.embed, .tokens = tables.tokens, .y = streams.normed});
    carry_over(draft_input(tables, pairs, streams), streams.normed, hidden, false);
  } else {
    const Tensor kept = draft_hidden_.tensor(0, activation_, {rows, plan_.width});
    if (has_eagle(plan_)) {
      copy_rows(kept, hidden);
    } else {
      hidden = kept;
    }
  }
  join(tables, hidden, pairs, streams);
  // To attention every span is one token, whatever its ring has.
  StepTables single = tables;
  single.single_tokens = true;
  run_draft_layers(single, pairs, streams);
  return draft_logits(streams, sample_rows);
}

}  // namespace hyb::models
