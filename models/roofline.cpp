#include "models/roofline.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "models/parts/weight_visitor.h"

namespace hyb::models {
namespace {

/// Counts the parameters that it is shown, those of routed experts separately.
class ParameterCounter : public WeightVisitor {
 public:
  std::int64_t fixed = 0, routed = 0;

  kernels::Weight pack(const MatrixRows&, Packing) override { return {}; }
  bool pack_alike(const MatrixRows&, Packing, const MatrixRows&, Packing) override { return true; }

 private:
  kernels::WeightSource numbers(const Matrix& matrix) override {
    const bool is_routed = matrix.experts > 0 || matrix.expert >= 0;
    (is_routed ? routed : fixed) +=
        std::max<std::int64_t>(matrix.experts, 1) * matrix.rows * matrix.columns;
    return WeightVisitor::numbers(matrix);
  }

  float* visit_small(std::span<const Small> tensors) override {
    for (const Small& tensor : tensors) fixed += tensor.count();
    return nullptr;
  }
};

/// Bytes of a parameter.
double bytes_of(const LoadOptions& load, kernels::Quantize quantize) {
  if (quantize == kernels::Quantize::q4) return 4.5 / 8;
  if (quantize == kernels::Quantize::q8) return 8.5 / 8;
  if (quantize == kernels::Quantize::bits12) return 12.0 / 8;
  const auto plain = static_cast<double>(size_of(load.activation));
  return load.activation == DType::f32 ? plain - 2 * load.f16_share : plain;
}

/// The streams' projections, and in every layer router, coefficients, a norm and a scale.
std::int64_t altup_parameters(const AltUp& altup, const Plan& plan) {
  const std::int64_t streams = altup.streams, width = plan.width;
  const std::int64_t layer = (streams + 2) * width + (streams + 1) * streams * streams;
  return 2 * (streams - 1) * width * width + std::ssize(plan.layers) * layer;
}

}  // namespace

Work& Work::operator+=(const Work& more) {
  bytes += more.bytes;
  flops += more.flops;
  return *this;
}

Roofline::Roofline(const Plan& plan, const Geometry& geometry)
    : weight_bytes_(bytes_of(geometry.load, linear_quantize(geometry.load))),
      head_bytes_(bytes_of(geometry.load, head_quantize(geometry.load))),
      head_parameters_(std::int64_t{plan.vocab} * plan.width) {
  fixed_parameters_ = plan.width;  // of the final norm
  if (plan.layer_inputs) {
    fixed_parameters_ += plan.layer_inputs_width() * plan.width + plan.layer_inputs->width;
  }
  if (plan.altup) fixed_parameters_ += altup_parameters(*plan.altup, plan);
  for (const Layer& layer : plan.layers) {
    for (const Block& block : layer.blocks) {
      if (block.low_rank > 0)
        fixed_parameters_ += (2 * block.low_rank + 1) * std::int64_t{plan.width};
      if (block.norm != Norm::none) fixed_parameters_ += plan.width;
      if (block.post_norm) fixed_parameters_ += plan.width;
      if (block.norms_parts) fixed_parameters_ += 2 * std::ssize(block.parts) * plan.width;
      if (block.has_factor) ++fixed_parameters_;
      for (const Part& part : block.parts) {
        std::visit([&](const auto& known) { add_part(known, plan.width); }, part);
      }
    }
  }
  count_published(geometry.load);
  add_reads(plan, geometry);
  for (const SlotPiece& piece : geometry.pieces) {
    if (piece.layer >= std::ssize(plan.layers)) continue;  // of the draft layer
    state_bytes_ += static_cast<double>(piece.state_bytes);
    window_bytes_ += static_cast<double>(piece.conv_bytes);
  }
}

/// Keys and values, of every layer that has some or reads another's.
void Roofline::add_reads(const Plan& plan, const Geometry& geometry) {
  std::map<std::int32_t, double> bytes_per_token;  // by layer, which has attention once at most
  for (const PageLayout& page : geometry.pages) {
    bytes_per_token[page.layer] = static_cast<double>(page.page_bytes) / geometry.page_tokens;
  }
  std::int32_t layer = 0;
  for (const Layer& described : plan.layers) {
    described.visit_parts([&](const auto& part) {
      const MemoryShape memory = part.memory();
      if (!memory.kv && memory.kv_of < 0) return;
      attention_[sight_of(part.work())].bytes_per_token +=
          bytes_per_token.at(memory.kv ? layer : memory.kv_of);
    });
    ++layer;
  }
}

void Roofline::add_part(const auto& part, std::int64_t width) {
  const PartWork work = part.work();
  if (work.attention_width > 0) attention_[sight_of(work)].width += work.attention_width;
  state_flops_ += work.token_flops;
  if (work.chunk_tokens > 0) chunk_flops_[work.chunk_tokens] += work.chunk_flops;
  const auto count = [&](const auto& counted) {
    ParameterCounter parameters;
    counted.weights(parameters, width);
    return parameters;
  };
  ParameterCounter counter = count(part);
  if constexpr (requires { part.first_layer; }) {  // every layer that uses a shared block reads it
    auto first = part;
    first.layer = part.first_layer;
    const ParameterCounter read = count(first);
    reread_parameters_ += read.fixed - counter.fixed;
    counter = read;
  }
  fixed_parameters_ += work.experts > 0 ? counter.fixed : counter.fixed + counter.routed;
  if (work.experts == 0) return;
  experts_.push_back({.parameters = static_cast<double>(counter.routed),
                      .experts = work.experts,
                      .active = work.active});
  routed_active_ += counter.routed / work.experts * work.active;
}

/// Counts weights that are published as F8_E4M3 as that, spread over all weights; MXFP4 over
/// experts; blocks over all but these and the head, which has its own.
void Roofline::count_published(const LoadOptions& load) {
  constexpr double fp8_bytes = 1 + 4.0 / 128, mxfp4_bytes = 4.25 / 8;
  expert_bytes_ = weight_bytes_;
  if (load.activation != DType::bf16) return;
  double routed = 0;
  for (const Experts& layer : experts_) routed += layer.parameters;
  const auto share = [](double parameters, double of) {
    return of > 0 ? std::clamp(parameters / of, 0.0, 1.0) : 0.0;
  };
  const auto fixed = static_cast<double>(fixed_parameters_ - reread_parameters_);  // as stored
  if (load.quantize != kernels::Quantize::q4) {
    weight_bytes_ += share(static_cast<double>(load.fp8_parameters), fixed + routed) *
                     (fp8_bytes - weight_bytes_);
  }
  const double mxfp4 = share(static_cast<double>(load.mxfp4_parameters), routed);
  double parameters = static_cast<double>(load.blocks.parameters), bytes = load.blocks.bytes;
  if (parameters > 0 && load.blocks.head_bytes > 0) {
    head_bytes_ = load.blocks.head_bytes;
    parameters -= static_cast<double>(head_parameters_);
    bytes -= static_cast<double>(head_parameters_) * head_bytes_;
  }
  if (parameters > 0) {
    weight_bytes_ +=
        share(parameters, fixed + (1 - mxfp4) * routed) * (bytes / parameters - weight_bytes_);
  }
  expert_bytes_ = weight_bytes_ + mxfp4 * (mxfp4_bytes - weight_bytes_);
}

double Roofline::experts_touched(double tokens) const {
  double parameters = 0;
  for (const Experts& layer : experts_) {
    const double missed = std::pow(1.0 - static_cast<double>(layer.active) / layer.experts, tokens);
    parameters += layer.parameters * (1.0 - missed);
  }
  return parameters;
}

double Roofline::Sight::positions(double own) const {
  if (chunk > 0) return std::fmod(own, chunk);
  return window == 0 ? own : std::min(own, window - 1.0);
}

double Roofline::Sight::pairs(double position, double length) const {
  if (chunk > 0) {
    const auto pairs_before = [&](double end) {
      const double own = std::fmod(end, chunk);
      return (end - own) * chunk / 2 + own * own / 2;
    };
    return pairs_before(position + length) - pairs_before(position);
  }
  const double growing =
      window == 0 ? length : std::clamp(window - position, 0.0, length);  // queries that see all
  return growing * position + growing * growing / 2 + (length - growing) * window;
}

/// Without the weights' bytes, which all spans of a step share.
Work Roofline::spans(const StepShape& shape) const {
  const auto sequences = static_cast<double>(shape.sequences);
  const auto length = static_cast<double>(shape.tokens);
  const auto position = static_cast<double>(shape.position);
  const auto rows = sequences * static_cast<double>(shape.rows);
  const double tokens = sequences * length;

  double per_sequence = 2 * state_bytes_ + window_bytes_;
  double attention = 0;
  for (const auto& [sight, layers] : attention_) {
    per_sequence += layers.bytes_per_token * sight.positions(position);
    attention += 4 * layers.width * sequences * sight.pairs(position, length);
  }
  const auto active = static_cast<double>(active_parameters());
  const auto head = static_cast<double>(head_parameters_);
  double recurrent = state_flops_;
  for (const auto& [chunk, flops] : chunk_flops_) {
    recurrent += flops * static_cast<double>(std::min(shape.tokens, chunk));
  }
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
  work.bytes += static_cast<double>(fixed_parameters_) * weight_bytes_ +
                experts_touched(static_cast<double>(tokens)) * expert_bytes_;
  if (rows > 0) work.bytes += static_cast<double>(head_parameters_) * head_bytes_;
  return work;
}

/// Takes the start of a prompt: later chunks have more attention to compute and the same to read.
Roofline::Seconds Roofline::chunk_seconds(const DeviceRates& rates, std::int32_t tokens) const {
  const Work work = step({.tokens = tokens, .rows = 0});
  return {.reading = work.bytes / rates.bytes_per_s, .computing = work.flops / rates.flops_per_s};
}

std::int32_t Roofline::chunk_tokens(const DeviceRates& rates) const {
  require(rates.is_known(), "roofline: the device's rates are known");
  std::int32_t tokens = chunk_min;
  for (; tokens < chunk_max; tokens *= 2) {
    const Seconds seconds = chunk_seconds(rates, tokens);
    if (9 * seconds.reading <= seconds.computing) break;
  }
  return tokens;
}

std::int32_t Roofline::chunk_tokens_within(const DeviceRates& rates, double seconds) const {
  require(rates.is_known(), "roofline: the device's rates are known");
  std::int32_t tokens = chunk_min;
  for (; tokens < chunk_max; tokens *= 2) {
    const Seconds more = chunk_seconds(rates, 2 * tokens);
    if (more.reading + more.computing > seconds) break;
  }
  return tokens;
}

PrefillCost Roofline::prefill() const {
  constexpr double l = 8192;
  const double once = step({.tokens = 8192, .rows = 0}).flops;
  const double twice = step({.tokens = 16384, .rows = 0}).flops;
  const double square = (twice - 2 * once) / (2 * l * l);
  return {.linear = once / l - square * l, .square = square};
}

}  // namespace hyb::models
