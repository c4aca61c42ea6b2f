#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/linear/panels.h"
#include "kernels/published.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t panel_rows = Weight::panel_rows;
/// 64 words of 64 rows: 16 KB of source and 16 KB of panel stay in the first-level cache, and every
/// row gives whole cache lines.
constexpr std::int64_t tile_words = 64;
using Tile = std::array<std::uint32_t, panel_rows * tile_words>;

struct Panel {
  const std::byte* first_row;
  std::int64_t rows;     ///< 1 to 64
  std::int64_t columns;  ///< of a row
  DType from, to;

  std::int64_t row_bytes() const { return columns * static_cast<std::int64_t>(size_of(from)); }
};

/// words[r][j] -> out[j][r] for 64 rows whose words begin `stride` bytes apart.
void transpose(const std::byte* words, std::int64_t stride, std::byte* out) {
  for (std::int64_t j = 0; j < tile_words; j += 4) {
    for (std::int64_t r = 0; r < panel_rows; r += 4) {
      const std::byte* const from = words + r * stride + j * 4;
      __m128 row[4];
      for (int i = 0; i < 4; ++i) {
        row[i] = _mm_loadu_ps(reinterpret_cast<const float*>(from + i * stride));
        _mm_prefetch(reinterpret_cast<const char*>(from + i * stride + tile_words * 4),
                     _MM_HINT_T0);
      }
      _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
      float* const to = reinterpret_cast<float*>(out) + j * panel_rows + r;
      for (int i = 0; i < 4; ++i) _mm_storeu_ps(to + i * panel_rows, row[i]);
    }
  }
}

/// The general case of any type and any edge: the words of rows and columns that do not exist are
/// 0.
void convert(const Panel& panel, std::int64_t first_word, Tile& tile) {
  const std::int64_t per_word = panel.to == DType::bf16 ? 2 : 1;
  const std::int64_t first = first_word * per_word;
  const std::int64_t columns = std::min(panel.columns - first, tile_words * per_word);
  tile.fill(0);
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    const std::byte* const row = panel.first_row + r * panel.row_bytes();
    std::byte* const words =
        reinterpret_cast<std::byte*>(&tile[static_cast<std::size_t>(r * tile_words)]);
    for (std::int64_t i = 0; i < columns; ++i) {
      write_value(words, panel.to, i, published_value(row, panel.from, first + i));
    }
  }
}

void pack_panel(const Panel& panel, std::int64_t words, std::byte* out) {
  const bool whole_rows = panel.from == panel.to && panel.rows == panel_rows;
  for (std::int64_t word = 0; word < words; word += tile_words) {
    std::byte* const to = out + word * panel_rows * 4;
    if (whole_rows && (word + tile_words) * 4 <= panel.row_bytes()) {
      transpose(panel.first_row + word * 4, panel.row_bytes(), to);
      continue;
    }
    Tile tile;
    convert(panel, word, tile);
    const auto* const bytes = reinterpret_cast<const std::byte*>(tile.data());
    if (word + tile_words <= words) {
      transpose(bytes, tile_words * 4, to);
      continue;
    }
    Tile turned;
    transpose(bytes, tile_words * 4, reinterpret_cast<std::byte*>(turned.data()));
    std::memcpy(to, turned.data(), static_cast<std::size_t>((words - word) * panel_rows * 4));
  }
}

}  // namespace

void pack_panels(Queue& queue, const WeightSource& source, DType dtype, std::byte* out) {
  const PanelShape shape = panel_shape(dtype, source.rows, source.columns);
  queue.share(source.experts * shape.panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t expert = i / shape.panels;
      const std::int64_t row = i % shape.panels * panel_rows;
      Panel panel = {.first_row = nullptr,
                     .rows = std::min(panel_rows, source.rows - row),
                     .columns = source.columns,
                     .from = source.dtype,
                     .to = dtype};
      panel.first_row = source.bytes.data() + (expert * source.rows + row) * panel.row_bytes();
      pack_panel(panel, shape.words, out + i * shape.panel_bytes());
    }
  });
}

}  // namespace hyb::kernels
