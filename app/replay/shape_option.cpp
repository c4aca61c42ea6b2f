#include "app/replay/shape_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "app/embedded.h"
#include "app/model_outline.h"
#include "app/replay/published_shapes.h"
#include "core/base/error.h"
#include "core/replay/marconi_shape.h"
#include "models/roofline.h"

namespace hyb::app {
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

ShapeText split(const std::string& text) {
  constexpr std::int64_t value_max = std::int64_t{1} << 40;
  std::size_t end = std::min(text.find(','), text.size());
  ShapeText shape = {.name = text.substr(0, end), .values = {}};
  while (end < text.size()) {
    const std::size_t begin = end + 1;
    end = std::min(text.find(',', begin), text.size());
    const std::string pair = text.substr(begin, end - begin);
    const std::size_t equals = pair.find('=');
    std::int64_t value = -1;
    const char* last = pair.data() + pair.size();
    if (equals != std::string::npos) {
      const auto read = std::from_chars(pair.data() + equals + 1, last, value);
      if (read.ec != std::errc() || read.ptr != last) value = -1;
    }
    if (value < 0 || value > value_max) {
      throw Error(ErrorKind::usage,
                  fmt::format("--shape {}: an override is key=number, got \"{}\"", text, pair));
    }
    shape.values[pair.substr(0, equals)] = value;
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

DType kv_dtype_of(const std::string& name) {
  return name == "f32" ? DType::f32 : name == "fp8" ? DType::f8_e4m3 : DType::bf16;
}

ReplayShape shape_of_config(const std::string& name, const ShapeOptions& options,
                            const Environment& environment) {
  ModelOptions model;
  model.dtype = "bf16";
  model.state_dtype = options.state_dtype;
  const ModelOutline outline = outline_of(ModelSource::find(name, environment), model);
  models::GeometryOptions sizes = outline.sizes;
  sizes.kv = kv_dtype_of(options.kv_dtype);
  const models::Geometry geometry = models::geometry_of(outline.plan, sizes);
  ReplayShape shape = {
      .name = name,
      .kv_bytes_per_token = static_cast<std::int64_t>(geometry.kv_bytes_per_token),
      .state_bytes = static_cast<std::int64_t>(geometry.state_bytes_per_sequence),
      .state_bytes_int8 = static_cast<std::int64_t>(models::snapshot_layout(geometry).bytes),
      .attention_layers = static_cast<std::int32_t>(geometry.pages.size()),
      .recurrent_layers = static_cast<std::int32_t>(geometry.pieces.size())};
  for (const models::SlotPiece& piece : geometry.pieces) {
    shape.conv_bytes += static_cast<std::int64_t>(piece.conv_bytes);
  }
  const models::PrefillFlops flops =
      models::Roofline(outline.plan, *outline.family, geometry).prefill();
  shape.flops = {.linear = flops.linear, .square = flops.square};
  shape.seconds = {shape.flops.linear / options.flops_per_second,
                   shape.flops.square / options.flops_per_second};
  return shape;
}

bool is_embedded(const std::string& name) {
  const std::string path = "presets/" + name + "/config.json";
  const auto files = embedded_files();
  return std::any_of(files.begin(), files.end(),
                     [&](const EmbeddedFile& file) { return file.name == path; });
}

/// The name of a config.json stands for the folder that it is in.
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
  ShapeText parts = split(text);
  if (parts.name == "marconi-7b") return parse_marconi(std::move(parts), options);
  std::optional<ReplayShape> shape;
  if (!is_embedded(parts.name)) {
    for (const PublishedShape& published : published_shapes()) {
      if (published.name != parts.name) continue;
      const auto kv_bytes = static_cast<double>(size_of(kv_dtype_of(options.kv_dtype)));
      const double state_bytes = options.state_dtype == "bf16" ? 2 : 4;
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
