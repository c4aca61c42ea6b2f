// Gemma 3n (E2B, E4B; the text part): Gemma 3's layers on one of several residual streams, which
// every layer predicts and corrects (AltUp), with a low-rank residual beside attention (LAuReL),
// gates of which only the largest count in the first layers, an embedding for every layer, and keys
// and values that the last layers read from an earlier one.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <numbers>

#include "kernels/ops/altup.h"
#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::gemma3n {
namespace {

/// Values that transformers takes where a key is absent.
constexpr std::string_view defaults = R"({
  "vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35,
  "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
  "max_position_embeddings": 32768, "rms_norm_eps": 1e-6
})";

/// Returns the number of standard deviations above the mean below which a normal distribution has
/// this share. Newton's steps from the mean never pass it, since the slope falls all the way.
double deviations_of(double share) {
  double x = 0;
  for (int i = 0; i < 64; ++i) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double slope = std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    x += (share - below) / slope;
  }
  return x;
}

/// Reads each layer's deviations; nothing: its gate is not sparse.
std::vector<std::optional<float>> read_sparsity(const Config& c) {
  constexpr const char* key = "activation_sparsity_pattern";
  const auto layers = static_cast<std::size_t>(layer_count(c));
  constexpr std::size_t usual_layers = 10;
  std::vector<double> shares(layers, 0.0);
  if (c.has(key)) {
    shares = c.numbers(key);
  } else if (layers > usual_layers) {
    std::fill_n(shares.begin(), usual_layers, 0.95);
  }
  if (shares.size() != layers) {
    c.fail(key, fmt::format("has {} entries for {} layers", shares.size(), layers));
  }
  std::vector<std::optional<float>> deviations(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    if (!(shares[i] >= 0 && shares[i] <= 0.9999)) {
      c.fail(key, fmt::format("must hold shares from 0 to 0.9999, holds {}", shares[i]));
    }
    if (shares[i] != 0) deviations[i] = static_cast<float>(deviations_of(shares[i]));
  }
  return deviations;
}

/// One number for all layers, or one for each.
std::vector<std::int32_t> read_widths(const Config& c) {
  constexpr const char* key = "intermediate_size";
  const std::int32_t layers = layer_count(c);
  if (!c.is_list(key)) return std::vector<std::int32_t>(static_cast<std::size_t>(layers), c.i(key));
  std::vector<std::int32_t> widths = c.integers(key, dimension_range);
  if (std::ssize(widths) != layers) {
    c.fail(key, fmt::format("has {} entries for {} layers", widths.size(), layers));
  }
  return widths;
}

AltUp read_altup(const Config& c) {
  constexpr auto streams_max = static_cast<std::int32_t>(kernels::altup_streams_max);
  const std::int32_t streams = c.i("altup_num_inputs", 4, {2, streams_max});
  return {.streams = streams,
          .active = c.i("altup_active_idx", 0, {0, streams - 1}),
          .scales_output = c.b("altup_correct_scale", true)};
}

Attention read_gemma3n_attention(const Config& c) {
  demand_flag(c, "attention_bias", false);
  demand_flag(c, "use_bidirectional_attention", false);
  Attention attention = read_attention(c, c.i("head_dim"));
  attention.scale = 1.0F;
  attention.qk_norm = Norm::rms;
  attention.value_norm = true;
  return attention;
}

