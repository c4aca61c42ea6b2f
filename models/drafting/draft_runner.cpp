#include "models/drafting/draft_runner.h"

#include "kernels/ops/kv_clear.h"
#include "models/drafting/dflash.h"
#include "models/drafting/eagle3.h"
#include "models/drafting/mtp.h"
#include "models/drafting/pass_draft_runner.h"

namespace hyb::models {

namespace {

/// Writes the keys of a part that can do so without attention.
void write_part_keys(const Part& part, const PartWeights& weights, const PartMemory& memory,
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

/// Makes the keys and values of all tokens zeros, where a part has any.
void clear_keys(kernels::Queue& queue, const Part& part, const PartMemory& memory,
                const StepTables& tables) {
  const auto shape = std::visit([](const auto& known) { return known.memory().kv; }, part);
  if (!shape) return;
  kernels::kv_clear(queue, {.kv = memory.kv_pages(tables),
                            .tokens = tables.tokens.dim(0),
                            .kv_heads = shape->kv_heads,
                            .head_dim = shape->head_dim});
}

}  // namespace

DraftRunner::DraftRunner(LayerRunner& layers, float norm_eps)
    : layers_(layers), queue_(layers.queue()), norm_eps_(norm_eps) {}

std::size_t DraftRunner::bytes(const Plan& plan, const StepSetting& setting) {
  return plan.draft && plan.draft->runs_in_passes() ? PassDraftRunner::bytes(plan, setting) : 0;
}

std::size_t DraftRunner::scratch_bytes(const Plan& plan, const StepSetting& setting) {
  return plan.draft && plan.draft->runs_in_passes() ? PassDraftRunner::scratch_bytes(plan, setting)
                                                    : 0;
}

void DraftRunner::write_keys(std::size_t layer, const PartCall& call, Ordinals& ordinals) const {
  const Part& part = draft_plan().layers[layer].blocks.front().parts.front();
  write_part_keys(part, draft_weights().layers[layer].blocks.front().parts.front(),
                  layers_.memory_of(part, ordinals), call);
}

void DraftRunner::run_all_layers(const StepTables& tables, const Streams& streams) {
  Ordinals ordinals = layers_.draft_ordinals();
  for (std::size_t layer = 0; layer < draft_plan().layers.size(); ++layer) {
    layers_.run_layer(draft_plan().layers[layer], draft_weights().layers[layer], tables, streams,
                      ordinals);
  }
}

void DraftRunner::clear_entries(const StepTables& tables, const Streams& /*streams*/) {
  Ordinals ordinals = layers_.draft_ordinals();
  for (const Layer& layer : draft_plan().layers) {
    for (const Block& block : layer.blocks) {
      for (const Part& part : block.parts) {
        clear_keys(queue_, part, layers_.memory_of(part, ordinals), tables);
      }
    }
  }
}

void DraftRunner::advance(const StepTables& /*tables*/) {}

std::unique_ptr<DraftRunner> make_draft_runner(LayerRunner& layers, const StepLimits& limits) {
  struct Make {
    LayerRunner& layers;
    const StepLimits& limits;
    std::unique_ptr<DraftRunner> operator()(const Mtp&) const {
      return make_mtp_draft_runner(layers, limits);
    }
    std::unique_ptr<DraftRunner> operator()(const Eagle3& kind) const {
      return make_eagle3_draft_runner(layers, limits, kind);
    }
    std::unique_ptr<DraftRunner> operator()(const Dflash& kind) const {
      return make_dflash_draft_runner(layers, kind);
    }
  };
  return std::visit(Make{layers, limits}, layers.plan().draft->kind);
}

}  // namespace hyb::models
