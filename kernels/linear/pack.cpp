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

using RowPointers = std::array<const std::byte*, panel_rows>;

struct Panel {
  std::array<WeightRow, panel_rows> rows = {};
  std::int64_t count;    ///< of rows, 1 to 64
  std::int64_t columns;  ///< of a row
  DType to;

  /// Whether the rows are what the panel holds, but for their order.
  bool is_copy() const {
    return count == panel_rows &&
           std::all_of(rows.begin(), rows.end(),
                       [this](const WeightRow& row) { return row.dtype == to; });
  }
  RowPointers bytes() const {
    RowPointers pointers;
    for (std::size_t r = 0; r < pointers.size(); ++r) pointers[r] = rows[r].bytes;
    return pointers;
  }
};

/// rows[r][first_byte / 4 + j] -> out[j][r] for 64 rows of words.
void transpose(const RowPointers& rows, std::int64_t first_byte, std::byte* out) {
  for (std::int64_t j = 0; j < tile_words; j += 4) {
    for (std::int64_t r = 0; r < panel_rows; r += 4) {
      __m128 row[4];
      for (int i = 0; i < 4; ++i) {
        const std::byte* const from = rows[static_cast<std::size_t>(r + i)] + first_byte + j * 4;
        row[i] = _mm_loadu_ps(reinterpret_cast<const float*>(from));
        _mm_prefetch(reinterpret_cast<const char*>(from + tile_words * 4), _MM_HINT_T0);
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
  for (std::int64_t r = 0; r < panel.count; ++r) {
    const WeightRow& row = panel.rows[static_cast<std::size_t>(r)];
    std::byte* const words =
        reinterpret_cast<std::byte*>(&tile[static_cast<std::size_t>(r * tile_words)]);
    for (std::int64_t i = 0; i < columns; ++i) {
      write_value(words, panel.to, i, published_value(row, first + i));
    }
  }
}

void transpose(const Tile& tile, std::byte* out) {
  RowPointers rows;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r] = reinterpret_cast<const std::byte*>(&tile[r * tile_words]);
  }
  transpose(rows, 0, out);
}

void pack_panel(const Panel& panel, std::int64_t words, std::byte* out) {
  const std::int64_t row_bytes = panel.columns * static_cast<std::int64_t>(size_of(panel.to));
  const bool is_copy = panel.is_copy();
  const RowPointers rows = panel.bytes();
  for (std::int64_t word = 0; word < words; word += tile_words) {
    std::byte* const to = out + word * panel_rows * 4;
    if (is_copy && (word + tile_words) * 4 <= row_bytes) {
      transpose(rows, word * 4, to);
      continue;
    }
    Tile tile;
    convert(panel, word, tile);
    if (word + tile_words <= words) {
      transpose(tile, to);
      continue;
    }
    Tile turned;
    transpose(tile, reinterpret_cast<std::byte*>(turned.data()));
    std::memcpy(to, turned.data(), static_cast<std::size_t>((words - word) * panel_rows * 4));
  }
}

/// Rows first .. first+count-1 of all experts' rows.
Panel panel_of(const WeightSource& source, std::int64_t first, std::int64_t count, DType to) {
  Panel panel = {.count = count, .columns = source.columns, .to = to};
  for (std::int64_t r = 0; r < count; ++r) {
    panel.rows[static_cast<std::size_t>(r)] = source.row(first + r);
  }
  return panel;
}

}  // namespace

void pack_panels(Queue& queue, const WeightSource& source, DType dtype, std::byte* out) {
  const PanelShape shape = panel_shape(dtype, source.rows, source.columns);
  queue.share(source.experts * shape.panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i % shape.panels * panel_rows;
      const std::int64_t first = i / shape.panels * source.rows + row;
      const std::int64_t count = std::min(panel_rows, source.rows - row);
      pack_panel(panel_of(source, first, count, dtype), shape.words, out + i * shape.panel_bytes());
    }
  });
}

}  // namespace hyb::kernels
