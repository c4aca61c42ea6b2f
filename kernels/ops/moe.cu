#include "kernels/cuda/activation.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/linear/linear.cuh"
#include "kernels/ops/check.h"
#include "kernels/ops/moe.cuh"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

/// down_s * activation(gate_up_s * x), added to y, or with a gate as it is to shared_output.
void multiply_shared(Stream& stream, const FusedMoe& op, const Tensor& x, const MoeRoom& room) {
  project(stream, {.x = x,
                   .weight = op.shared_gate_up,
                   .y = room.shared,
                   .activation = op.shared_activation.value_or(op.activation),
                   .product = room.shared_product});
  if (op.shared_gate == nullptr) {
    linear(stream,
           {.x = room.shared, .weight = op.shared_down, .y = op.y, .scale = op.scale, .add = true});
  } else {
    linear(stream, {.x = room.shared, .weight = op.shared_down, .y = room.shared_output});
  }
}

constexpr int weigh_threads = 256;

template <typename T>
struct WeighParams {
  const T* x;
  T* y;
  float* weights;
  std::int64_t x_stride, y_stride;
  int width;
};

/// A block for each row: y = weight * x, and the weight is 1 from then on. The bits of the plain
/// loop.
template <typename T>
__global__ void __launch_bounds__(weigh_threads) weigh_rows_kernel(const WeighParams<T> p) {
  const std::int64_t row = blockIdx.x;
  start_next_and_wait();
  const float weight = p.weights[row];
  for (int i = static_cast<int>(threadIdx.x); i < p.width; i += weigh_threads) {
    p.y[row * p.y_stride + i] = rounded<T>(weight * to_float(p.x[row * p.x_stride + i]));
  }
  sync_block();
  if (threadIdx.x == 0) p.weights[row] = 1.0F;
}

void weigh_rows(Stream& stream, const Tensor& x, const Tensor& weights, const Tensor& y) {
  visit_float(x.dtype, [&]<typename T>(Tag<T>) {
    launch(stream, {.blocks = static_cast<unsigned>(x.dim(0)), .threads = weigh_threads},
           weigh_rows_kernel<T>,
           WeighParams<T>{.x = x.as<T>(),
                          .y = y.as<T>(),
                          .weights = weights.as<float>(),
                          .x_stride = x.row_stride,
                          .y_stride = y.row_stride,
                          .width = static_cast<int>(x.dim(1))});
  });
}

void multiply_experts(Stream& stream, const FusedMoe& op, const MoeShape& shape, const Tensor& x,
                      const MoeRoom& room) {
  sort_visits(stream, shape, room, tile_tokens(shape));
  const ExpertProducts products = {.x = x,
                                   .gate_up = op.gate_up,
                                   .down = op.down,
                                   .gate_up_bias = op.gate_up_bias.as<float>(),
                                   .down_bias = op.down_bias.as<float>(),
                                   .activation = op.activation,
                                   .shape = shape};
  if (takes_vectors(x) && takes_vectors(*op.gate_up) && takes_vectors(*op.down)) {
    tile_products(stream, products, room);
  } else {
    plain_products(stream, products, room);
  }
}

/// The parts one after the other, the experts' products grouped by expert. No sum depends on the
/// number of rows where linear's do not.
void grouped_moe(Stream& stream, const FusedMoe& op, const MoeShape& shape, const MoeRoom& room) {
  Tensor x = op.x;
  if (!op.norm.empty()) {
    x = room.normed;
    apply(stream, op.norm, op.x, x);
  }
  const Tensor& router_x = op.router_x.empty() ? x : op.router_x;
  router_logits(stream, router_x, *op.router, op.router_bias, room.logits);
  moe_route(stream, {.logits = room.logits,
                     .bias = op.bias,
                     .chosen = room.chosen,
                     .weights = room.weights,
                     .routing = op.routing,
                     .expert_scale = op.expert_scale});
  if (op.shared_down != nullptr) multiply_shared(stream, op, x, room);
  const VisitSum sum = {.y = op.y,
                        .active = op.active,
                        .scale = op.scale,
                        .add = op.add,
                        .gate_x = x,
                        .gate = op.shared_gate};
  if (op.latent_in == nullptr) {
    if (op.weighs_input) {
      weigh_rows(stream, x, room.weights, room.latent);
      x = room.latent;
    }
    multiply_experts(stream, op, shape, x, room);
    return sum_visits(stream, sum, room);
  }
  linear(stream, {.x = x, .weight = op.latent_in, .y = room.latent});
  multiply_experts(stream, op, shape, room.latent, room);
  sum_visits(stream, {.y = room.latent_sum, .active = op.active, .scale = 1.0F, .add = false},
             room);
  if (op.shared_gate != nullptr) {
    VisitSum shared = sum;
    shared.active = 0;
    sum_visits(stream, shared, room);
  }
  linear(
      stream,
      {.x = room.latent_sum, .weight = op.latent_out, .y = op.y, .scale = op.scale, .add = true});
}

}  // namespace

