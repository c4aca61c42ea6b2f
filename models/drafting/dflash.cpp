#include "models/drafting/dflash.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/io/file.h"
#include "kernels/linear/project.h"
#include "kernels/ops/gather.h"
#include "models/families/common.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

constexpr std::string_view dflash_architecture = "DFlashDraftModel";
constexpr std::string_view dflash_key = "dflash_config";

/// Returns which of the two has a key: dflash_config, else the top level.
const Config& holder_of(const Config& c, const Config& own, std::string_view key) {
  return own.has(Keys{key}) ? own : c;
}

void refuse_other_kinds(const Config& c, const Config& own) {
  if (c.has("architectures")) {
    for (const std::string& name : c.strings("architectures")) {
      if (name == dflash_architecture) continue;
      c.fail("architectures", fmt::format("{} is another kind of head than {}", quote_name(name),
                                          dflash_architecture));
    }
  }
  demand(c, "hidden_act", "silu");
  for (const std::string_view key :
       {"attention_bias", "mlp_bias", "attention_sink_bias", "tie_embeddings", "shared_kv"}) {
    demand_flag(c, key, false);
  }
  for (const std::string_view key : {"use_swa", "attention_sink_bias"}) {
    demand_flag(own, key, false);
  }
  for (const char* key : {"conv_kernel_size", "selector_rank", "markov_rank"}) {
    if (!own.has(key) && !c.has(key)) continue;
    c.fail(key,
           "is of DFlash-2 or DSpark, which are not supported; a DFlash head of the first "
           "kind is");
  }
  if (c.b("use_sliding_window", false) && !c.has("layer_types")) {
    c.fail("layer_types", "is missing: it says which layers have the window");
  }
  for (const char* key : {"draft_vocab_size", "attention_value_scale"}) {
    if (own.has(key) || c.has(key)) c.fail(key, "is not supported of a DFlash head");
  }
}

void check_model(const Config& c, const Plan& plan) {
  const auto check = [&](const char* key, std::int32_t own, std::int32_t model) {
    if (own == model) return;
    c.fail(key,
           fmt::format("is {}, the model's is {}: this head is for another model", own, model));
  };
  check("hidden_size", c.i("hidden_size"), plan.width);
  check("vocab_size", c.i("vocab_size"), plan.vocab);
  const auto layers = static_cast<std::int32_t>(plan.layers.size());
  check("num_target_layers", c.i("num_target_layers", layers, count_range), layers);
}

/// Returns for each layer that is read the one after it, which gets what the head reads.
std::vector<std::int32_t> read_taps(const Config& c, const Config& own, std::int32_t layers) {
  constexpr std::string_view key = "target_layer_ids";
  const std::vector<std::int32_t> left = holder_of(c, own, key).integers(Keys{key}, count_range);
  if (left.empty()) c.fail(key, "names no layer");
  std::vector<std::int32_t> taps;
  for (const std::int32_t layer : left) {
    const bool ascends = taps.empty() || layer >= taps.back();
    if (!ascends || layer + 1 >= layers) {
      c.fail(key, fmt::format("is {}: layers in ascending order are read, of the model's {} not "
                              "the last",
                              fmt::join(left, ", "), layers));
    }
    taps.push_back(layer + 1);
  }
  return taps;
}

float read_number(const Config& c, const Config& own, std::string_view key) {
  return static_cast<float>(read_factor(holder_of(c, own, key), key));
}

}  // namespace

bool is_dflash(const Config& c) {
  if (c.has(Keys{dflash_key})) return true;
  if (!c.has("architectures")) return false;
  return std::ranges::any_of(c.strings("architectures"), [](const std::string& name) {
    return name.find("DFlash") != std::string::npos || name.find("DSpark") != std::string::npos;
  });
}

namespace {

/// Reads the layers, whose attention is the same but for what each one sees.
std::vector<Layer> read_layers(const Config& c, const Config& own, Attention attention) {
  const Mlp mlp = {.hidden = c.i("intermediate_size")};
  const bool is_told = c.has("is_causal") || own.has("causal");
  const bool are_causal = c.b("is_causal", own.b("causal", false));
  std::vector<Layer> layers;
  for (const std::int32_t window :
       layer_windows(c, dimension_range.high, [](std::int32_t) { return true; })) {
    if (window > 0 && is_told && !are_causal) {
      c.fail("layer_types",
             "has windows, and is_causal is false: windows in both directions are "
             "not supported");
    }
    attention.window = window;
    attention.sees_block = window == 0 && !are_causal;
    layers.push_back({{{.parts = {attention}}, {.parts = {mlp}}}});
  }
  return layers;
}

}  // namespace

