#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention_plain.h"
#include "kernels/cuda/attention_walk.h"
#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/simd/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {

void paged_attention(Stream& stream, const PagedAttention& op) {
  require(op.scale > 0.0F, "paged_attention: scale is positive on the device");
  require(op.head_dim <= attention_head_dim_max, "paged_attention: head_dim is at most 512");
  if (op.q.dim(0) == 0 || op.kv.spans() == 0) return;
  if (fits_attention_matrix(op)) return attention_matrix(stream, op);
  attention_plain(stream, op);
}

namespace {

template <int Dims, typename T, typename K>
void run(Stream& stream, const PagedAttention& op) {
  attend_plain<Dims>(stream, attention_params<T, K>(op), op.q.dim(0));
}

}  // namespace

void attention_plain(Stream& stream, const PagedAttention& op) {
  visit_float(op.q.dtype, [&]<typename T>(Tag<T>) {
    visit_kv(op.kv.arena.dtype, [&]<typename K>(Tag<K>) {
      if (op.head_dim <= 128) return run<4, T, K>(stream, op);
      run<static_cast<int>(attention_head_dim_max) / warp_size, T, K>(stream, op);
    });
  });
}

namespace {

template <typename S>
using Params = AttentionParams<bf16, typename S::Kv>;

template <typename S>
__global__ void __launch_bounds__(S::threads, 1) attention_kernel(const Params<S> p) {
  auto& shared = dynamic_shared<AttentionShared<S>>();
  const ReadyRows<S, Params<S>> rows = {
      .p = p, .kv_head = static_cast<int>(blockIdx.y), .shared = shared};
  start_next_and_wait();
  attend_tile<S>(p, shared,
                 [&](auto run_ends) { walk_keys<S>(p, rows.kv_head, rows, shared, run_ends); });
}

/// Spans of at most this many rows go to the narrow tiles.
constexpr std::int64_t short_rows = 64;

/// The most tiles that spans of rows_min rows and more can have in a step of `rows` rows.
std::int64_t tiles_max(std::int64_t rows, std::int64_t spans, std::int64_t rows_min,
                       std::int64_t tile_rows) {
  return rows / tile_rows + std::min(spans, rows / rows_min);
}

template <typename Narrow, typename Wide>
void launch_spans(Stream& stream, const PagedAttention& op, const Params<Narrow>& params) {
  static_assert(sizeof(AttentionShared<Narrow>) <= shared_bytes_everywhere);
  const std::int64_t tokens = op.q.dim(0), rows = tokens * params.group;
  const std::int64_t runs = runs_max(op);
  const bool all_narrow = tokens <= params.kv.spans || rows <= short_rows;
  // A span of its own goes to one kind of tiles, so that a prompt is one launch.
  const std::int64_t wide_rows_min = params.kv.spans == 1 ? 1 : short_rows + 1;
  if (all_narrow || wide_rows_min > 1) {
    // A token of its own has ceil(group / 16) tiles; tokens that share tiles have no more.
    const std::int64_t of_a_token = pieces(params.group, Narrow::rows);
    const std::int64_t tiles =
        std::min(tokens * of_a_token, all_narrow ? tiles_max(rows, params.kv.spans, 1, Narrow::rows)
                                                 : params.kv.spans * (short_rows / Narrow::rows));
    launch_tiles<Narrow, AttentionShared<Narrow>>(stream, attention_kernel<Narrow>, params, tiles,
                                                  runs, 1, all_narrow ? INT64_MAX : short_rows);
  }
  if (all_narrow) return;
  const std::int64_t tiles = tiles_max(rows, params.kv.spans, wide_rows_min, Wide::rows);
  launch_tiles<Wide, AttentionShared<Wide>>(stream, attention_kernel<Wide>, params, tiles, runs,
                                            wide_rows_min, INT64_MAX);
}

/// Wide tiles for heads of 256: of 64 rows, with three tiles of keys and values in the ring, where
/// a block has room for them. Keys and values come from the second-level cache half as often then,
/// and the copies of one tile are under way while the one before is multiplied.
template <typename K, bool IsCapped>
void attend_256(Stream& stream, const PagedAttention& op, const AttentionParams<bf16, K>& params) {
  using Small = AttentionShape<256, 2, 4, 2, K, IsCapped>;
  using Large = AttentionShape<256, 4, 2, 3, K, IsCapped>;
  static_assert(sizeof(AttentionShared<Small>) <= shared_bytes_everywhere);
  if (sizeof(AttentionShared<Large>) <= stream.shared_bytes_max()) {
    return launch_spans<NarrowShape<256, K, IsCapped>, Large>(stream, op, params);
  }
  launch_spans<NarrowShape<256, K, IsCapped>, Small>(stream, op, params);
}

template <typename K, bool IsCapped>
void attend(Stream& stream, const PagedAttention& op) {
  using Wide64 = AttentionShape<64, 8, 1, 4, K, IsCapped>;
  using Wide128 = AttentionShape<128, 8, 1, 3, K, IsCapped>;
  static_assert(sizeof(AttentionShared<Wide64>) <= shared_bytes_everywhere);
  static_assert(sizeof(AttentionShared<Wide128>) <= shared_bytes_everywhere);
  auto params = attention_params<bf16, K>(op);
  set_workspace(op, tile_dim(op.head_dim), params);
  switch (tile_dim(op.head_dim)) {
    case 64:
      return launch_spans<NarrowShape<64, K, IsCapped>, Wide64>(stream, op, params);
    case 128:
      return launch_spans<NarrowShape<128, K, IsCapped>, Wide128>(stream, op, params);
    default:
      attend_256<K, IsCapped>(stream, op, params);
  }
}

template <typename K>
void attend_pages(Stream& stream, const PagedAttention& op) {
  if (op.softcap == 0.0F) return attend<K, false>(stream, op);
  attend<K, true>(stream, op);
}

}  // namespace

bool fits_attention_matrix(const PagedAttention& op) {
  const auto is_matrix = [](const Tensor& x) {
    return x.dtype == DType::bf16 && is_vector_aligned(x.as<bf16>(), x.row_stride);
  };
  const Tensor& pages = op.kv.arena;
  const bool is_coded = pages.dtype == DType::f8_e4m3;
  const bool fits_pages =
      is_coded ? is_vector_aligned(pages.as<e4m3>(), pages.row_stride) : is_matrix(pages);
  const bool fits_gate = op.gate.empty() || op.gate_dim() == 1 || is_matrix(op.gate);
  return is_matrix(op.q) && is_matrix(op.y) && fits_pages && fits_gate &&
         op.head_dim % (is_coded ? 16 : 8) == 0 && op.head_dim <= 256;
}

void attention_matrix(Stream& stream, const PagedAttention& op) {
  if (op.kv.arena.dtype == DType::f8_e4m3) return attend_pages<e4m3>(stream, op);
  attend_pages<bf16>(stream, op);
}

std::size_t attention_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                      std::int64_t head_dim, std::int64_t positions) {
  const std::int64_t runs = (positions + attention_run - 1) / attention_run;
  return static_cast<std::size_t>(semaphores_max * 4 +
                                  tokens * heads * runs * partial_floats(tile_dim(head_dim)) * 4);
}

}  // namespace hyb::kernels::cuda
