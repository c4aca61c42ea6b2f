#include "kernels/bf16.h"
#include "kernels/linear/panel_routes.h"

namespace hyb::kernels {
namespace {

/// The meaning of PanelTile, for panels of T.
template <typename T>
void tile_plain(const PanelTile& tile) {
  constexpr std::int64_t per_word = sizeof(float) / sizeof(T);
  const T* const panel = static_cast<const T*>(tile.panel);
  for (std::int64_t r = 0; r < tile.count; ++r) {
    float* const sums = tile.sums + r * 64;
    for (int n = 0; n < 64 && tile.first; ++n) sums[n] = 0.0F;
    const T* const row = static_cast<const T*>(tile.rows[r]);
    for (std::int64_t k = 0; k < tile.columns; ++k) {
      const T* const word = panel + k / per_word * 64 * per_word + k % per_word;
      const float x = to_float(row[k]);
      for (int n = 0; n < 64; ++n) sums[n] += x * to_float(word[n * per_word]);
    }
  }
}

template <typename T>
void row_plain(const PanelRow& row) {
  T* const y = static_cast<T*>(row.y);
  for (std::int64_t n = 0; n < row.columns; ++n) {
    const float scaled = row.scale * row.sums[n];
    y[n] = from_float<T>(row.add ? to_float(y[n]) + scaled : scaled);
  }
}

}  // namespace

void panel_tile_bf16_plain(const PanelTile& tile) { tile_plain<bf16>(tile); }
void panel_tile_f32_plain(const PanelTile& tile) { tile_plain<float>(tile); }

void panel_row_plain(const PanelRow& row) {
  if (row.y_is_bf16) return row_plain<bf16>(row);
  row_plain<float>(row);
}

}  // namespace hyb::kernels
