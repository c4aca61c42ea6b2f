#include "models/weights.h"

#include <cmath>
#include <span>

#include "core/base/error.h"
#include "kernels/floats.h"
#include "kernels/transfer.h"
#include "kernels/weight_source.h"

namespace hyb::models {
namespace {

using kernels::mix;

std::uint64_t stream_of(const WeightKey& key, std::uint64_t seed) {
  std::uint64_t hash = mix(seed) ^ static_cast<std::uint64_t>(key.layer + 1);
  for (const char letter : key.role) hash = mix(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

}  // namespace

kernels::WeightSource FileWeights::matrix(const WeightKey& key, std::int64_t experts,
                                          std::int64_t rows, std::int64_t columns) {
  const TensorView view = index_.view(key);
  const StoredScales* const scales = index_.scales(key);
  if (scales == nullptr) return {view.dtype, experts, rows, columns, view.bytes};
  const TensorView all = index_.scales_view(*scales);
  const std::size_t scale_bytes = static_cast<std::size_t>(scales->per_expert) * size_of(all.dtype);
  const auto expert_bytes = static_cast<std::size_t>(rows * columns);
  kernels::WeightSource source(experts, rows, columns);
  for (std::size_t e = 0; e < static_cast<std::size_t>(experts); ++e) {
    source.append(view.dtype, rows, view.bytes.subspan(e * expert_bytes, expert_bytes),
                  {.dtype = all.dtype,
                   .bytes = all.bytes.subspan(e * scale_bytes, scale_bytes),
                   .row_block = scales->row_block,
                   .column_block = scales->column_block});
  }
  return source;
}

std::vector<float> FileWeights::vector(const WeightKey& key, std::int64_t count) {
  const TensorView view = index_.view(key);
  require(view.bytes.size() == static_cast<std::size_t>(count) * size_of(view.dtype),
          "weights: the index checked every shape");
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(kernels::published_value(view.bytes.data(), view.dtype, i));
  }
  return values;
}

kernels::WeightSource RandomWeights::matrix(const WeightKey& key, std::int64_t experts,
                                            std::int64_t rows, std::int64_t columns) {
  const float reach = std::sqrt(3.0F / static_cast<float>(columns));
  return {kernels::RandomNumbers{.stream = stream_of(key, seed_), .reach = reach}, experts, rows,
          columns};
}

std::vector<float> RandomWeights::vector(const WeightKey& key, std::int64_t count) {
  float centre = 0.0F;
  float reach = 0.5F;
  if (key.role.ends_with("norm") || key.role.ends_with(".d")) {
    centre = 1.0F;
    reach = 0.2F;
  } else if (key.role.ends_with("a_log")) {
    centre = 1.4F;  // decay rates exp(0) .. exp(2.8), as initialised for training
    reach = 1.4F;
  } else if (key.role.ends_with("correction_bias")) {
    reach = 0.0F;  // all experts alike
  } else if (key.role.ends_with("dt_bias")) {
    centre = -4.0F;  // softplus gives time steps of about 0.002 .. 0.1
    reach = 2.0F;
  }
  const std::uint64_t stream = stream_of(key, seed_);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = centre + reach * kernels::uniform(mix(stream + i));
  }
  return values;
}

/// What `make` makes; once more where it found no room and some was made.
template <typename Make>
auto WeightLoader::with_room(const Make& make) const {
  try {
    return make();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory || !make_room_ || !make_room_()) throw;
  }
  return make();
}

bool WeightLoader::has(std::string_view role) const {
  return provider_.has({.role = role, .layer = layer_});
}

kernels::WeightSource WeightLoader::stored(std::string_view role, std::int64_t rows,
                                           std::int64_t columns, std::int64_t experts,
                                           std::int32_t expert) {
  read_.emplace_back(role, expert);
  return provider_.matrix({.role = role, .layer = layer_, .expert = expert}, experts, rows,
                          columns);
}

kernels::Weight WeightLoader::pack(const kernels::WeightSource& source) {
  return pack(source, options_.activation, options_.quantize);
}

kernels::Weight WeightLoader::pack(const kernels::WeightSource& source, DType dtype,
                                   kernels::Quantize quantize) {
  kernels::Weight packed =
      with_room([&] { return kernels::Weight::pack(queue_, source, dtype, quantize); });
  weights_.packed_bytes += packed.owned_bytes();
  for (const auto& [role, expert] : read_) {
    provider_.release({.role = role, .layer = layer_, .expert = expert});
  }
  read_.clear();
  return packed;
}

