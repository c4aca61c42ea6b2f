#include "kernels/linear/pack.h"
#include "kernels/linear/quantize.h"
#include "models/weights.h"

namespace hyb::models {
namespace {

std::size_t coded_bytes(kernels::Quantize quantize, std::int64_t rows, std::int64_t columns,
                        kernels::Device device) {
  const kernels::WeightCode code =
      quantize == kernels::Quantize::q4 ? kernels::WeightCode::q4 : kernels::WeightCode::q8;
  const std::int64_t bytes =
      device == kernels::Device::cpu
          ? kernels::coded_shape(code, rows, columns, kernels::quantize_group).expert_bytes()
          : kernels::CodedRowsShape{code, rows, columns}.expert_bytes();
  return static_cast<std::size_t>(bytes);
}

/// Sums what the matrices of parts take.
class Sizes {
 public:
  Sizes(const Plan& plan, kernels::Device device, const LoadOptions& options)
      : width_(plan.width), device_(device), options_(options) {}

  std::size_t bytes() const { return bytes_; }

  void add(std::int64_t rows, std::int64_t columns, std::int64_t experts = 1) {
    add_as(options_.quantize, rows, columns, experts);
  }
  void add_as(kernels::Quantize quantize, std::int64_t rows, std::int64_t columns,
              std::int64_t experts = 1) {
    if (quantize == kernels::Quantize::none) {
      add_plain(options_.activation, rows, columns, experts);
    } else {
      bytes_ += static_cast<std::size_t>(experts) * coded_bytes(quantize, rows, columns, device_);
    }
  }

  void add_part(const Attention& part) {
    const std::int64_t q = std::int64_t{part.heads} * part.head_dim;
    const std::int64_t kv = std::int64_t{part.kv_heads} * part.head_dim;
    add((part.output_gate ? 2 * q : q) + 2 * kv, width_);
    add(width_, q);
  }
  void add_part(const Ssd& part) {
    add(part.projection(), width_);
    add(width_, part.inner());
  }
  void add_part(const DeltaNet& part) {
    add(part.conv_dim() + part.values(), width_);
    add_as(kernels::Quantize::none, 2 * std::int64_t{part.value_heads}, width_);
    add(width_, part.values());
  }
  void add_part(const ShortConv& part) {
    add(3 * std::int64_t{part.channels}, width_);
    add(width_, part.channels);
  }
  void add_part(const Mlp& part) { add_feed_forward(part.hidden, part.gated); }
  void add_part(const Moe& part) {
    const std::int64_t inner = part.latent != 0 ? part.latent : width_;
    add_plain(part.router_f32 ? DType::f32 : options_.activation, part.experts, width_, 1);
    add((part.gated ? 2 : 1) * std::int64_t{part.hidden}, inner, part.experts);
    add(inner, part.hidden, part.experts);
    if (part.latent != 0) {
      add(part.latent, width_);
      add(width_, part.latent);
    }
    if (part.shared_hidden != 0) add_feed_forward(part.shared_hidden, part.gated);
    if (part.shared_gate) add_as(kernels::Quantize::none, 1, width_);
  }

 private:
  void add_feed_forward(std::int64_t hidden, bool gated) {
    add((gated ? 2 : 1) * hidden, width_);
    add(width_, hidden);
  }

  void add_plain(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t experts) {
    const std::int64_t one = device_ == kernels::Device::cpu
                                 ? kernels::panel_shape(dtype, rows, columns).expert_bytes()
                                 : rows * columns * std::int64_t(size_of(dtype));
    bytes_ += static_cast<std::size_t>(experts) * static_cast<std::size_t>(one);
  }

  std::int64_t width_;
  kernels::Device device_;
  LoadOptions options_;
  std::size_t bytes_ = 0;
};

/// How much less the published F8_E4M3 takes than what was counted for it.
std::size_t fp8_saves(const LoadOptions& options) {
  constexpr double fp8_bytes = 1 + 4.0 / 128;  // with a scale for 128 columns
  if (options.activation != DType::bf16 || options.quantize == kernels::Quantize::q4) return 0;
  const double counted = options.quantize == kernels::Quantize::q8 ? 8.5 / 8 : 2;
  return static_cast<std::size_t>(static_cast<double>(options.fp8_parameters) *
                                  (counted - fp8_bytes));
}

}  // namespace

namespace {

std::int64_t vector_numbers(const Attention& part) {
  return part.qk_norm ? 2 * std::int64_t{part.head_dim} : 0;
}
std::int64_t vector_numbers(const Ssd& part) {
  const std::int64_t conv = part.conv_dim();
  return conv * part.conv_width + (part.conv_bias ? conv : 0) + 3 * std::int64_t{part.heads} +
         part.inner();
}
std::int64_t vector_numbers(const DeltaNet& part) {
  return std::int64_t{part.conv_dim()} * part.conv_width + 2 * std::int64_t{part.value_heads} +
         part.values();
}
std::int64_t vector_numbers(const ShortConv& part) {
  return std::int64_t{part.channels} * part.conv_width;
}
std::int64_t vector_numbers(const Mlp&) { return 0; }
std::int64_t vector_numbers(const Moe& part) { return part.correction_bias ? part.experts : 0; }

}  // namespace

std::size_t vector_bytes(const Plan& plan) {
  std::int64_t numbers = plan.width;  // of the final norm
  for (const Layer& layer : plan.layers) {
    for (const Block& block : layer.blocks) {
      numbers += plan.width;
      for (const Part& part : block.parts) {
        numbers += std::visit([](const auto& known) { return vector_numbers(known); }, part);
      }
    }
  }
  return static_cast<std::size_t>(numbers) * sizeof(float);
}

std::size_t packed_bytes(const Plan& plan, kernels::Device device, const LoadOptions& options) {
  Sizes sizes(plan, device, options);
  sizes.add_as(head_quantize(options), plan.vocab, plan.width);
  if (!plan.tied_head) sizes.add_as(kernels::Quantize::none, plan.vocab, plan.width);
  plan.visit_parts([&](const auto& part) { sizes.add_part(part); });
  return sizes.bytes() - fp8_saves(options);
}

}  // namespace hyb::models
