#include "models/decoder.h"

#include <algorithm>

#include "kernels/linear/project.h"
#include "kernels/ops/gather.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

std::size_t semaphore_bytes(const StepLimits& limits) {
  return static_cast<std::size_t>(limits.tokens) * sizeof(std::int32_t);
}

/// By kind of part: parts of one kind run one after the other and share a workspace.
std::vector<std::size_t> workspace_sizes(const Plan& plan, const StepSetting& setting) {
  std::vector<std::size_t> sizes(std::variant_size_v<Part>, 0);
  for (const Layer& layer : plan.layers) {
    for (const Block& block : layer.blocks) {
      for (const Part& part : block.parts) {
        std::size_t& size = sizes[part.index()];
        size = std::max(
            size,
            std::visit([&](const auto& known) { return known.workspace_bytes(setting); }, part));
      }
    }
  }
  return sizes;
}

std::size_t activation_bytes(const Plan& plan, const StepSetting& setting) {
  std::size_t part_max = 0;
  plan.visit_parts(
      [&](const auto& part) { part_max = std::max(part_max, part.scratch_bytes(setting)); });
  const StepLimits& limits = setting.limits;
  const std::size_t stream = Scratch::space(setting.activation, limits.tokens, plan.width);
  const std::size_t head = Scratch::space(setting.activation, limits.rows, plan.width) +
                           Scratch::space(DType::f32, limits.rows, plan.vocab);
  return 2 * stream + part_max + head;
}

StepSetting setting_of(const Plan& plan, kernels::Device device, DType activation,
                       const StepLimits& limits) {
  return {.device = device, .activation = activation, .width = plan.width, .limits = limits};
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
      page_tokens_(geometry.page_tokens),
      activation_(geometry.activation_dtype),
      semaphores_(queue.device(), semaphore_bytes(limits)) {
  const StepSetting setting = setting_of(plan, queue.device(), geometry.activation_dtype, limits);
  scratch_ = Scratch(queue.device(), activation_bytes(plan, setting));
  for (const std::size_t bytes : workspace_sizes(plan, setting)) {
    workspaces_.emplace_back(queue.device(), bytes);
  }
}

std::size_t Decoder::scratch_bytes() const {
  std::size_t bytes = scratch_.bytes() + semaphores_.bytes();
  for (const kernels::Buffer& workspace : workspaces_) bytes += workspace.bytes();
  return bytes;
}

std::size_t Decoder::scratch_bytes(const Plan& plan, kernels::Device device, DType activation,
                                   const StepLimits& limits) {
  const StepSetting setting = setting_of(plan, device, activation, limits);
  std::size_t bytes = activation_bytes(plan, setting) + semaphore_bytes(limits);
  for (const std::size_t workspace : workspace_sizes(plan, setting)) bytes += workspace;
  return bytes;
}

PartMemory Decoder::memory_of(const Part& part, Ordinals& ordinals) const {
  const MemoryShape shape = std::visit([](const auto& known) { return known.memory(); }, part);
  PartMemory memory = {.page_tokens = page_tokens_,
                       .semaphores = all_of(semaphores_, DType::i32),
                       .workspace = all_of(workspaces_[part.index()], DType::u8)};
  if (shape.kv) {
    const std::size_t ordinal = ordinals.pages++;
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
                   .norm_eps = plan_.norm_eps};
  if (described.parts.size() > 1) {
    // No part may see what another one adds.
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
    const std::vector<Block>& blocks = plan_.layers[layer].blocks;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      const PartCall call = input_of(layer, block, tables, residual, normed);
      for (std::size_t part = 0; part < blocks[block].parts.size(); ++part) {
        const Part& described = blocks[block].parts[part];
        run_part(described, weights_.layers[layer].blocks[block].parts[part],
                 memory_of(described, ordinals), call);
      }
    }
  }
  return logits(residual, sample_rows);
}

void Decoder::advance(const StepTables& tables) {
  scratch_.return_to(0);
  const PartCall call = {.queue = queue_,
                         .tables = tables,
                         .scratch = scratch_,
                         .x = {},
                         .norm = {},
                         .normed = {},
                         .residual = {},
                         .norm_eps = plan_.norm_eps};
  Ordinals ordinals;
  for (std::size_t layer = 0; layer < plan_.layers.size(); ++layer) {
    const std::vector<Block>& blocks = plan_.layers[layer].blocks;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      for (std::size_t part = 0; part < blocks[block].parts.size(); ++part) {
        const Part& described = blocks[block].parts[part];
        advance_part(described, weights_.layers[layer].blocks[block].parts[part],
                     memory_of(described, ordinals), call);
      }
    }
  }
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