kernels::Weight WeightLoader::matrix(std::string_view role, std::int64_t rows, std::int64_t columns,
                                     std::int64_t experts) {
  return pack(stored(role, rows, columns, experts));
}

kernels::Weight WeightLoader::matrix_as(kernels::Quantize quantize, std::string_view role,
                                        std::int64_t rows, std::int64_t columns) {
  return pack(stored(role, rows, columns), options_.activation, quantize);
}

kernels::WeightSource WeightLoader::stacked_source(
    std::initializer_list<std::pair<std::string_view, std::int64_t>> parts, std::int64_t columns) {
  kernels::WeightSource all(1, 0, columns);
  for (const auto& [role, rows] : parts) {
    all.append(stored(role, rows, columns), 0, rows);
    all.rows += rows;
  }
  return all;
}

kernels::Weight WeightLoader::stacked(
    std::initializer_list<std::pair<std::string_view, std::int64_t>> parts, std::int64_t columns) {
  return pack(stacked_source(parts, columns));
}

float* WeightLoader::upload(const std::vector<float>& values) {
  kernels::Buffer& buffer = weights_.vectors.emplace_back(
      with_room([&] { return kernels::Buffer(queue_.device(), values.size() * sizeof(float)); }));
  kernels::upload(queue_, buffer.data(), std::as_bytes(std::span(values)));
  return reinterpret_cast<float*>(buffer.data());
}

kernels::Tensor WeightLoader::vector(std::string_view role, std::int64_t rows,
                                     std::int64_t columns) {
  const WeightKey key{.role = role, .layer = layer_};
  float* const values = upload(provider_.vector(key, rows * (columns == 0 ? 1 : columns)));
  provider_.release(key);
  if (columns == 0) return kernels::Tensor(values, DType::f32, {rows});
  return kernels::Tensor(values, DType::f32, {rows, columns});
}

kernels::Tensor WeightLoader::repeated(std::string_view role, std::int64_t rows,
                                       std::int64_t times) {
  const WeightKey key{.role = role, .layer = layer_};
  const std::vector<float> once = provider_.vector(key, rows);
  provider_.release(key);
  std::vector<float> all;
  for (std::int64_t i = 0; i < times; ++i) all.insert(all.end(), once.begin(), once.end());
  return kernels::Tensor(upload(all), DType::f32, {rows * times});
}

namespace {

kernels::Weight load_qkv(WeightLoader& loader, std::int64_t width, const Attention& part) {
  const std::int64_t dim = part.head_dim;
  const std::int64_t inner = part.heads * dim;
  const std::int64_t kv = part.kv_heads * dim;
  if (!part.output_gate) {
    return loader.stacked({{"attention.q", inner}, {"attention.k", kv}, {"attention.v", kv}},
                          width);
  }
  const kernels::WeightSource q_gate = loader.stored("attention.q", 2 * inner, width);
  kernels::WeightSource all(1, 2 * inner + 2 * kv, width);
  for (std::int64_t h = 0; h < part.heads; ++h) all.append(q_gate, 2 * h * dim, dim);
  all.append(loader.stored("attention.k", kv, width), 0, kv);
  all.append(loader.stored("attention.v", kv, width), 0, kv);
  for (std::int64_t h = 0; h < part.heads; ++h) all.append(q_gate, (2 * h + 1) * dim, dim);
  return loader.pack(all);
}

PartWeights load(WeightLoader& loader, std::int64_t width, const Attention& part) {
  AttentionWeights weights;
  weights.qkv = load_qkv(loader, width, part);
  weights.o = loader.matrix("attention.o", width, std::int64_t{part.heads} * part.head_dim);
  if (part.qk_norm) {
    weights.q_norm = loader.vector("attention.q_norm", part.head_dim);
    weights.k_norm = loader.vector("attention.k_norm", part.head_dim);
  }
  return weights;
}

PartWeights load(WeightLoader& loader, std::int64_t width, const Ssd& part) {
  SsdWeights weights;
  weights.in_proj = loader.matrix("ssd.in_proj", part.projection(), width);
  weights.out_proj = loader.matrix("ssd.out_proj", width, part.inner());
  weights.conv_weight = loader.vector("ssd.conv_weight", part.conv_dim(), part.conv_width);
  if (part.conv_bias) weights.conv_bias = loader.vector("ssd.conv_bias", part.conv_dim());
  weights.a_log = loader.vector("ssd.a_log", part.heads);
  weights.d = loader.vector("ssd.d", part.heads);
  weights.dt_bias = loader.vector("ssd.dt_bias", part.heads);
  weights.norm = loader.vector("ssd.norm", part.inner());
  return weights;
}

/// Rows stored per key head, [first | second | ...] of the given lengths each, as all firsts, then
/// all seconds, ...
kernels::WeightSource ungrouped(const kernels::WeightSource& stored, std::int64_t groups,
                                std::initializer_list<std::int64_t> lengths) {
  const std::int64_t group = stored.rows / groups;
  kernels::WeightSource all(1, stored.rows, stored.columns);
  std::int64_t offset = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t g = 0; g < groups; ++g) all.append(stored, g * group + offset, length);
    offset += length;
  }
  return all;
}