Plan plan(const Config& given) {
  const Config c = given.with_defaults(defaults);
  demand(c, "hidden_activation", "gelu_pytorch_tanh");
  Plan p = read_plan(c, "rms_norm_eps");
  p.tied_head = c.b("tie_word_embeddings", true);
  p.embedding_times_root = true;
  p.logits_cap = read_cap(c, "final_logit_softcapping", 30.0);
  p.altup = read_altup(c);
  p.layer_inputs = LayerInputs{.vocab = c.i("vocab_size_per_layer_input", 262144),
                               .width = c.i("hidden_size_per_layer_input", 256)};
  const std::vector<std::int32_t> windows =
      layer_windows(c, 512, [](std::int32_t layer) { return layer % 5 == 4; });
  const std::vector<std::int32_t> sources = read_kv_sources(c, windows, 15);
  const std::vector<std::int32_t> widths = read_widths(c);
  const std::vector<std::optional<float>> sparsity = read_sparsity(c);
  Attention attention = read_gemma3n_attention(c);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    attention.window = windows[i];
    attention.kv_of = sources[i];
    attention.rope = read_gemma_rope(c, attention.head_dim, windows[i] == 0);
    const Mlp feed_forward = {.hidden = widths[i],
                              .activation = {.function = kernels::ActivationFunction::gelu_tanh},
                              .gate_deviations = sparsity[i]};
    const LayerInput input = {.width = p.layer_inputs->width,
                              .layer = static_cast<std::int32_t>(i)};
    p.layers.push_back(
        {{{.parts = {attention}, .post_norm = Norm::rms, .low_rank = c.i("laurel_rank", 64)},
          {.parts = {feed_forward}, .post_norm = Norm::rms},
          {.norm = Norm::none, .parts = {input}, .post_norm = Norm::rms, .to_others = true}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"altup.projection", "*.altup_projections.{}.weight"},
    {"altup.output", "*.altup_unembed_projections.{}.weight"},
    {"altup.router_norm", "*.layers.{}.altup.router_norm.weight"},
    {"altup.scale", "*.layers.{}.altup.correct_output_scale"},
    {"altup.router", "*.layers.{}.altup.modality_router.weight"},
    {"altup.prediction", "*.layers.{}.altup.prediction_coefs.weight"},
    {"altup.correction", "*.layers.{}.altup.correction_coefs.weight"},
    {"low_rank.left", "*.layers.{}.laurel.linear_left.weight"},
    {"low_rank.right", "*.layers.{}.laurel.linear_right.weight"},
    {"low_rank.norm", "*.layers.{}.laurel.post_laurel_norm.weight"},
};
constexpr auto names =
    joined(trunk_names, qk_norm_names, gemma_norm_names, gemma_input_names, own_names);
constexpr std::string_view model_types[] = {"gemma3n", "gemma3n_text"};
constexpr std::string_view trunks[] = {"model", "model.language_model"};
constexpr std::string_view unused[] = {"model.vision_tower.", "model.embed_vision.",
                                       "model.audio_tower.", "model.embed_audio."};

/// The file has the deviations that config.json's shares come to; -inf: the gate is not sparse.
Json gguf_sparsity(const GgufKeys& k) {
  constexpr const char* key = "activation_sparsity_scale";
  if (!k.has(key)) k.missing(key);
  Json shares = Json::array();
  for (const double deviations : k.files().metadata().reals(k.name(key))) {
    if (std::isnan(deviations)) k.fail(key, "a number is not one");
    shares.push_back(0.5 * std::erfc(-deviations / std::sqrt(2.0)));
  }
  return shares;
}

GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "gemma3n_text");
  set_gguf_gemma_layers(k, config);
  config.set("intermediate_size", k.each_block("feed_forward_length"));
  config.set("activation_sparsity_pattern", gguf_sparsity(k));
  config.set("altup_num_inputs", k.integer("altup.num_inputs"));
  config.set("altup_active_idx", k.integer("altup.active_idx"));
  const GgufTensor* const left = k.tensor_of(0, "laurel_l.weight");
  if (left == nullptr || left->shape.empty()) {
    refuse_gguf(k.files(), "it has no blk.0.laurel_l.weight");
  }
  config.set("laurel_rank", left->shape.front());
  return config;
}

constexpr TensorName gguf_own_names[] = {
    {"altup.projections", "altup_proj.weight"},
    {"altup.outputs", "altup_unembd_proj.weight"},
    {"altup.router_norm", "blk.{}.altup_router_norm.weight"},
    {"altup.scale", "blk.{}.altup_correct_scale.weight"},
    {"altup.router", "blk.{}.altup_router.weight"},
    {"altup.prediction", "blk.{}.altup_predict_coef.weight"},
    {"altup.correction", "blk.{}.altup_correct_coef.weight"},
    {"low_rank.left", "blk.{}.laurel_l.weight"},
    {"low_rank.right", "blk.{}.laurel_r.weight"},
    {"low_rank.norm", "blk.{}.laurel_post_norm.weight"},
};
constexpr auto gguf_all_names =
    joined(gguf_names, gguf_post_norm_names, gguf_input_names, gguf_own_names);

constexpr GgufArchitecture architectures[] = {
    {.name = "gemma3n", .config = gguf_config, .family = {.plan = plan, .names = gguf_all_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>, trunks, unused};

}  // namespace hyb::models::gemma3n
