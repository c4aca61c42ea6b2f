#include "models/roofline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/base/error.h"
#include "models/weight_index.h"

namespace hyb::models {
namespace {

constexpr std::int64_t ssd_chunk = 128;
constexpr std::int64_t delta_chunk = 64;

bool is_routed(const RequiredWeight& weight) {
  constexpr std::array<std::string_view, 2> fused = {"moe.gate_up", "moe.down"};
  return weight.key.expert >= 0 ||
         std::find(fused.begin(), fused.end(), weight.key.role) != fused.end();
}

std::int64_t count_of(const RequiredWeight& weight) {
  std::int64_t count = 1;
  for (const std::int64_t dimension : weight.shape) count *= dimension;
  return count;
}

/// The mixture of experts of a layer that has one.
const Moe& moe_of(const Layer& layer) {
  for (const Block& block : layer.blocks) {
    for (const Part& part : block.parts) {
      if (const auto* moe = std::get_if<Moe>(&part)) return *moe;
    }
  }
  throw Error(ErrorKind::runtime, "roofline: experts in a layer without a mixture of experts");
}

/// Bytes of a parameter.
double bytes_of(const LoadOptions& load, kernels::Quantize quantize) {
  if (quantize == kernels::Quantize::q4) return 4.5 / 8;
  if (quantize == kernels::Quantize::q8) return 8.5 / 8;
  return static_cast<double>(size_of(load.activation));
}

}  // namespace

Work& Work::operator+=(const Work& more) {
  bytes += more.bytes;
  flops += more.flops;
  return *this;
}

Roofline::Roofline(const Plan& plan, const Family& family, const Geometry& geometry)
    : weight_bytes_(bytes_of(geometry.load, geometry.load.quantize)),
      head_bytes_(bytes_of(geometry.load, head_quantize(geometry.load))),
      head_parameters_(std::int64_t{plan.vocab} * plan.width),
      kv_bytes_per_token_(static_cast<double>(geometry.kv_bytes_per_token)) {
  count_weights(plan, family);
  count_fp8(geometry.load);
  for (const SlotPiece& piece : geometry.pieces) {
    state_bytes_ += static_cast<double>(piece.state_bytes);
    window_bytes_ += static_cast<double>(piece.conv_bytes);
  }
  plan.visit_parts([this](const auto& part) { add_part(part); });
}

void Roofline::count_weights(const Plan& plan, const Family& family) {
  std::map<std::int32_t, std::int64_t> routed;  // by layer
  for (const RequiredWeight& weight : required_weights(plan, family)) {
    if (weight.key.role == "embed" || weight.key.role == "head") continue;
    (is_routed(weight) ? routed[weight.key.layer] : fixed_parameters_) += count_of(weight);
  }
  for (const auto& [layer, parameters] : routed) {
    const Moe& moe = moe_of(plan.layers[static_cast<std::size_t>(layer)]);
    experts_.push_back({.parameters = static_cast<double>(parameters),
                        .experts = moe.experts,
                        .active = moe.active});
    routed_active_ += parameters / moe.experts * moe.active;
  }
}

/// What is published as F8_E4M3 counts as that, spread over all weights.
void Roofline::count_fp8(const LoadOptions& load) {
  constexpr double fp8_bytes = 1 + 4.0 / 128;
  if (load.activation != DType::bf16 || load.quantize == kernels::Quantize::q4) return;
  auto all = static_cast<double>(fixed_parameters_);
  for (const Experts& layer : experts_) all += layer.parameters;
  const double share = all > 0 ? std::min(1.0, static_cast<double>(load.fp8_parameters) / all) : 0;
  weight_bytes_ += share * (fp8_bytes - weight_bytes_);
}

void Roofline::add_part(const Attention& part) {
  attention_width_ += static_cast<double>(part.heads) * part.head_dim;
}

void Roofline::add_part(const Ssd& part) {
  const double groups = part.groups;
  const double states = part.state_dim;
  ssd_flops_per_chunk_ += 2 * groups * states + 2.0 * part.inner();
  state_flops_ += 4.0 * part.inner() * states;
}

void Roofline::add_part(const DeltaNet& part) {
  const double heads = part.value_heads;
  const double keys = part.key_dim;
  const double values = part.value_dim;
  delta_flops_per_chunk_ += 2 * heads * (3 * keys + 2 * values);
  state_flops_ += 6 * heads * keys * values;
}

double Roofline::experts_touched(double tokens) const {
  double parameters = 0;
  for (const Experts& layer : experts_) {
    const double missed = std::pow(1.0 - static_cast<double>(layer.active) / layer.experts, tokens);
    parameters += layer.parameters * (1.0 - missed);
  }
  return parameters;
}

/// Without the weights' bytes, which all spans of a step share.
Work Roofline::spans(const StepShape& shape) const {
  const auto sequences = static_cast<double>(shape.sequences);
  const auto length = static_cast<double>(shape.tokens);
  const auto position = static_cast<double>(shape.position);
  const auto rows = sequences * static_cast<double>(shape.rows);
  const double tokens = sequences * length;

  const double per_sequence = 2 * state_bytes_ + window_bytes_ + kv_bytes_per_token_ * position;
  const auto active = static_cast<double>(active_parameters());
  const auto head = static_cast<double>(head_parameters_);
  const double recurrent =
      state_flops_ + ssd_flops_per_chunk_ * static_cast<double>(std::min(shape.tokens, ssd_chunk)) +
      delta_flops_per_chunk_ * static_cast<double>(std::min(shape.tokens, delta_chunk));
  const double attention =
      4 * attention_width_ * sequences * (length * position + length * length / 2);
  return {.bytes = sequences * per_sequence,
          .flops = 2 * active * tokens + 2 * head * rows + recurrent * tokens + attention};
}

Work Roofline::step(std::span<const StepShape> shapes) const {
  Work work;
  std::int64_t tokens = 0, rows = 0;
  for (const StepShape& shape : shapes) {
    work += spans(shape);
    tokens += shape.sequences * shape.tokens;
    rows += shape.sequences * shape.rows;
  }
  const double parameters =
      static_cast<double>(fixed_parameters_) + experts_touched(static_cast<double>(tokens));
  work.bytes += parameters * weight_bytes_;
  if (rows > 0) work.bytes += static_cast<double>(head_parameters_) * head_bytes_;
  return work;
}

PrefillFlops Roofline::prefill() const {
  constexpr double l = 8192;
  const double once = step({.tokens = 8192, .rows = 0}).flops;
  const double twice = step({.tokens = 16384, .rows = 0}).flops;
  const double square = (twice - 2 * once) / (2 * l * l);
  return {.linear = once / l - square * l, .square = square};
}

}  // namespace hyb::models
