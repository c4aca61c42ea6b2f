#include "models/families/common.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/io/file.h"
#include "kernels/floats.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/latent_attention.h"
#include "kernels/ops/moe_route.h"
#include "kernels/ops/s6.h"
#include "kernels/ops/ssd.h"

namespace hyb::models {
namespace {

constexpr std::int64_t width_max = dimension_range.high;

void demand_width(const Config& config, std::string_view what, std::int64_t width) {
  if (width > width_max) {
    config.fail(what,
                fmt::format("are {} channels together, at most {} make sense", width, width_max));
  }
}

/// The limits of the ops, checked before a weight is read.
void demand_at_most(const Config& config, std::string_view what, std::int64_t value,
                    std::int64_t most) {
  if (value <= most) return;
  config.fail(what, fmt::format("is {}, at most {} is supported", value, most));
}

void refuse_layer_values(const Config& config) {
  if (!config.has(layer_values_key)) return;
  for (const auto& [layer, own] : config.objects(layer_values_key)) {
    if (own.keys().empty()) continue;
    config.fail(
        layer_values_key,
        fmt::format("layer {} has values of its own, which is not supported", quote_name(layer)));
  }
}

/// Counts positions as servers do: yarn's recipes leave max_position_embeddings as it was, and all
/// that it stretches to counts.
std::int32_t read_positions(const Config& config) {
  const std::int32_t stated = config.i("max_position_embeddings", 0, count_range);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const std::optional<Config> rope = config.object(key);
    if (!rope || !rope->is_text({"rope_type", "type"}, "yarn")) continue;
    const double reached =
        rope->f("original_max_position_embeddings", 0.0) * rope->f("factor", 0.0);
    return std::max(stated,
                    static_cast<std::int32_t>(std::clamp(reached, 0.0, double{count_range.high})));
  }
  return stated;
}

/// GPTQ's files have less than the zero points, by this much: its first packer wrote them so.
std::int32_t zeros_below(const Config& config) {
  const std::optional<Config> quantization = config.quantization();
  if (!quantization) return 0;
  return quantization->is_text("checkpoint_format", "gptq_v2") ? 0 : 1;
}

bool reorders_columns(const Config& config) {
  const std::optional<Config> quantization = config.quantization();
  return quantization && quantization->is_text("quant_method", "gptq") &&
         quantization->b("desc_act", false) && !quantization->b("static_groups", false);
}

}  // namespace

Plan read_plan(const Config& config, const Keys& norm_eps) {
  refuse_quantized(config);
  refuse_layer_values(config);
  return {.family = config.model_type(),
          .vocab = config.i("vocab_size"),
          .width = config.i("hidden_size"),
          .norm_eps = read_norm_eps(config, norm_eps),
          .tied_head = config.b("tie_word_embeddings", false),
          .weight_dtype = config.dtype({"dtype", "torch_dtype"}, DType::bf16),
          .positions_max = read_positions(config),
          .zeros_below = zeros_below(config),
          .reorders_columns = reorders_columns(config),
          .layers = {}};
}

std::int32_t layer_count(const Config& config) {
  return config.i("num_hidden_layers", IntRange{1, 4096});
}

std::vector<MixerKind> mixer_kinds(const Config& config,
                                   std::initializer_list<std::string_view> recurrent) {
  const std::string_view key = config.has("layers_block_type") && !config.has("layer_types")
                                   ? "layers_block_type"
                                   : "layer_types";
  const std::vector<std::string> names = config.strings(Keys{key});
  const auto layers = static_cast<std::size_t>(layer_count(config));
  if (names.size() != layers) {
    config.fail(key, fmt::format("has {} entries, num_hidden_layers is {}", names.size(), layers));
  }
  std::vector<MixerKind> kinds;
  for (const std::string& name : names) {
    if (std::find(recurrent.begin(), recurrent.end(), name) != recurrent.end()) {
      kinds.push_back(MixerKind::recurrent);
    } else if (name == "attention" || name == "full_attention") {
      kinds.push_back(MixerKind::attention);
    } else {
      config.fail(key, fmt::format("entry {}: {} is not a known kind of layer", kinds.size(),
                                   quote_name(name)));
    }
  }
  return kinds;
}