std::size_t moe_workspace_bytes(const MoeShape& shape) { return MoeRoom(shape, nullptr).bytes; }

void fused_moe(Stream& stream, const FusedMoe& op) {
  Check("fused_moe").function(op.activation);
  const MoeShape shape = shape_of(op);
  if (shape.tokens == 0) return;
  const MoeRoom room(shape, op.workspace.as<std::byte>());
  if (small_batch_takes(stream, op, shape)) return small_batch_moe(stream, op, room);
  grouped_moe(stream, op, shape, room);
}

namespace {

constexpr int logit_warps = 8;
constexpr int tiles = 2;  ///< of 16 tokens, which share a split of the weight
constexpr int block_tokens = tiles * skinny_rows_max;
constexpr int block_experts = 2 * skinny_group;

struct LogitParams {
  const bf16* x;
  const float *router, *bias;  ///< no bias: null
  float* logits;
  std::int64_t x_stride, logits_stride;
  int tokens, experts, inner;
};

struct Totals {
  SharedArray<SkinnyTotals<2, logit_warps>, tiles> of;
};

/// Block (i, j): 16 experts of 32 tokens; its warps take turns in chunks of k, so that there is one
/// order for every row count. Within (3K+12) * 2^-23 * sum_k |x*W| of the exact sum.
__global__ void __launch_bounds__(logit_warps* warp_size, 2)
    moe_split_logits_kernel(const LogitParams p) {
  auto& totals = shared_object<Totals>().of;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int expert = static_cast<int>(blockIdx.x) * block_experts;
  const int token = static_cast<int>(blockIdx.y) * block_tokens;
  const float* rows[2];
  for (int g = 0; g < 2; ++g) {
    const int row = expert + g * skinny_group + lane / 4;
    rows[g] = p.router + static_cast<std::int64_t>(row < p.experts ? row : p.experts - 1) * p.inner;
  }
  const SkinnyRange range{.inner = p.inner, .first = warp, .step = logit_warps};
  SplitPieces pieces;
  load_pieces(pieces, rows, range);
  start_next_and_wait();

  float sums[tiles][2][4] = {};
  multiply_rows(
      pieces, rows, range, true,
      [&](int row, int k) {
        const int own = token + lane / 4 + row;
        return own < p.tokens && k < p.inner ? load16(p.x + own * p.x_stride + k) : uint4{};
      },
      sums);
  for (int m = 0; m < tiles; ++m) totals[m].put(true, sums[m]);
  sync_block();
  for (int i = static_cast<int>(threadIdx.x); i < block_tokens * block_experts;
       i += logit_warps * warp_size) {
    const int row = i / block_experts, column = i % block_experts;
    if (token + row >= p.tokens || expert + column >= p.experts) continue;
    p.logits[(token + row) * p.logits_stride + expert + column] =
        totals[row / skinny_rows_max].sum(row % skinny_rows_max, column) +
        (p.bias == nullptr ? 0.0F : p.bias[expert + column]);
  }
}

}  // namespace

void router_logits(Stream& stream, const Tensor& x, const Weight& router, const Tensor& bias,
                   const Tensor& logits) {
  const bool is_split = x.dtype == DType::bf16 && router.dtype() == DType::f32 &&
                        is_vector_aligned(x.as<bf16>(), x.row_stride) && takes_pieces(router);
  if (!is_split) return linear(stream, {.x = x, .weight = &router, .y = logits, .bias = bias});
  launch(stream,
         {.blocks = dim3(pieces(logits.dim(1), block_experts), pieces(x.dim(0), block_tokens)),
          .threads = logit_warps * warp_size},
         moe_split_logits_kernel,
         {.x = x.as<bf16>(),
          .router = reinterpret_cast<const float*>(router.expert(0)),
          .bias = bias.as<float>(),
          .logits = logits.as<float>(),
          .x_stride = x.row_stride,
          .logits_stride = logits.row_stride,
          .tokens = static_cast<int>(x.dim(0)),
          .experts = static_cast<int>(logits.dim(1)),
          .inner = static_cast<int>(x.dim(1))});
}

