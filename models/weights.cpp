#include "models/weights.h"

#include <initializer_list>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "kernels/transfer.h"

namespace hyb::models {
namespace {

/// Loads one layer's weights, or the model-wide ones (layer -1).
class Loader {
 public:
  Loader(kernels::Queue& queue, WeightProvider& provider, const LoadOptions& options,
         Weights& weights)
      : queue_(queue), provider_(provider), options_(options), weights_(weights) {}

  void set_layer(std::int32_t layer) { layer_ = layer; }

  kernels::Weight matrix(std::string_view role, std::int64_t rows, std::int64_t columns,
                         std::int64_t experts = 1) {
    const WeightKey key{.role = role, .layer = layer_};
    kernels::Weight packed = kernels::Weight::pack(
        queue_, provider_.matrix(key, experts, rows, columns), options_.activation);
    provider_.release(key);
    weights_.packed_bytes += packed.owned_bytes();
    return packed;
  }

  /// Matrices below each other, as one.
  kernels::Weight stacked(std::initializer_list<std::pair<std::string_view, std::int64_t>> parts,
                          std::int64_t columns) {
    kernels::WeightSource all(1, 0, columns);
    for (const auto& [role, rows] : parts) {
      const kernels::WeightSource part =
          provider_.matrix({.role = role, .layer = layer_}, 1, rows, columns);
      all.append(part, 0, rows);
      all.rows += rows;
    }
    kernels::Weight packed = kernels::Weight::pack(queue_, all, options_.activation);
    weights_.packed_bytes += packed.owned_bytes();
    for (const auto& [role, rows] : parts) provider_.release({.role = role, .layer = layer_});
    return packed;
  }

  kernels::Tensor vector(std::string_view role, std::int64_t rows, std::int64_t columns = 0) {
    const std::int64_t count = rows * (columns == 0 ? 1 : columns);
    const WeightKey key{.role = role, .layer = layer_};
    const std::vector<float> source = provider_.vector(key, count);
    kernels::Buffer& buffer =
        weights_.vectors.emplace_back(queue_.device(), source.size() * sizeof(float));
    kernels::upload(queue_, buffer.data(), std::as_bytes(std::span(source)));
    auto* const values = reinterpret_cast<float*>(buffer.data());
    provider_.release(key);
    if (columns == 0) return kernels::Tensor(values, DType::f32, {rows});
    return kernels::Tensor(values, DType::f32, {rows, columns});
  }

  bool has(std::string_view role) const { return provider_.has({.role = role, .layer = layer_}); }