std::vector<std::int32_t> layer_windows(const Config& config, std::int32_t fallback,
                                        const std::function<bool(std::int32_t layer)>& is_full) {
  std::vector<bool> full;
  if (config.has("layer_types")) {
    for (const MixerKind kind : mixer_kinds(config, {"sliding_attention"})) {
      full.push_back(kind == MixerKind::attention);
    }
  } else {
    for (std::int32_t i = 0; i < layer_count(config); ++i) full.push_back(is_full(i));
  }
  const bool has_windows = std::ranges::find(full, false) != full.end();
  if (has_windows && config.is_null("sliding_window")) {
    config.fail("sliding_window", "is null, but layers have windows");
  }
  const std::int32_t window = has_windows ? config.i("sliding_window", fallback) : 0;
  std::vector<std::int32_t> windows;
  for (const bool sees_all : full) windows.push_back(sees_all ? 0 : window);
  return windows;
}

std::vector<bool> read_rope_layers(const Config& c) {
  const auto layers = static_cast<std::size_t>(layer_count(c));
  std::vector<bool> turning;
  if (c.has("no_rope_layers")) {
    for (const std::int32_t value : c.integers("no_rope_layers", {0, 1})) {
      turning.push_back(value == 1);
    }
  }
  if (turning.empty()) {
    const std::int32_t interval = c.i("no_rope_layer_interval", 4);
    for (std::size_t i = 1; i <= layers; ++i) {
      turning.push_back(i % static_cast<std::size_t>(interval) != 0);
    }
  }
  if (turning.size() != layers) {
    c.fail("no_rope_layers",
           fmt::format("has {} entries, num_hidden_layers is {}", turning.size(), layers));
  }
  return turning;
}

std::vector<std::int32_t> read_kv_sources(const Config& c, const std::vector<std::int32_t>& windows,
                                          std::int32_t fallback) {
  const auto layers = static_cast<std::int32_t>(windows.size());
  constexpr const char* key = "num_kv_shared_layers";
  const std::int32_t own = layers - c.i(key, fallback, {0, layers - 1});
  std::vector<std::int32_t> sources(windows.size(), -1);
  for (std::int32_t i = own; i < layers; ++i) {
    std::int32_t source = own - 1;
    const auto window_of = [&](std::int32_t layer) {
      return windows[static_cast<std::size_t>(layer)];
    };
    while (source >= 0 && window_of(source) != window_of(i)) --source;
    if (source < 0) c.fail(key, fmt::format("leaves layer {} no layer of its kind to read", i));
    sources[static_cast<std::size_t>(i)] = source;
  }
  return sources;
}

std::vector<bool> layers_at(const Config& config, std::string_view key) {
  const std::int32_t layers = layer_count(config);
  std::vector<bool> named(static_cast<std::size_t>(layers), false);
  if (!config.has(Keys{key})) return named;
  for (const std::int32_t layer : config.integers(Keys{key}, {0, layers - 1})) {
    named[static_cast<std::size_t>(layer)] = true;
  }
  return named;
}

std::vector<MixerKind> mixer_kinds_at(const Config& config, std::string_view key) {
  std::vector<MixerKind> kinds;
  for (const bool is_named : layers_at(config, key)) {
    kinds.push_back(is_named ? MixerKind::attention : MixerKind::recurrent);
  }
  return kinds;
}

std::vector<bool> sparse_layers(const Config& config) {
  const std::int32_t step = config.i("decoder_sparse_step", 1);
  const bool has_experts = config.i(expert_count_keys, IntRange{0, 8192}) > 0;
  std::vector<bool> sparse = layers_at(config, "mlp_only_layers");
  for (std::int32_t layer = 0; layer < std::ssize(sparse); ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    sparse[i] = has_experts && !sparse[i] && (layer + 1) % step == 0;
  }
  return sparse;
}

std::vector<bool> sparse_mlp_types(const Config& config) {
  constexpr const char* key = "mlp_layer_types";
  const auto layers = static_cast<std::size_t>(layer_count(config));
  if (!config.has(key)) return std::vector<bool>(layers, true);
  std::vector<bool> sparse;
  for (const std::string& name : config.strings(key)) {
    if (name != "dense" && name != "sparse") {
      config.fail(key, fmt::format("entry {}: {} is not known, only dense and sparse",
                                   sparse.size(), quote_name(name)));
    }
    sparse.push_back(name == "sparse");
  }
  if (sparse.size() != layers) {
    config.fail(key, fmt::format("has {} entries, num_hidden_layers is {}", sparse.size(), layers));
  }
  return sparse;
}