namespace {

constexpr int plain_warps = 4;
constexpr std::int64_t grid_rows_max = 65535;

/// One of the two products: y[place,:] = activation(weight[expert] * row of x + bias[expert]).
template <typename T>
struct PlainParams {
  const T* x;
  AnyWeight weight;
  const float* bias;  ///< of all experts' rows; null: 0
  T* y;
  const std::int32_t *visit_of, *chosen;
  std::int64_t x_stride;
  int places, inner, columns, active;
  bool is_activated;  ///< with an activation x's rows are tokens, else places
  Activation activation;
};

template <typename T>
__device__ __forceinline__ float product(const PlainParams<T>& p, const T* x, std::int64_t expert,
                                         std::int64_t row) {
  float sum = 0.0F;
#pragma unroll 1
  for (int k = static_cast<int>(threadIdx.x) % warp_size; k < p.inner; k += warp_size) {
    sum += to_float(x[k]) * p.weight.at(expert, row, k);
  }
  sum = warp_sum(sum);
  return p.bias == nullptr ? sum : sum + p.bias[expert * p.weight.rows + row];
}

/// A warp owns one column of one place. Within (K+4) * 2^-23 * sum_k |x*W| of the exact sum,
/// not counting the roundings.
template <typename T>
__global__ void __launch_bounds__(plain_warps* warp_size, 8)
    moe_plain_kernel(const PlainParams<T> p) {
  const int column =
      static_cast<int>(blockIdx.x) * plain_warps + static_cast<int>(threadIdx.x) / warp_size;
  start_next_and_wait();
  if (column >= p.columns) return;
  for (int place = static_cast<int>(blockIdx.y); place < p.places;
       place += static_cast<int>(gridDim.y)) {
    const std::int32_t visit = p.visit_of[place];
    const T* const x = p.x + (p.is_activated ? visit / p.active : place) * p.x_stride;
    const std::int64_t expert = p.chosen[visit];
    float value = product(p, x, expert, column);
    if (p.is_activated) {
      const float up =
          p.activation.gated ? product(p, x, expert, std::int64_t{column} + p.columns) : 0.0F;
      value = activated(p.activation, to_float(rounded<T>(value)), to_float(rounded<T>(up)));
    }
    if (threadIdx.x % warp_size == 0) {
      p.y[place * static_cast<std::int64_t>(p.columns) + column] = rounded<T>(value);
    }
  }
}

template <typename T>
void run(Stream& stream, const PlainParams<T>& params) {
  const auto rows = static_cast<unsigned>(std::min<std::int64_t>(params.places, grid_rows_max));
  launch(stream,
         {.blocks = dim3(pieces(params.columns, plain_warps), rows),
          .threads = plain_warps * warp_size},
         moe_plain_kernel<T>, params);
}

template <typename T>
void run(Stream& stream, const ExpertProducts& products, const MoeRoom& room) {
  const MoeShape& shape = products.shape;
  PlainParams<T> params = {.x = products.x.as<T>(),
                           .weight = any_weight(*products.gate_up),
                           .bias = products.gate_up_bias,
                           .y = room.inner.as<T>(),
                           .visit_of = room.visit_of.as<std::int32_t>(),
                           .chosen = room.chosen.as<std::int32_t>(),
                           .x_stride = products.x.row_stride,
                           .places = static_cast<int>(shape.tokens * shape.active),
                           .inner = static_cast<int>(shape.expert_width()),
                           .columns = static_cast<int>(shape.intermediate),
                           .active = static_cast<int>(shape.active),
                           .is_activated = true,
                           .activation = products.activation};
  run(stream, params);
  params.x = room.inner.as<T>();
  params.weight = any_weight(*products.down);
  params.bias = products.down_bias;
  params.y = room.outputs.as<T>();
  params.x_stride = shape.intermediate;
  params.inner = static_cast<int>(shape.intermediate);
  params.columns = static_cast<int>(shape.expert_width());
  params.is_activated = false;
  run(stream, params);
}

}  // namespace

void plain_products(Stream& stream, const ExpertProducts& products, const MoeRoom& room) {
  visit_float(products.x.dtype, [&]<typename T>(Tag<T>) { run<T>(stream, products, room); });
}

