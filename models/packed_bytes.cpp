#include "models/weights.h"

namespace hyb::models {
namespace {

std::size_t panel_bytes(std::int64_t rows, std::int64_t columns, DType dtype) {
  constexpr std::int64_t side = kernels::Weight::panel_rows;
  const std::int64_t depth = dtype == DType::bf16 ? (columns + 1) / 2 * 2 : columns;
  return static_cast<std::size_t>((rows + side - 1) / side * side * depth) * size_of(dtype);
}

/// Sums what the matrices of parts take.
class Sizes {
 public:
  Sizes(const Plan& plan, kernels::Device device, DType activation)
      : width_(plan.width), device_(device), activation_(activation) {}

  std::size_t bytes() const { return bytes_; }

  void add(std::int64_t rows, std::int64_t columns, std::int64_t experts = 1) {
    add_as(activation_, rows, columns, experts);
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
    add(2 * std::int64_t{part.value_heads}, width_);
    add(width_, part.values());
  }
  void add_part(const ShortConv& part) {
    add(3 * std::int64_t{part.channels}, width_);
    add(width_, part.channels);
  }
  void add_part(const Mlp& part) { add_feed_forward(part.hidden, part.gated); }
  void add_part(const Moe& part) {
    const std::int64_t inner = part.latent != 0 ? part.latent : width_;
    add_as(part.router_f32 ? DType::f32 : activation_, part.experts, width_, 1);
    add((part.gated ? 2 : 1) * std::int64_t{part.hidden}, inner, part.experts);
    add(inner, part.hidden, part.experts);
    if (part.latent != 0) {
      add(part.latent, width_);
      add(width_, part.latent);
    }
    if (part.shared_hidden != 0) add_feed_forward(part.shared_hidden, part.gated);
    if (part.shared_gate) add(1, width_);
  }

 private:
  void add_feed_forward(std::int64_t hidden, bool gated) {
    add((gated ? 2 : 1) * hidden, width_);
    add(width_, hidden);
  }

  void add_as(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t experts) {
    const std::size_t one = device_ == kernels::Device::cpu
                                ? panel_bytes(rows, columns, dtype)
                                : static_cast<std::size_t>(rows * columns) * size_of(dtype);
    bytes_ += static_cast<std::size_t>(experts) * one;
  }

  std::int64_t width_;
  kernels::Device device_;
  DType activation_;
  std::size_t bytes_ = 0;
};

}  // namespace

std::size_t packed_bytes(const Plan& plan, kernels::Device device, DType activation) {
  Sizes sizes(plan, device, activation);
  sizes.add(plan.vocab, plan.width);
  if (!plan.tied_head) sizes.add(plan.vocab, plan.width);
  for (const Layer& layer : plan.layers) {
    for (const Block& block : layer.blocks) {
      for (const Part& part : block.parts) {
        std::visit([&](const auto& known) { sizes.add_part(known); }, part);
      }
    }
  }
  return sizes.bytes();
}

}  // namespace hyb::models