Moe read_qwen_experts(const Config& config, bool norm_fallback) {
  const Moe moe = {
      .experts = config.i(expert_count_keys, IntRange{1, 8192}),
      .active = config.i("num_experts_per_tok"),
      .hidden = config.i("moe_intermediate_size"),
      .score = RouterScore::softmax,
      .renormalize = config.b("norm_topk_prob", norm_fallback),
  };
  check(config, moe);
  return moe;
}

float read_norm_eps(const Config& config, const Keys& keys) {
  const double eps = config.f(keys);
  if (eps <= 0 || eps > 1) {
    config.fail(keys.spellings.front(), fmt::format("must be above 0 and at most 1, is {}", eps));
  }
  return static_cast<float>(eps);
}

DType read_state_dtype(const Config& config, std::string_view key) {
  const DType dtype = config.dtype(Keys{key}, DType::f32);
  if (dtype != DType::f32 && dtype != DType::bf16) {
    config.fail(key, fmt::format("{} is not supported, only float32 and bfloat16", name_of(dtype)));
  }
  return dtype;
}

void demand_flag(const Config& config, std::string_view key, bool supported) {
  if (config.b(Keys{key}, supported) == supported) return;
  config.fail(key, fmt::format("{} is not supported, only {}", !supported, supported));
}

void demand(const Config& config, std::string_view key, std::string_view supported) {
  const std::string value = config.s(Keys{key}, supported);
  if (value == supported) return;
  config.fail(key, fmt::format("{} is not supported, only {}", quote_name(value), supported));
}

void demand_absent(const Config& config, std::string_view key) {
  if (config.has(Keys{key})) config.fail(key, "is not supported, only null");
}

void demand_multiple(const Config& config, std::string_view key, std::int64_t value,
                     std::string_view divisor_key, std::int64_t divisor) {
  if (value % divisor == 0) return;
  config.fail(key,
              fmt::format("{} is not a multiple of {}, which is {}", value, divisor_key, divisor));
}

std::int32_t read_head_dim(const Config& config) {
  if (config.has("head_dim")) return config.i("head_dim");
  const std::int32_t width = config.i("hidden_size");
  const std::int32_t heads = config.i("num_attention_heads");
  demand_multiple(config, "hidden_size", width, "num_attention_heads", heads);
  return width / heads;
}

Attention read_attention(const Config& config, std::int32_t head_dim) {
  const std::int32_t heads = config.i("num_attention_heads");
  const Attention attention = {.heads = heads,
                               .kv_heads = config.i("num_key_value_heads", heads),
                               .head_dim = head_dim,
                               .scale = static_cast<float>(1.0 / std::sqrt(head_dim)),
                               .rope = {},
                               .qk_norm = {}};
  check(config, attention);
  return attention;
}

std::int32_t read_step_rank(const Config& config, std::string_view key) {
  if (config.has(Keys{key}) && !config.is_text(Keys{key}, "auto")) return config.i(Keys{key});
  return (config.i("hidden_size") + 15) / 16;
}

void read_time_step_limit(const Config& config, const Keys& keys, Ssd& ssd) {
  for (const std::string_view key : keys.spellings) {
    if (!config.has(Keys{key})) continue;
    const std::vector<double> limit = config.numbers(Keys{key});
    if (limit.size() != 2 || std::isnan(limit[0]) || limit[0] < 0 || limit[0] > limit[1]) {
      config.fail(key, "must be two numbers, 0 or more, in rising order");
    }
    ssd.shape.dt_min = static_cast<float>(limit[0]);
    ssd.shape.dt_max = static_cast<float>(limit[1]);
    return;
  }
}

double read_factor(const Config& config, std::string_view key) {
  const double factor = config.f(Keys{key}, 1.0);
  if (factor <= 0) config.fail(key, fmt::format("must be above 0, is {}", factor));
  return factor;
}

