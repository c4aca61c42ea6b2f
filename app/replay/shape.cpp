#include "app/replay/shape.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "app/model/embedded.h"
#include "app/runtime/model_outline.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "models/roofline.h"

namespace hyb::app {

std::int64_t ReplayShape::window_bytes() const {
  std::int64_t bytes = 0;
  for (const WindowLayers& layers : windows) bytes += layers.bytes();
  return bytes;
}

ReplayShape marconi_shape(const MarconiModel& model, double flops_per_second) {
  const std::int64_t d = model.width, n = model.state_dim;
  const std::int64_t ssm = model.ssm, attention = model.attention, mlp = model.mlp;
  const double width = model.width, state_dim = model.state_dim;
  const std::int64_t conv_bytes = ssm * (2 * d + 2 * n) * 8;

  ReplayShape shape;
  shape.name = "marconi-7b";
  shape.kv_bytes_per_token = attention * 4 * d;
  shape.state_bytes = ssm * 2 * d * n + conv_bytes;
  shape.state_bytes_int8 = ssm * (d * n + 2 * d) + conv_bytes;
  shape.conv_bytes = conv_bytes;
  shape.attention_layers = model.attention;
  shape.recurrent_layers = model.ssm;
  shape.flops.linear = model.attention * 8 * width * width + model.mlp * 16 * width * width +
                       model.ssm * (12 * width * width + 16 * width * state_dim + 10 * width);
  shape.flops.square = model.attention * 4 * width;
  shape.seconds = shape.flops / flops_per_second;
  // A transformer layer has 12 d^2 parameters (attention 4, mlp 8), an ssm layer 6 d^2.
  const std::int64_t transformer_layers = (6 * ssm + 4 * attention + 8 * mlp) / 12;
  shape.transformer_kv_bytes_per_token = transformer_layers * 4 * d;
  return shape;
}

std::span<const PublishedShape> published_shapes() {
  static constexpr PublishedShape table[] = {
      // name, recurrent layers, heads, rows, columns, conv channels, conv width,
      //       attention layers, kv elements, query heads, head dim, active parameters
      {"bamba-9b", 29, 128, 64, 128, 8448, 4, 3, 2048, 32, 128, 9.3e9},
      {"falcon-h1-0.5b", 36, 24, 64, 128, 1792, 4, 36, 256, 8, 64, 0.45e9},
      {"falcon-h1-1.5b", 24, 48, 64, 256, 3584, 4, 24, 512, 8, 128, 1.4e9},
      {"falcon-h1-3b", 32, 32, 128, 256, 4608, 4, 32, 512, 10, 128, 3.0e9},
      {"falcon-h1-7b", 44, 24, 128, 256, 3584, 4, 44, 512, 12, 128, 7.2e9},
      {"falcon-mamba-7b", 64, 8192, 1, 16, 8192, 4, 0, 0, 0, 0, 7.0e9},
      {"granite-4.0-h-1b", 36, 48, 64, 128, 3328, 4, 4, 1024, 12, 128, 1.3e9},
      {"granite-4.0-h-small", 36, 128, 64, 128, 8448, 4, 4, 2048, 32, 128, 9.0e9},
      {"jamba-1.5-large", 63, 16384, 1, 16, 16384, 4, 9, 2048, 64, 128, 94e9},
      {"jamba-1.5-mini", 28, 8192, 1, 16, 8192, 4, 4, 2048, 32, 128, 12e9},
      {"jamba-reasoning-3b", 26, 5120, 1, 16, 5120, 4, 2, 256, 20, 128, 2.9e9},
      {"kimi-linear-48b-a3b", 20, 32, 128, 128, 12288, 4, 7, 576, 32, 192, 3.0e9},
      {"mamba-codestral-7b", 64, 128, 64, 128, 10240, 4, 0, 0, 0, 0, 7.0e9},
      {"minimax-text-01", 70, 64, 128, 128, 0, 1, 10, 2048, 64, 128, 45.9e9},
      {"nemotron-3-nano-4b", 21, 96, 80, 128, 9728, 4, 4, 2048, 40, 128, 3.6e9},
      {"nemotron-3-super-120b-a12b", 40, 128, 64, 128, 10240, 4, 8, 512, 32, 128, 12e9},
      {"nemotron-h-8b", 24, 128, 64, 128, 10240, 4, 4, 2048, 32, 128, 7.6e9},
      {"nemotron-nano-9b-v2", 27, 128, 80, 128, 12288, 4, 4, 2048, 40, 128, 8.3e9},
      {"qwen3.5-0.8b", 18, 16, 128, 128, 6144, 4, 6, 1024, 8, 256, 0.6e9},
      {"qwen3.5-4b", 24, 32, 128, 128, 8192, 4, 8, 2048, 16, 256, 3.6e9},
      {"qwen3.5-9b", 24, 32, 128, 128, 8192, 4, 8, 2048, 16, 256, 8.0e9},
      {"qwen3.5-27b", 48, 48, 128, 128, 10240, 4, 16, 2048, 24, 256, 26e9},
      {"qwen3.5-35b-a3b", 30, 32, 128, 128, 8192, 4, 10, 1024, 16, 256, 3.0e9},
      {"qwen3.5-122b-a10b", 36, 64, 128, 128, 12288, 4, 12, 1024, 32, 256, 10e9},
      {"qwen3.5-397b-a17b", 45, 64, 128, 128, 12288, 4, 15, 1024, 32, 256, 17e9},
      {"zamba2-2.7b", 54, 80, 64, 64, 5248, 4, 9, 10240, 32, 160, 2.6e9},
      {"zamba2-7b", 81, 112, 64, 64, 7424, 4, 13, 14336, 32, 224, 7.2e9},
  };
  return table;
}

ReplayShape shape_of(const PublishedShape& published, double kv_element_bytes,
                     double state_element_bytes, double flops_per_second) {
  const std::int64_t layers = published.recurrent_layers;
  const std::int64_t matrix = std::int64_t{published.heads} * published.rows * published.columns;
  const std::int64_t conv = layers * published.conv_channels * (published.conv_width - 1) * 2;
  const double kv_elements =
      static_cast<double>(published.attention_layers) * static_cast<double>(published.kv_elements);
  ReplayShape shape = {
      .name = std::string(published.name),
      .kv_bytes_per_token = static_cast<std::int64_t>(kv_elements * kv_element_bytes),
      .state_bytes = conv + static_cast<std::int64_t>(static_cast<double>(layers * matrix) *
                                                      state_element_bytes),
      .state_bytes_int8 =
          conv + layers * (matrix + 2 * std::int64_t{published.heads} * published.rows),
      .conv_bytes = conv,
      .attention_layers = published.attention_layers,
      .recurrent_layers = published.recurrent_layers};
  // A multiplication and an addition per parameter, and half a square of scores and of values.
  shape.flops.linear = 2 * published.active_parameters + 6 * static_cast<double>(layers * matrix);
  shape.flops.square =
      2.0 * published.attention_layers * published.query_heads * published.head_dim;
  shape.seconds = shape.flops / flops_per_second;
  return shape;
}

namespace {

/// "name,key=value,key=value".
struct ShapeText {
  std::string name;
  std::map<std::string, std::int64_t> values;