PartWeights load(WeightLoader& loader, std::int64_t width, const DeltaNet& part) {
  DeltaNetWeights weights;
  const std::int64_t values = part.values();
  const std::int64_t heads = part.value_heads;
  if (loader.has("delta.qkvz")) {
    const std::int64_t group_values = values / part.key_heads;
    const std::int64_t group_heads = heads / part.key_heads;
    weights.qkvz = loader.pack(
        ungrouped(loader.stored("delta.qkvz", part.conv_dim() + values, width), part.key_heads,
                  {part.key_dim, part.key_dim, group_values, group_values}));
    weights.ba = loader.pack(ungrouped(loader.stored("delta.ba", 2 * heads, width), part.key_heads,
                                       {group_heads, group_heads}),
                             loader.activation());
  } else {
    weights.qkvz = loader.stacked({{"delta.qkv", part.conv_dim()}, {"delta.z", values}}, width);
    weights.ba = loader.pack(loader.stacked_source({{"delta.b", heads}, {"delta.a", heads}}, width),
                             loader.activation());
  }
  weights.out_proj = loader.matrix("delta.out_proj", width, values);
  weights.conv_weight = loader.vector("delta.conv_weight", part.conv_dim(), part.conv_width);
  weights.a_log = loader.vector("delta.a_log", heads);
  weights.dt_bias = loader.vector("delta.dt_bias", heads);
  weights.norm = loader.repeated("delta.norm", part.value_dim, heads);
  return weights;
}

PartWeights load(WeightLoader& loader, std::int64_t width, const ShortConv& part) {
  ShortConvWeights weights;
  weights.in_proj = loader.matrix("conv.in_proj", 3 * std::int64_t{part.channels}, width);
  weights.out_proj = loader.matrix("conv.out_proj", width, part.channels);
  weights.conv_weight = loader.vector("conv.weight", part.channels, part.conv_width);
  return weights;
}

struct FeedForwardRoles {
  std::string_view gate_up, gate, up, down;
};
constexpr FeedForwardRoles mlp_roles = {"mlp.gate_up", "mlp.gate", "mlp.up", "mlp.down"};
constexpr FeedForwardRoles shared_roles = {"moe.shared_gate_up", "moe.shared_gate", "moe.shared_up",
                                           "moe.shared_down"};

MlpWeights load_feed_forward(WeightLoader& loader, std::int64_t width,
                             const FeedForwardRoles& roles, std::int64_t hidden, bool gated) {
  MlpWeights weights;
  if (!gated) {
    weights.gate_up = loader.matrix(roles.up, hidden, width);
  } else if (loader.has(roles.gate_up)) {
    weights.gate_up = loader.matrix(roles.gate_up, 2 * hidden, width);
  } else {
    weights.gate_up = loader.stacked({{roles.gate, hidden}, {roles.up, hidden}}, width);
  }
  weights.down = loader.matrix(roles.down, width, hidden);
  return weights;
}

PartWeights load(WeightLoader& loader, std::int64_t width, const Mlp& part) {
  return load_feed_forward(loader, width, mlp_roles, part.hidden, part.gated);
}