float read_cap(const Config& config, std::string_view key, double fallback) {
  if (config.is_null(key)) return 0.0F;
  const double cap = config.f(Keys{key}, fallback);
  if (config.has(Keys{key}) && cap <= 0) {
    config.fail(key, fmt::format("must be above 0 (null: no limit), is {}", cap));
  }
  return static_cast<float>(cap);
}

void read_granite_factors(const Config& c, Plan& plan, Attention& attention) {
  plan.embedding_scale = static_cast<float>(read_factor(c, "embedding_multiplier"));
  plan.logits_scale = static_cast<float>(1.0 / read_factor(c, "logits_scaling"));
  attention.scale = static_cast<float>(read_factor(c, "attention_multiplier"));
  attention.output_scale = static_cast<float>(read_factor(c, "residual_multiplier"));
}

std::vector<Layer> llama_layers(const Config& c, const Attention& attention) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "attention_bias", false);
  demand_flag(c, "mlp_bias", false);
  const Mlp mlp = {.hidden = c.i("intermediate_size"), .output_scale = attention.output_scale};
  const Layer layer = {{{.parts = {attention}}, {.parts = {mlp}}}};
  return std::vector<Layer>(static_cast<std::size_t>(layer_count(c)), layer);
}

MambaChannels expanded_channels(const Config& config, std::int32_t width) {
  return {std::int64_t{width} * config.i("mamba_expand", 2, {1, 64}), "mamba_expand x hidden_size"};
}

Ssd read_mamba(const Config& c, const MambaChannels& inner) {
  const std::int32_t heads = c.i("mamba_n_heads");
  demand_multiple(c, inner.key, inner.count, "mamba_n_heads", heads);
  const auto automatic = static_cast<std::int32_t>(inner.count / heads);
  const std::int32_t head_dim = c.is_text("mamba_d_head", "auto") ? automatic : c.i("mamba_d_head");
  if (head_dim != automatic) {
    c.fail("mamba_d_head",
           fmt::format("is {}, but {} / mamba_n_heads is {}", head_dim, inner.key, automatic));
  }
  Ssd ssd = {.heads = heads,
             .head_dim = head_dim,
             .state_dim = c.i("mamba_d_state"),
             .shape = {.groups = c.i("mamba_n_groups", 1)},
             .conv_width = c.i("mamba_d_conv", 4, {2, 4}),
             .conv_bias = c.b("mamba_conv_bias", true)};
  // transformers 5 and mamba_ssm do this; transformers 4.x took all channels as one group. Every
  // published checkpoint has one group, where both are the same.
  ssd.norm_groups = ssd.shape.groups;
  read_time_step_limit(c, "time_step_limit", ssd);
  check(c, ssd);
  return ssd;
}

void check(const Config& config, const Attention& attention) {
  demand_multiple(config, "num_attention_heads", attention.heads, "num_key_value_heads",
                  attention.kv_heads);
  demand_width(config, "num_attention_heads x head_dim",
               std::int64_t{attention.heads} * attention.head_dim);
  demand_at_most(config, "head_dim", attention.head_dim, kernels::attention_head_dim_max);
  if (attention.head_dim % 2 != 0) {
    config.fail("head_dim", fmt::format("must be even, is {}", attention.head_dim));
  }
}

void check(const Config& config, const Lightning& lightning, bool any_heads) {
  if (!any_heads && !std::has_single_bit(static_cast<std::uint32_t>(lightning.heads))) {
    config.fail("num_attention_heads", fmt::format("{} is not supported, only powers of two, whose "
                                                   "rates follow one rule",
                                                   lightning.heads));
  }
  if (lightning.head_dim > kernels::ssd_columns_max) {
    config.fail("head_dim", fmt::format("is {}, at most {} is supported by lightning attention",
                                        lightning.head_dim, kernels::ssd_columns_max));
  }
  if (!std::isfinite(lightning.pace)) {
    config.fail("num_hidden_layers", "is 1, at least 2 are supported with lightning attention");
  }
}

