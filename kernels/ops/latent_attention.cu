#include <algorithm>

#include "kernels/cuda/attention_plain.h"
#include "kernels/cuda/attention_walk.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int write_threads = 128;

template <typename T, typename K>
struct WriteParams {
  PageParams<K> kv;  ///< a row is as wide as a head
  const T* rows;
  std::int64_t row_stride;
};

/// A block writes a token's row.
template <typename T, typename K>
__global__ void __launch_bounds__(write_threads) latent_write_kernel(const WriteParams<T, K> p) {
  const int token = static_cast<int>(blockIdx.x);
  start_next_and_wait();
  const int span = span_of_by_block(p.kv.span_begin, p.kv.spans, token);
  if (span >= p.kv.spans) return;
  const int position = p.kv.position[span] + token - p.kv.span_begin[span];
  const int width = p.kv.layout.head_dim, place = position % p.kv.layout.page_tokens;
  const T* const from = p.rows + token * p.row_stride;
  K* const to = p.kv.arena + p.kv.page_of(p.kv.page_begin[span], position) +
                static_cast<std::int64_t>(place) * width;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += write_threads) {
    to[i] = rounded<K>(to_float(from[i]));
  }
}

/// Attention with one head of keys, whose rows [turned | latent] are also the values.
template <typename T, typename K>
struct LatentParams : AttentionParams<T, K> {
  using Query = T;

  const T* turned;
  std::int64_t turned_stride;
  int turned_step, turned_width;  ///< from head to head

  __device__ int key_dim() const { return turned_width + this->kv.layout.head_dim; }
  __device__ std::int64_t key(int, int place) const {
    return static_cast<std::int64_t>(place) * key_dim();
  }
  __device__ std::int64_t value_offset() const { return turned_width; }
  __device__ const T* turned_of(int token, int head) const {
    return turned + token * turned_stride + static_cast<std::int64_t>(head) * turned_step;
  }
  __device__ float query(int token, int head, int d) const {
    if (d < turned_width) return to_float(turned_of(token, head)[d]);
    return AttentionParams<T, K>::query(token, head, d - turned_width);
  }
};

PagedAttention attention_of(const LatentAttention& op) {
  return {.q = op.latent,
          .kv = op.kv,
          .y = op.y,
          .heads = op.shape.heads,
          .kv_heads = 1,
          .head_dim = op.shape.latent_width,
          .scale = op.shape.scale,
          .workspace = op.workspace,
          .gate = op.gate,
          .positions = op.positions};
}

template <typename T, typename K>
LatentParams<T, K> params_of(const LatentAttention& op) {
  return {attention_params<T, K>(attention_of(op)), op.turned.as<T>(), op.turned.row_stride,
          static_cast<int>(op.turned.dim(1) / op.shape.heads), op.shape.turned_width};
}

constexpr int latent_max = 512, turned_max = 64;

/// Tiles of rows with the latent first, so that the values of a tile are its first columns. There
/// is one tile of keys: two blocks of a multiprocessor copy and multiply in turns.
template <typename K>
struct Shape : AttentionShape<latent_max + turned_max, 1, 4, 1, bf16, false> {
  using Kv = K;
  static constexpr int value_dim = latent_max, sums = latent_max / 8 / column_warps;
  static constexpr int eights = head_dim / 8;  ///< pieces of a row
  static constexpr bool has_codes = std::is_same_v<K, e4m3>;
};
template <typename S>
using Params = LatentParams<bf16, typename S::Kv>;

/// Returns where piece `eight` of a row is in [turned | latent]; -1: there is none.
template <typename S>
__device__ __forceinline__ int offset_of_piece(const Params<S>& p, int eight) {
  const int latent = eight * 8, turned = latent - latent_max;
  if (turned >= 0) return turned < p.turned_width ? turned : -1;
  return latent < p.kv.layout.head_dim ? p.turned_width + latent : -1;
}