/// Both matrices of all experts, which stand in one tensor or in one each.
void load_experts(WeightLoader& loader, std::int64_t width, const Moe& part, MoeWeights& weights) {
  const std::int64_t hidden = part.hidden;
  const std::int64_t rows = part.gated ? 2 * hidden : hidden;
  if (loader.has("moe.gate_up")) {
    weights.gate_up = loader.matrix("moe.gate_up", rows, width, part.experts);
    weights.down = loader.matrix("moe.down", width, hidden, part.experts);
    return;
  }
  kernels::WeightSource gate_up(part.experts, rows, width);
  for (std::int32_t e = 0; e < part.experts; ++e) {
    if (part.gated) {
      gate_up.append(loader.stored("moe.expert_gate", hidden, width, 1, e), 0, hidden);
    }
    gate_up.append(loader.stored("moe.expert_up", hidden, width, 1, e), 0, hidden);
  }
  weights.gate_up = loader.pack(gate_up);
  kernels::WeightSource down(part.experts, width, hidden);
  for (std::int32_t e = 0; e < part.experts; ++e) {
    down.append(loader.stored("moe.expert_down", width, hidden, 1, e), 0, width);
  }
  weights.down = loader.pack(down);
}

PartWeights load(WeightLoader& loader, std::int64_t width, const Moe& part) {
  MoeWeights weights;
  const kernels::WeightSource router = loader.stored("moe.router", part.experts, width);
  weights.router = loader.pack(router, part.router_f32 ? DType::f32 : loader.activation());
  if (part.correction_bias) {
    weights.correction_bias = loader.vector("moe.correction_bias", part.experts);
  }
  if (part.latent > 0) {
    weights.latent_in = loader.matrix("moe.latent_in", part.latent, width);
    weights.latent_out = loader.matrix("moe.latent_out", width, part.latent);
  }
  load_experts(loader, part.latent > 0 ? part.latent : width, part, weights);
  if (part.shared_hidden > 0) {
    weights.shared = load_feed_forward(loader, width, shared_roles, part.shared_hidden, part.gated);
  }
  if (part.shared_gate) {
    weights.shared_gate =
        loader.matrix_as(kernels::Quantize::none, "moe.shared_expert_gate", 1, width);
  }
  return weights;
}

constexpr std::string_view norm_roles[] = {"block0.norm", "block1.norm"};

LayerWeights load_layer(WeightLoader& loader, std::int64_t width, const Layer& layer) {
  require(layer.blocks.size() <= std::size(norm_roles), "weights: a layer has one or two blocks");
  LayerWeights weights;
  for (std::size_t i = 0; i < layer.blocks.size(); ++i) {
    BlockWeights& block = weights.blocks.emplace_back();
    block.norm = loader.vector(norm_roles[i], width);
    for (const Part& part : layer.blocks[i].parts) {
      block.parts.push_back(
          std::visit([&](const auto& known) { return load(loader, width, known); }, part));
    }
  }
  return weights;
}

/// Ends them where loading fails: then that failure is the one to tell of.
class Uploads {
 public:
  explicit Uploads(kernels::Queue& queue) : queue_(queue) {}
  void end() {
    is_ended_ = true;
    kernels::end_uploads(queue_);
  }
  ~Uploads() {
    if (is_ended_) return;
    try {
      kernels::end_uploads(queue_);
    } catch (const Error&) {
    }
  }
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

 private:
  kernels::Queue& queue_;
  bool is_ended_ = false;
};

}  // namespace

std::size_t Weights::bytes() const {
  std::size_t sum = packed_bytes;
  for (const kernels::Buffer& buffer : vectors) sum += buffer.bytes();
  return sum;
}

Weights load_weights(kernels::Queue& queue, const Plan& plan, WeightProvider& provider,
                     const LoadOptions& options, const MakeRoom& make_room) {
  Uploads uploads(queue);
  Weights weights;
  WeightLoader loader(queue, provider, options, weights, make_room);
  const kernels::Quantize head = head_quantize(options);
  weights.embed = loader.matrix_as(plan.tied_head ? head : kernels::Quantize::none, "embed",
                                   plan.vocab, plan.width);
  if (!plan.tied_head) weights.head = loader.matrix_as(head, "head", plan.vocab, plan.width);
  weights.final_norm = loader.vector("final_norm", plan.width);
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    loader.set_layer(static_cast<std::int32_t>(i));
    weights.layers.push_back(load_layer(loader, plan.width, plan.layers[i]));
  }
  uploads.end();
  return weights;
}

}  // namespace hyb::models