void check(const Config& config, const Ssd& ssd) {
  demand_multiple(config, "number of mamba heads", ssd.heads, "the number of groups",
                  ssd.shape.groups);
  const std::int64_t inner = std::int64_t{ssd.heads} * ssd.head_dim;
  demand_width(config, "mamba heads x head dim", inner);
  demand_width(config, "mamba groups x state size", std::int64_t{ssd.shape.groups} * ssd.state_dim);
  demand_multiple(config, "mamba heads x head dim", inner, "the number of groups of its norm",
                  ssd.norm_groups);
  demand_at_most(config, "mamba state size", ssd.state_dim, kernels::ssd_columns_max);
}

void check(const Config& config, const DeltaNet& delta) {
  demand_at_most(config, "linear_key_head_dim", delta.key_dim, kernels::delta_rule_columns_max);
  demand_at_most(config, "linear_value_head_dim", delta.value_dim, kernels::delta_rule_columns_max);
  demand_multiple(config, "linear_num_value_heads", delta.value_heads, "linear_num_key_heads",
                  delta.shape.key_heads);
  demand_width(config, "linear key heads x key dim",
               std::int64_t{delta.shape.key_heads} * delta.key_dim);
  demand_width(config, "linear value heads x value dim",
               std::int64_t{delta.value_heads} * delta.value_dim);
}

void check(const Config& config, const S6& s6) {
  demand_width(config, "channels of Mamba-1", s6.channels);
  demand_width(config, "channels x states of Mamba-1", std::int64_t{s6.channels} * s6.state_dim);
  demand_width(config, "rank of Mamba-1's time steps", s6.dt_rank);
  demand_at_most(config, "states of Mamba-1", s6.state_dim, kernels::s6_columns_max);
}

/// Each head has weights of its own.
constexpr std::int32_t mla_heads_max = 1024;

void check(const Config& config, const Mla& mla) {
  demand_at_most(config, "kv_lora_rank + qk_rope_head_dim", mla.row_width(),
                 kernels::latent_width_max);
  demand_at_most(config, "num_attention_heads", mla.heads, mla_heads_max);
  for (const std::int64_t width : {mla.latents(), mla.queries(), mla.values()}) {
    demand_width(config, "num_attention_heads x what each has", width);
  }
  if (mla.turned_width % 2 != 0) {
    config.fail("qk_rope_head_dim", fmt::format("must be even, is {}", mla.turned_width));
  }
}

void check(const Config& config, const Moe& moe) {
  demand_multiple(config, "number of experts", moe.experts, "n_group", moe.groups);
  demand_at_most(config, "number of experts", moe.experts, kernels::route_experts_max);
  demand_at_most(config, "n_group", moe.groups, kernels::route_groups_max);
  if (moe.groups > 1 && moe.experts / moe.groups < 2) {
    config.fail("n_group", "leaves groups of one expert; they need two or more");
  }
  if (moe.active_groups > moe.groups) {
    config.fail("topk_group", fmt::format("is {}, n_group is {}", moe.active_groups, moe.groups));
  }
  const std::int32_t eligible = moe.experts / moe.groups * moe.active_groups;
  if (moe.active > eligible) {
    config.fail("num_experts_per_tok",
                fmt::format("is {}, only {} experts can be chosen", moe.active, eligible));
  }
}