 private:
  kernels::Queue& queue_;
  WeightProvider& provider_;
  const LoadOptions& options_;
  Weights& weights_;
  std::int32_t layer_ = -1;
};

[[noreturn]] void fail_unsupported(const Plan& plan, const char* what) {
  throw Error(ErrorKind::model, plan.family + ": " + what + " can be inspected but not run yet");
}

PartWeights load(Loader& loader, const Plan& plan, const Attention& part) {
  if (part.qk_norm || part.output_gate || part.bias) {
    fail_unsupported(plan, "attention with q/k norm, output gate or bias");
  }
  const std::int64_t inner = std::int64_t{part.heads} * part.head_dim;
  const std::int64_t kv = std::int64_t{part.kv_heads} * part.head_dim;
  return AttentionWeights{
      .qkv = loader.stacked({{"attention.q", inner}, {"attention.k", kv}, {"attention.v", kv}},
                            plan.width),
      .o = loader.matrix("attention.o", plan.width, inner)};
}

PartWeights load(Loader& loader, const Plan& plan, const Ssd& part) {
  SsdWeights weights;
  weights.in_proj = loader.matrix("ssd.in_proj", part.projection(), plan.width);
  weights.out_proj = loader.matrix("ssd.out_proj", plan.width, part.inner());
  weights.conv_weight = loader.vector("ssd.conv_weight", part.conv_dim(), part.conv_width);
  if (part.conv_bias) weights.conv_bias = loader.vector("ssd.conv_bias", part.conv_dim());
  weights.a_log = loader.vector("ssd.a_log", part.heads);
  weights.d = loader.vector("ssd.d", part.heads);
  weights.dt_bias = loader.vector("ssd.dt_bias", part.heads);
  weights.norm = loader.vector("ssd.norm", part.inner());
  return weights;
}

PartWeights load(Loader&, const Plan& plan, const DeltaNet&) {
  fail_unsupported(plan, "a gated delta net");
}

PartWeights load(Loader& loader, const Plan& plan, const Mlp& part) {
  if (!part.gated) fail_unsupported(plan, "an ungated feed-forward");
  return MlpWeights{
      .gate_up = loader.matrix("mlp.gate_up", 2 * std::int64_t{part.hidden}, plan.width),
      .down = loader.matrix("mlp.down", plan.width, part.hidden)};
}

PartWeights load(Loader& loader, const Plan& plan, const Moe& part) {
  if (part.score != RouterScore::softmax_of_selected || !part.gated || part.latent != 0 ||
      part.shared_gate) {
    fail_unsupported(plan, "a mixture of experts with this router");
  }
  const std::int64_t width = plan.width;
  MoeWeights weights;
  weights.router = loader.matrix("moe.router", part.experts, width);
  weights.gate_up =
      loader.matrix("moe.gate_up", 2 * std::int64_t{part.hidden}, width, part.experts);
  weights.down = loader.matrix("moe.down", width, part.hidden, part.experts);
  if (part.shared_hidden > 0) {
    weights.shared.gate_up =
        loader.matrix("moe.shared_gate_up", 2 * std::int64_t{part.shared_hidden}, width);
    weights.shared.down = loader.matrix("moe.shared_down", width, part.shared_hidden);
  }
  return weights;
}

constexpr std::string_view norm_roles[] = {"block0.norm", "block1.norm"};

LayerWeights load_layer(Loader& loader, const Plan& plan, const Layer& layer) {
  require(layer.blocks.size() <= std::size(norm_roles), "weights: a layer has one or two blocks");
  LayerWeights weights;
  for (std::size_t i = 0; i < layer.blocks.size(); ++i) {
    BlockWeights& block = weights.blocks.emplace_back();
    block.norm = loader.vector(norm_roles[i], plan.width);
    for (const Part& part : layer.blocks[i].parts) {
      block.parts.push_back(
          std::visit([&](const auto& known) { return load(loader, plan, known); }, part));
    }
  }
  return weights;
}

std::size_t panel_bytes(std::int64_t rows, std::int64_t columns, DType dtype) {
  constexpr std::int64_t side = kernels::Weight::panel_rows;
  const std::int64_t depth = dtype == DType::bf16 ? (columns + 1) / 2 * 2 : columns;
  return static_cast<std::size_t>((rows + side - 1) / side * side * depth) * size_of(dtype);
}

}  // namespace

Weights load_weights(kernels::Queue& queue, const Plan& plan, WeightProvider& provider,
                     const LoadOptions& options) {
  Weights weights;
  Loader loader(queue, provider, options, weights);
  weights.embed = loader.matrix("embed", plan.vocab, plan.width);
  if (loader.has("head")) weights.head = loader.matrix("head", plan.vocab, plan.width);
  weights.final_norm = loader.vector("final_norm", plan.width);
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    loader.set_layer(static_cast<std::int32_t>(i));
    weights.layers.push_back(load_layer(loader, plan, plan.layers[i]));
  }
  return weights;
}

std::size_t packed_bytes(const Plan& plan, kernels::Device device, DType activation) {
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, std::int64_t experts = 1) {
    const std::size_t bytes = device == kernels::Device::cpu
                                  ? panel_bytes(rows, columns, activation)
                                  : static_cast<std::size_t>(rows * columns) * size_of(activation);
    return static_cast<std::size_t>(experts) * bytes;
  };
  std::size_t bytes = matrix(plan.vocab, plan.width) * (plan.tied_head ? 1 : 2);
  const auto add = [&](const auto& part) {
    using P = std::decay_t<decltype(part)>;
    const std::int64_t width = plan.width;
    if constexpr (std::is_same_v<P, Attention>) {
      const std::int64_t q = std::int64_t{part.heads} * part.head_dim;
      const std::int64_t kv = std::int64_t{part.kv_heads} * part.head_dim;
      bytes += matrix((part.output_gate ? 2 * q : q) + 2 * kv, width) + matrix(width, q);
    } else if constexpr (std::is_same_v<P, Ssd>) {
      bytes += matrix(part.projection(), width) + matrix(width, part.inner());
    } else if constexpr (std::is_same_v<P, DeltaNet>) {
      const std::int64_t values = std::int64_t{part.value_heads} * part.value_dim;
      bytes +=
          matrix(part.conv_dim() + values + 2 * part.value_heads, width) + matrix(width, values);
    } else if constexpr (std::is_same_v<P, Mlp>) {
      bytes += matrix((part.gated ? 2 : 1) * std::int64_t{part.hidden}, width) +
               matrix(width, part.hidden);
    } else {
      const std::int64_t inner = part.latent != 0 ? part.latent : width;
      const std::int64_t up = part.gated ? 2 : 1;
      bytes += matrix(part.experts, width) + matrix(up * part.hidden, inner, part.experts) +
               matrix(inner, part.hidden, part.experts);
      if (part.latent != 0) bytes += 2 * matrix(part.latent, width);
      if (part.shared_hidden != 0) {
        bytes += matrix(up * part.shared_hidden, width) + matrix(width, part.shared_hidden);
      }
    }
  };
  for (const Layer& layer : plan.layers) {
    for (const Block& block : layer.blocks) {
      for (const Part& part : block.parts) std::visit(add, part);
    }
  }
  return bytes;
}

}  // namespace hyb::models