/// Copies the tile's queries, asynchronously, zeros where there is no row.
template <typename S>
__device__ __forceinline__ void copy_latent_queries(const Params<S>& p, const AttentionTile& tile,
                                                    AttentionShared<S>& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < S::rows * S::eights; i += S::threads) {
    const int row = i / S::eights, eight = i % S::eights, offset = offset_of_piece<S>(p, eight);
    const int of_span = tile.first_row + (row < tile.rows ? row : 0);
    const int token = tile.token + of_span / p.group, head = of_span % p.group;
    const bf16* const from = eight * 8 < latent_max
                                 ? p.q + p.offset_of(tile.token, 0, of_span, p.q_stride) + eight * 8
                                 : p.turned_of(token, head) + eight * 8 - latent_max;
    cp_async16(shared.queries.at(row, eight), from, row < tile.rows && offset >= 0);
  }
}

/// Copies the rows of tile `t`, whose places are known; keys that no row attends to are zeros,
/// whatever memory holds. Codes are widened on the way.
template <typename S>
__device__ __forceinline__ void copy_keys(const Params<S>& p, const KeyWalk& walk, int t,
                                          AttentionShared<S>& shared) {
  const int skipped = walk.begin - walk.key_of(t), left = walk.end - walk.key_of(t);
#pragma unroll 2
  for (int i = hidden(static_cast<int>(threadIdx.x)); i < tile_keys * S::eights; i += S::threads) {
    const int key = i / S::eights, eight = i % S::eights, offset = offset_of_piece<S>(p, eight);
    const bool is_there = key >= skipped && key < left && offset >= 0;
    const auto* const from = p.kv.arena + shared.places[key] + (is_there ? offset : 0);
    bf16* const to = shared.ring.tile(0).at(key, eight);
    if constexpr (S::has_codes) {
      uint4 numbers = {};
      if (is_there) {
        const uint2 codes = load8(from);
        numbers = widen(codes.x, codes.y);
      }
      store16(to, numbers);
    } else {
      cp_async16(to, from, is_there);
    }
  }
}

/// Works as walk_keys: the weights of a tile of keys, then their sums of the same tile.
template <typename S, typename RunEnds>
__device__ __forceinline__ void walk_rows(const Params<S>& p, AttentionShared<S>& shared,
                                          RunEnds run_ends) {
  const AttentionTile& tile = shared.search.found[0];
  const KeyWalk& walk = shared.walk[0];
  const int thread = static_cast<int>(threadIdx.x), column_warp = thread / warp_size;
  const auto place = [&](int t) {
    return place_of_key(p, tile, 0, walk.key_of(t) + thread % tile_keys, walk);
  };
  copy_latent_queries<S>(p, tile, shared);
  std::int64_t next = place(0);
  RowSums<S> part;
  part.clear();
  for (int t = 0; t < walk.tiles; ++t) {
    if (thread < tile_keys) shared.places[thread] = next;
    sync_block();  // the places are there, and all are done with the tile before
    copy_keys<S>(p, walk, t, shared);
    cp_async_commit();
    if (t + 1 < walk.tiles) next = place(t + 1);
    cp_async_wait<0>();
    sync_block();  // the tile has arrived for all
    const int key = walk.key_of(t), warp_key = column_warp * S::scores * 8;
    float scores[S::scores][4], largest[2];
    score_keys<S>(shared, shared.ring.tile(0), 0, warp_key, scores);
    if (key + tile_keys - 1 > shared.reach[0].last) {
      mask_scores<S>(shared, 0, key + warp_key, scores);
    }
    find_largest<S>(scores, 0, column_warp, shared, largest);
    std::uint32_t pairs[S::scores][2], weights[tile_keys / 16][4];
    weigh<S>(scores, largest, p.scale, part, pairs);
    share_weights<S>(pairs, 0, column_warp, shared);
    sync_block();
    load_weights<S>(pairs, 0, shared, weights);
    add_values<S>(weights, shared.ring.tile(0), column_warp, part);
    if ((t + 1) % KeyWalk::tiles_of_run == 0 || t + 1 == walk.tiles) {
      run_ends(walk.run_of(t), part);
      part.clear();
    }
  }
}

