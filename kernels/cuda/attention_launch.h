#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_records.h"
#include "kernels/cuda/launch.h"
#include "kernels/ops/attention.h"

/// How the kernels that walk tiles of keys are started.
namespace hyb::kernels::cuda {

/// Blocks wanted: some for each multiprocessor of a large card. Parts of the runs are shared out
/// where there are fewer.
inline constexpr std::int64_t blocks_wanted = 384;

/// Dimensions of the tiles that heads of so many go through.
inline std::int64_t tile_dim(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

/// The op's workspace as tickets and records.
template <typename Params>
void lend_workspace(const Attention& op, Params& params) {
  constexpr std::int64_t tickets_bytes = tickets_max * sizeof(unsigned);
  if (op.workspace.empty()) return;
  auto* const bytes = static_cast<std::byte*>(op.workspace.data);
  const std::int64_t size =
      op.workspace.size() * static_cast<std::int64_t>(size_of(op.workspace.dtype));
  params.tickets = reinterpret_cast<unsigned*>(bytes);
  params.records = reinterpret_cast<float*>(bytes + tickets_bytes);
  params.records_max =
      std::max<std::int64_t>(0, size - tickets_bytes) / (record_floats(tile_dim(op.head_dim)) * 4);
}

/// The most runs that a span can have.
inline std::int64_t runs_max(const Attention& op) {
  return std::max<std::int64_t>(1, pieces(op.pages.dim(0) * op.page_tokens, attention_run));
}

/// A kernel of shape S with a Shared in dynamic shared memory, over at most so many tiles of spans
/// of rows_min .. rows_max rows.
template <typename S, typename Shared, typename Params>
void launch_tiles(Stream& stream, void (*kernel)(Params), Params params, std::int64_t tiles,
                  std::int64_t runs, std::int64_t rows_min, std::int64_t rows_max) {
  static_assert(sizeof(Shared) <= 99 << 10, "what sm_86 and sm_89 have for a block");
  static_assert(S::wide_tiles == 2 || S::column_warps > 1, "a barrier between scores and values");
  params.rows_min = static_cast<int>(rows_min);
  params.rows_max = static_cast<int>(std::min<std::int64_t>(rows_max, INT32_MAX));
  const std::int64_t blocks = tiles * params.kv_heads;
  const std::int64_t parts =
      params.records_max == 0 ? 1 : std::clamp<std::int64_t>(blocks_wanted / blocks, 1, runs);
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(params.kv_heads),
                         static_cast<unsigned>(parts)),
          .threads = S::threads,
          .shared_bytes = sizeof(Shared),
          .starts_early = true},
         kernel, params);
}

}  // namespace hyb::kernels::cuda
