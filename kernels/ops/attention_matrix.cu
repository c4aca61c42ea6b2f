#include <algorithm>
#include <bit>

#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_routes.h"
#include "kernels/cuda/attention_walk.h"
#include "kernels/cuda/routes.h"

namespace hyb::kernels::cuda {
namespace {

template <typename S>
using Params = AttentionParams<bf16, typename S::Kv>;

template <typename S>
__global__ void __launch_bounds__(S::threads, 1) attention_kernel(const Params<S> p) {
  auto& shared = dynamic_shared<AttentionShared<S>>();
  const ReadyRows<S, Params<S>> rows = {
      .p = p, .kv_head = static_cast<int>(blockIdx.y), .shared = shared};
  let_next_kernel_start();
  wait_for_previous_kernel();
  attend_tile<S>(p, rows, shared);
}

/// Spans of so many rows and fewer go to the narrow tiles.
constexpr std::int64_t short_rows = 64;

/// The most tiles that spans of rows_min rows and more can have in a step of so many rows.
std::int64_t tiles_max(std::int64_t rows, std::int64_t spans, std::int64_t rows_min,
                       std::int64_t tile_rows) {
  return rows / tile_rows + std::min(spans, rows / rows_min);
}

template <typename Narrow, typename Wide>
void launch_spans(Stream& stream, const Attention& op, const Params<Narrow>& params) {
  const std::int64_t tokens = op.q.dim(0), rows = tokens * params.group;
  const std::int64_t runs = runs_max(op);
  const bool all_narrow = tokens <= params.spans || rows <= short_rows;
  // A span of its own goes to one kind of tiles, so that a prompt is one launch.
  const std::int64_t wide_rows_min = params.spans == 1 ? 1 : short_rows + 1;
  if (all_narrow || wide_rows_min > 1) {
    // A token of its own has ceil(group / 16) tiles; tokens that share tiles have no more.
    const std::int64_t of_a_token = pieces(params.group, Narrow::rows);
    const std::int64_t tiles =
        std::min(tokens * of_a_token, all_narrow ? tiles_max(rows, params.spans, 1, Narrow::rows)
                                                 : params.spans * (short_rows / Narrow::rows));
    launch_tiles<Narrow, AttentionShared<Narrow>>(stream, attention_kernel<Narrow>, params, tiles,
                                                  runs, 1, all_narrow ? INT64_MAX : short_rows);
  }
  if (all_narrow) return;
  const std::int64_t tiles = tiles_max(rows, params.spans, wide_rows_min, Wide::rows);
  launch_tiles<Wide, AttentionShared<Wide>>(stream, attention_kernel<Wide>, params, tiles, runs,
                                            wide_rows_min, INT64_MAX);
}

template <typename K>
void attend(Stream& stream, const Attention& op) {
  auto params = attention_params<bf16, K>(op);
  lend_workspace(op, params);
  switch (tile_dim(op.head_dim)) {
    case 64:
      return launch_spans<NarrowShape<64, K>, AttentionShape<64, 8, 1, 4, K>>(stream, op, params);
    case 128:
      return launch_spans<NarrowShape<128, K>, AttentionShape<128, 8, 1, 3, K>>(stream, op, params);
    default:
      launch_spans<NarrowShape<256, K>, AttentionShape<256, 2, 4, 2, K>>(stream, op, params);
  }
}

}  // namespace

bool fits_attention_matrix(const Attention& op) {
  const auto is_matrix = [](const Tensor& x) {
    return x.dtype == DType::bf16 && is_vector_aligned(x.as<bf16>(), x.row_stride);
  };
  const Tensor& pages = op.pages_of_layer;
  const bool is_coded = pages.dtype == DType::f8_e4m3;
  const bool fits_pages =
      is_coded ? is_vector_aligned(pages.as<e4m3>(), pages.row_stride) : is_matrix(pages);
  return is_matrix(op.q) && is_matrix(op.y) && fits_pages &&
         (op.gate.empty() || is_matrix(op.gate)) && op.head_dim % (is_coded ? 16 : 8) == 0 &&
         op.head_dim <= 256;
}

void attention_matrix(Stream& stream, const Attention& op) {
  if (op.pages_of_layer.dtype == DType::f8_e4m3) return attend<e4m3>(stream, op);
  attend<bf16>(stream, op);
}

std::size_t attention_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                      std::int64_t head_dim, std::int64_t positions) {
  const std::int64_t runs = (positions + attention_run - 1) / attention_run;
  return static_cast<std::size_t>(tickets_max * 4 +
                                  tokens * heads * runs * record_floats(tile_dim(head_dim)) * 4);
}

}  // namespace hyb::kernels::cuda