/// grid (tiles of 16 heads of tokens, 1, parts of the runs): a block reads a row once for its
/// heads. The bound of attend_tile.
template <typename S>
__global__ void __launch_bounds__(S::threads, 2) latent_attention_kernel(const Params<S> p) {
  auto& shared = dynamic_shared<AttentionShared<S>>();
  start_next_and_wait();
  attend_tile<S>(p, shared, [&](auto run_ends) { walk_rows<S>(p, shared, run_ends); });
}

template <typename K>
void attend_by_matrix(Stream& stream, const LatentAttention& op) {
  using S = Shape<K>;
  static_assert(sizeof(AttentionShared<S>) <= shared_bytes_everywhere);
  Params<S> params = params_of<bf16, K>(op);
  const PagedAttention as_attention = attention_of(op);
  set_workspace(as_attention, S::value_dim, params);
  const std::int64_t tokens = op.latent.dim(0), rows = tokens * op.shape.heads;
  const std::int64_t tiles =
      std::min<std::int64_t>(tokens * pieces(op.shape.heads, S::rows),
                             rows / S::rows + std::min<std::int64_t>(params.kv.spans, rows));
  launch_tiles<S, AttentionShared<S>>(stream, latent_attention_kernel<S>, params, tiles,
                                      runs_max(as_attention), 1, INT64_MAX);
}

bool fits_matrix(const LatentAttention& op) {
  const auto is_matrix = [](const Tensor& x) {
    return x.dtype == DType::bf16 && is_vector_aligned(x.as<bf16>(), x.row_stride);
  };
  const Tensor& pages = op.kv.arena;
  const bool fits_pages = pages.dtype == DType::f8_e4m3
                              ? is_vector_aligned(pages.as<e4m3>(), pages.row_stride)
                              : is_matrix(pages);
  return fits_pages && is_matrix(op.latent) && is_matrix(op.y) && is_matrix(op.turned) &&
         op.turned.dim(1) / op.shape.heads % 8 == 0 && op.shape.turned_width % 8 == 0 &&
         op.shape.turned_width <= turned_max && op.shape.latent_width % 8 == 0 &&
         op.shape.latent_width <= latent_max;
}

}  // namespace

void latent_write(Stream& stream, const LatentWrite& op) {
  if (op.rows.dim(0) == 0) return;
  visit_float(op.rows.dtype, [&]<typename T>(Tag<T>) {
    visit_kv(op.kv.arena.dtype, [&]<typename K>(Tag<K>) {
      const WriteParams<T, K> params = {.kv = page_params<K>(op.kv, op.rows.dim(1)),
                                        .rows = op.rows.as<T>(),
                                        .row_stride = op.rows.row_stride};
      launch(stream,
             {.blocks = dim3(static_cast<unsigned>(op.rows.dim(0))), .threads = write_threads},
             latent_write_kernel<T, K>, params);
    });
  });
}

void latent_attention(Stream& stream, const LatentAttention& op) {
  require(op.shape.scale > 0.0F, "latent_attention: scale is positive on the device");
  if (op.latent.dim(0) == 0 || op.kv.spans() == 0) return;
  if (fits_matrix(op)) {
    if (op.kv.arena.dtype == DType::f8_e4m3) return attend_by_matrix<e4m3>(stream, op);
    return attend_by_matrix<bf16>(stream, op);
  }
  visit_float(op.latent.dtype, [&]<typename T>(Tag<T>) {
    visit_kv(op.kv.arena.dtype, [&]<typename K>(Tag<K>) {
      constexpr int dims = static_cast<int>(latent_width_max) / warp_size;
      attend_plain<dims>(stream, params_of<T, K>(op), op.latent.dim(0));
    });
  });
}

std::size_t latent_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                   std::int64_t positions) {
  const std::int64_t runs = (positions + attention_run - 1) / attention_run;
  return static_cast<std::size_t>(semaphores_max * 4 +
                                  tokens * heads * runs * partial_floats(latent_max) * 4);
}

}  // namespace hyb::kernels::cuda