namespace {

constexpr const char* advice =
    "use a folder of this model in bf16, FP8, NVFP4, compressed-tensors, AWQ or GPTQ, or a GGUF "
    "file";

[[noreturn]] void refuse(const Config& quantization, std::string_view key,
                         const std::string& format) {
  quantization.fail(key, fmt::format("weights quantised by {} are not supported; {}",
                                     quote_name(format), advice));
}

void check_blocks(const Config& quantization) {
  constexpr const char* key = "weight_block_size";
  if (!quantization.has(key)) return;
  const std::vector<double> sizes = quantization.numbers(key);
  if (sizes == std::vector<double>{128, 128}) return;
  if (sizes.size() != 2) quantization.fail(key, fmt::format("has {} sizes, not 2", sizes.size()));
  refuse(quantization, key, fmt::format("fp8 in blocks of {}", fmt::join(sizes, " x ")));
}

bool is_read(const std::string& algorithm) {
  return algorithm == "FP8" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN" || algorithm == "NVFP4" ||
         algorithm == "W4A16_NVFP4";
}

/// Whole numbers of another size are refused by name; the tensors' shapes decide.
void check_bits(const Config& config, const Keys& keys, std::int32_t read, const char* method) {
  const std::int32_t bits = config.i(keys, read);
  if (bits != read) refuse(config, keys.spellings.front(), fmt::format("{}-bit {}", bits, method));
}

void check_compressed_group(const Config& group, const std::string& format) {
  const bool is_packed = format == "pack-quantized", is_int8 = format == "int-quantized";
  if (format == "float-quantized" || format == "nvfp4-pack-quantized") return;
  if (!is_packed && !is_int8) refuse(group, "format", "compressed-tensors " + format);
  const std::optional<Config> weights = group.object("weights");
  if (!weights) return;
  const bool is_wide = is_int8 || weights->i("num_bits", 4) == 8;
  check_bits(*weights, "num_bits", is_wide ? 8 : 4, "compressed-tensors");
}

void check_gptq(const Config& quantization) {
  check_bits(quantization, "bits", 4, "GPTQ");
  const std::string format = quantization.s("checkpoint_format", "gptq");
  if (!format.starts_with("gptq")) refuse(quantization, "checkpoint_format", "gptq " + format);
}

void check_awq(const Config& quantization) {
  check_bits(quantization, {"bits", "w_bit"}, 4, "AWQ");
  const std::string version = quantization.s("version", "gemm");
  if (version != "gemm" && version != "GEMM") refuse(quantization, "version", "awq " + version);
}

/// AutoRound writes what GPTQ or AWQ would.
void check_auto_round(const Config& quantization) {
  check_bits(quantization, "bits", 4, "AutoRound");
  const std::string packing = quantization.s("packing_format", "unknown");
  if (packing != "auto_round:auto_gptq" && packing != "auto_round:auto_awq") {
    refuse(quantization, "packing_format", "auto-round " + packing);
  }
}

void check_layers(const Config& quantization) {
  constexpr const char* key = "quantized_layers";
  for (const auto& [layer, how] : quantization.objects(key)) {
    const std::string algorithm = how.s("quant_algo", "NONE");
    if (algorithm == "NONE" || is_read(algorithm)) continue;
    quantization.fail(key, fmt::format("{} is quantised by {}, which is not supported; {}",
                                       quote_name(layer), quote_name(algorithm), advice));
  }
}

void check_modelopt(const Config& quantization) {
  constexpr const char* key = "quant_algo";
  if (quantization.is_null(key)) return;  // keys and values alone are quantised
  const std::string algorithm = quantization.s(key, "unknown");
  if (algorithm == "MIXED_PRECISION") return check_layers(quantization);
  if (!is_read(algorithm)) refuse(quantization, key, "modelopt " + algorithm);
}

void check_compressed_tensors(const Config& quantization) {
  const std::string format = quantization.s("format", "unknown");
  const auto groups = quantization.has("config_groups") ? quantization.objects("config_groups")
                                                        : decltype(quantization.objects("")){};
  if (groups.empty()) return check_compressed_group(quantization, format);
  for (const auto& [name, group] : groups) {
    check_compressed_group(group, group.s("format", format));
  }
}

}  // namespace

void refuse_quantized(const Config& config) {
  const std::optional<Config> quantization = config.quantization();
  if (!quantization || config.assumes_quantization()) return;
  const std::string method = quantization->s("quant_method", "unknown");
  if (method == "fp8") return check_blocks(*quantization);
  // Only gpt-oss stores it as this method says: experts in _blocks and _scales.
  if (method == "mxfp4" && config.model_type() == "gpt_oss") return;
  if (method == "modelopt") return check_modelopt(*quantization);
  if (method == "compressed-tensors") return check_compressed_tensors(*quantization);
  if (method == "gptq") return check_gptq(*quantization);
  if (method == "awq") return check_awq(*quantization);
  if (method == "auto-round") return check_auto_round(*quantization);
  const bool is_mlx = method == "unknown" && quantization->has("bits");
  refuse(*quantization, "quant_method", is_mlx ? "MLX" : method);
}

void refuse_words(const Config& config) {
  const std::optional<Config> quantization = config.quantization();
  if (!quantization) return;
  const std::string method = quantization->s("quant_method", "unknown");
  if (method == "gptq" || method == "awq" || method == "auto-round") {
    refuse(*quantization, "quant_method", method);
  }
}

}  // namespace hyb::models