  /// Moves the value of a key to `into` where there is one.
  template <typename T>
  void take(const char* key, T& into) {
    const auto found = values.find(key);
    if (found == values.end()) return;
    into = static_cast<T>(found->second);
    values.erase(found);
  }
};

ShapeText shape_text_of(const std::string& text) {
  constexpr std::int64_t value_max = std::int64_t{1} << 40;
  const std::vector<std::string_view> words = split(text, ',');
  ShapeText shape = {.name = std::string(words.front()), .values = {}};
  for (const std::string_view pair : std::span(words).subspan(1)) {
    const std::size_t equals = pair.find('=');
    const std::string_view number = equals == std::string_view::npos ? "" : pair.substr(equals + 1);
    const std::int64_t value = parse_number<std::int64_t>(number).value_or(-1);
    if (value < 0 || value > value_max) {
      throw Error(ErrorKind::usage,
                  fmt::format("--shape {}: an override is key=number, got \"{}\"", text, pair));
    }
    shape.values[std::string(pair.substr(0, equals))] = value;
  }
  return shape;
}

void refuse_rest(const ShapeText& text, std::string_view known) {
  if (text.values.empty()) return;
  throw Error(ErrorKind::usage, fmt::format("--shape {}: no override is called {}; there are {}",
                                            text.name, text.values.begin()->first, known));
}

ReplayShape parse_marconi(ShapeText text, const ShapeOptions& options) {
  MarconiModel model;
  text.take("ssm", model.ssm);
  text.take("attn", model.attention);
  text.take("mlp", model.mlp);
  text.take("d", model.width);
  text.take("d_state", model.state_dim);
  refuse_rest(text, "ssm, attn, mlp, d, d_state");
  constexpr std::int32_t count_max = 100000;
  for (const std::int32_t count :
       {model.ssm, model.attention, model.mlp, model.width, model.state_dim}) {
    if (count < 0 || count > count_max) {
      throw Error(ErrorKind::usage,
                  fmt::format("--shape marconi-7b: overrides are from 0 to {}", count_max));
    }
  }
  return marconi_shape(model, options.flops_per_second);
}

void add_attention(const models::Geometry& geometry, ReplayShape& shape) {
  for (const models::PageLayout& layer : geometry.pages) {
    if (layer.reach.kind == models::Reach::Kind::all) {
      ++shape.attention_layers;
      continue;
    }
    auto group = std::ranges::find(shape.windows, layer.reach, &WindowLayers::reach);
    if (group == shape.windows.end()) {
      group = shape.windows.insert(group, {.reach = layer.reach, .kv_bytes_per_token = 0});
    }
    group->kv_bytes_per_token += static_cast<std::int64_t>(layer.page_bytes) / geometry.page_tokens;
  }
}

ReplayShape shape_of_config(const std::string& name, const ShapeOptions& options,
                            const Environment& environment) {
  ModelOptions model;
  model.model = name;
  model.device = kernels::Device::cpu;  // no size depends on it
  model.types = {.activation = DType::bf16, .state = options.state_dtype};
  if (options.kv_dtype != DType::bf16) model.types.kv = options.kv_dtype;
  const ModelOutline outline = outline_of(resolve(model, environment));
  const models::Geometry& geometry = outline.geometry;
  ReplayShape shape = {
      .name = name,
      .kv_bytes_per_token = static_cast<std::int64_t>(geometry.kv_bytes_per_token),
      .state_bytes = static_cast<std::int64_t>(geometry.state_bytes_per_sequence),
      .state_bytes_int8 = static_cast<std::int64_t>(models::snapshot_layout(geometry).bytes),
      .recurrent_layers = static_cast<std::int32_t>(geometry.pieces.size())};
  add_attention(geometry, shape);
  for (const models::SlotPiece& piece : geometry.pieces) {
    shape.conv_bytes += static_cast<std::int64_t>(piece.conv_bytes);
  }
  shape.flops = models::Roofline(outline.plan, geometry).prefill();
  shape.seconds = shape.flops / options.flops_per_second;
  return shape;
}

bool is_embedded(const std::string& name) {
  const std::string path = "presets/" + name + "/config.json";
  const auto files = embedded_files();
  return std::any_of(files.begin(), files.end(),
                     [&](const EmbeddedFile& file) { return file.name == path; });
}

/// The path of a config.json means its folder.
std::string model_name(const std::string& name) {
  const std::string_view file = "config.json";
  if (!std::string_view(name).ends_with(file)) return name;
  const std::string folder = name.substr(0, name.size() - file.size());
  return folder.empty() ? "." : folder;
}

/// All the tokens of a trace times its bytes per token are a number of 64 bits.
void check_kv(const std::string& text, std::int64_t kv_bytes_per_token) {
  constexpr std::int64_t kv_max = std::int64_t{1} << 32;
  if (kv_bytes_per_token <= kv_max) return;
  throw Error(ErrorKind::usage, fmt::format("--shape {}: kv is at most {}", text, kv_max));
}

}  // namespace

ReplayShape parse_shape(const std::string& text, const ShapeOptions& options,
                        const Environment& environment) {
  ShapeText parts = shape_text_of(text);
  if (parts.name == "marconi-7b") return parse_marconi(std::move(parts), options);
  std::optional<ReplayShape> shape;
  if (!is_embedded(parts.name)) {
    for (const PublishedShape& published : published_shapes()) {
      if (published.name != parts.name) continue;
      const auto kv_bytes = static_cast<double>(size_of(options.kv_dtype));
      const double state_bytes = options.state_dtype == DType::bf16 ? 2 : 4;
      shape = shape_of(published, kv_bytes, state_bytes, options.flops_per_second);
    }
  }
  if (!shape) shape = shape_of_config(model_name(parts.name), options, environment);
  parts.take("kv", shape->kv_bytes_per_token);
  check_kv(text, shape->kv_bytes_per_token);
  parts.take("state", shape->state_bytes);
  parts.take("int8", shape->state_bytes_int8);
  refuse_rest(parts, "kv, state, int8");
  if ((shape->kv_bytes_per_token > 0) != (shape->attention_layers > 0) ||
      (shape->state_bytes > 0) != (shape->recurrent_layers > 0)) {
    throw Error(ErrorKind::usage,
                fmt::format("--shape {}: kv=0 and state=0 fit no model with such layers", text));
  }
  return *shape;
}

}  // namespace hyb::app