namespace {

constexpr int sum_warps = 8;
constexpr int block_threads = sum_warps * warp_size;

template <typename T>
struct SumParams {
  const T *outputs, *shared_output, *gate_x;
  AnyWeight gate;  ///< without data: no shared_output
  const std::int32_t* place_of;
  const float* weights;
  T* y;
  std::int64_t gate_x_stride, y_stride;
  int width, active;  ///< of y; experts of a token
  float scale;
  bool add;
};

struct Partials {
  SharedArray<float, sum_warps> sums;
};

/// sigmoid(gate . row) in all threads. The logit is within (H+12) * 2^-23 * sum_k |gate*row|.
template <typename T>
__device__ __forceinline__ float open_gate(const SumParams<T>& p, const T* row) {
  auto& partials = shared_object<Partials>().sums;
  const auto thread = static_cast<int>(threadIdx.x);
  float logit = 0.0F;
  for (int i = thread; i < p.width; i += block_threads) {
    logit += to_float(row[i]) * p.gate.at(0, 0, i);
  }
  logit = warp_sum(logit);
  if (thread % warp_size == 0) partials[thread / warp_size] = logit;
  sync_block();
  logit = 0.0F;
  for (int warp = 0; warp < sum_warps; ++warp) logit += partials[warp];
  return 1.0F / (1.0F + expf(-logit));
}

/// Block (token, piece) owns 256 vectors of a token's row. Places ascend with the experts, so that
/// their ranks are the order of the sum. Outputs were rounded to the type of y: with that the
/// answer is within 2^-8 (2^-23 for f32) * |scale| * sum_j |weight_j * output_j|, the shared
/// expert's and its gate among them.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(block_threads) sum_visits_kernel(const SumParams<T> p) {
  int* const places = &dynamic_shared<int>();
  auto* const weights = reinterpret_cast<float*>(places + p.active);
  const std::int64_t token = blockIdx.x;
  const auto thread = static_cast<int>(threadIdx.x);
  start_next_and_wait();
  for (int j = thread; j < p.active; j += block_threads) {
    const std::int32_t place = p.place_of[token * p.active + j];
    int rank = 0;
    for (int i = 0; i < p.active; ++i) rank += p.place_of[token * p.active + i] < place ? 1 : 0;
    places[rank] = place;
    weights[rank] = p.weights[token * p.active + j];
  }
  const float gate =
      p.gate.data == nullptr ? 0.0F : open_gate(p, p.gate_x + token * p.gate_x_stride);
  sync_block();
  const int column = (static_cast<int>(blockIdx.y) * block_threads + thread) * vector_size<T>;
  const int left = p.width - column;
  if (left <= 0) return;
  float sums[vector_size<T>] = {};
  for (int j = 0; j < p.active; ++j) {
    const std::int64_t row = static_cast<std::int64_t>(places[j]) * p.width;
    float values[vector_size<T>];
    load_values<Aligned>(p.outputs + row + column, left, values);
    for (int i = 0; i < vector_size<T>; ++i) sums[i] += weights[j] * values[i];
  }
  float values[vector_size<T>] = {};
  if (p.gate.data != nullptr) {
    load_values<Aligned>(p.shared_output + token * p.width + column, left, values);
    for (int i = 0; i < vector_size<T>; ++i) sums[i] += gate * values[i];
  }
  T* const y = p.y + token * p.y_stride + column;
  for (float& value : values) value = 0.0F;
  if (p.add) load_values<Aligned>(y, left, values);
  for (int i = 0; i < vector_size<T>; ++i) values[i] += p.scale * sums[i];
  store_values<Aligned>(y, left, values);
}

template <typename T>
void run(Stream& stream, const SumParams<T>& params, std::int64_t tokens) {
  const bool is_aligned =
      params.width % vector_size<T> == 0 && is_vector_aligned(params.y, params.y_stride);
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(tokens),
                         pieces(params.width, block_threads * vector_size<T>)),
          .threads = block_threads,
          .shared_bytes =
              static_cast<std::size_t>(std::max(params.active, 1)) * (sizeof(int) + sizeof(float))},
         is_aligned ? sum_visits_kernel<T, true> : sum_visits_kernel<T, false>, params);
}

}  // namespace

void sum_visits(Stream& stream, const VisitSum& sum, const MoeRoom& room) {
  visit_float(sum.y.dtype, [&]<typename T>(Tag<T>) {
    const SumParams<T> params = {.outputs = room.outputs.as<T>(),
                                 .shared_output = room.shared_output.as<T>(),
                                 .gate_x = sum.gate_x.as<T>(),
                                 .gate = sum.gate == nullptr ? AnyWeight{} : any_weight(*sum.gate),
                                 .place_of = room.place_of.as<std::int32_t>(),
                                 .weights = room.weights.as<float>(),
                                 .y = sum.y.as<T>(),
                                 .gate_x_stride = sum.gate_x.row_stride,
                                 .y_stride = sum.y.row_stride,
                                 .width = static_cast<int>(sum.y.dim(1)),
                                 .active = static_cast<int>(sum.active),
                                 .scale = sum.scale,
                                 .add = sum.add};
    run(stream, params, sum.y.dim(0));
  });
}

}  // namespace hyb::kernels::cuda