DraftLayer dflash_of(const Config& c, const Plan& plan) {
  const Config own = c.object(Keys{dflash_key}).value_or(Config::from_text("{}", "dflash_config"));
  refuse_quantized(c);
  refuse_words(c);
  refuse_other_kinds(c, own);
  check_model(c, plan);
  if (plan.altup) c.fail("architectures", "a model with several residual streams has no head");

  Attention attention = read_attention(c, c.i("head_dim", 128));
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  attention.qk_norm = Norm::rms;
  attention.has_keys_alone = true;
  const auto number = [&](std::string_view key, const IntRange& range) {
    return holder_of(c, own, key).i(Keys{key}, range);
  };
  constexpr const char* cap = "final_logit_softcapping";
  return {.layers = read_layers(c, own, attention),
          .kind = Dflash{.taps = read_taps(c, own, static_cast<std::int32_t>(plan.layers.size())),
                         .block = number("block_size", {2, 1024}),
                         .mask = number("mask_token_id", {0, plan.vocab - 1}),
                         .norm_eps = read_norm_eps(c, "rms_norm_eps"),
                         .embedding_scale = read_number(c, own, "input_embedding_scale"),
                         .logits_scale = read_number(c, own, "output_multiplier"),
                         .logits_cap = read_cap(holder_of(c, own, cap), cap, 0.0)}};
}

namespace {

constexpr TensorName dflash_names[] = {
    {"draft.fc", "fc.weight"},
    {"draft.hidden_norm", "hidden_norm.weight"},
    {"draft.norm", "norm.weight"},
    {"block0.norm", "*.{}.input_layernorm.weight"},
    {"attention.q", "*.{}.self_attn.q_proj.weight"},
    {"attention.k", "*.{}.self_attn.k_proj.weight"},
    {"attention.v", "*.{}.self_attn.v_proj.weight"},
    {"attention.o", "*.{}.self_attn.o_proj.weight"},
    {"attention.q_norm", "*.{}.self_attn.q_norm.weight"},
    {"attention.k_norm", "*.{}.self_attn.k_norm.weight"},
    {"block1.norm", "*.{}.post_attention_layernorm.weight"},
    {"mlp.gate", "*.{}.mlp.gate_proj.weight"},
    {"mlp.up", "*.{}.mlp.up_proj.weight"},
    {"mlp.down", "*.{}.mlp.down_proj.weight"},
};
constexpr std::string_view dflash_trunks[] = {"layers"};
/// A copy of the model's embedding.
constexpr std::string_view dflash_unused[] = {"embed_tokens."};

}  // namespace

const Family dflash_head = {.model_types = {},
                            .plan = nullptr,
                            .names = dflash_names,
                            .trunks = dflash_trunks,
                            .unused = dflash_unused,
                            .draft_trunks = dflash_trunks};

namespace {

class DflashDraftRunner : public DraftRunner {
 public:
  DflashDraftRunner(LayerRunner& layers, const Dflash& kind)
      : DraftRunner(layers, kind.norm_eps), kind_(kind) {}

  /// Writes the entries of all layers from what the model's left, since no token's is made of
  /// another's.
  void write_entries(const StepTables& tables, const Streams& streams) override {
    const ScratchFrame frame(layers_.scratch());
    kernels::project(queue_,
                     {.x = streams.taps, .weight = &draft_weights().fc, .y = streams.normed});
    kernels::apply(queue_, draft_norm(draft_weights().hidden_norm), streams.normed, streams.normed);
    const PartCall call = layers_.plain_call(tables, streams.normed, norm_eps_);
    Ordinals ordinals = layers_.draft_ordinals();
    for (std::size_t layer = 0; layer < draft_plan().layers.size(); ++layer) {
      write_keys(layer, call, ordinals);
    }
  }

  Tensor draft(const StepTables& tables, const Tensor& sample_rows, bool /*is_further*/) override {
    Streams streams = layers_.take_streams(tables.tokens.dim(0), false);
    streams.norm_eps = norm_eps_;
    kernels::embed(queue_, {.weight = &layers_.weights().embed,
                            .tokens = tables.tokens,
                            .y = streams.residual,
                            .scale = kind_.embedding_scale});
    run_all_layers(tables, streams);
    const Tensor last =
        layers_.scratch().take(layers_.activation(), {sample_rows.dim(0), layers_.plan().width});
    kernels::gather_rows(queue_, {.x = streams.residual, .rows = sample_rows, .y = last});
    return layers_.head_logits(layers_.weights().output(), last, draft_norm(draft_weights().norm),
                               kind_.logits_scale, kind_.logits_cap);
  }

 private:
  const Dflash& kind_;
};

}  // namespace

std::unique_ptr<DraftRunner> make_dflash_draft_runner(LayerRunner& layers, const Dflash& kind) {
  return std::make_unique<DflashDraftRunner>(layers, kind);
}

}  // namespace hyb::models
