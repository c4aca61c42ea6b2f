#include "kernels/ops/pack_snapshot.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/simd/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

/// Rows that one thread takes at once: some 64 KiB of state.
constexpr std::int64_t rows_at_once = 128;

void check(const Check& check, std::span<const SnapshotPiece> pieces, DType state_dtype,
           const Tensor& slot, const Tensor& packed) {
  check.that(state_dtype == DType::f32 || state_dtype == DType::bf16, "the state is f32 or bf16",
             static_cast<int>(state_dtype));
  check.tensor(slot, "slot", DType::u8, {slot.dim(0)});
  check.tensor(packed, "packed", DType::u8, {packed.dim(0)});
  const std::size_t element = size_of(state_dtype);
  const auto inside = [&](const Tensor& bytes, std::size_t offset, std::int64_t size,
                          std::size_t alignment) {
    const auto end = static_cast<std::int64_t>(offset) + size;
    check.that(end <= bytes.dim(0), "a piece lies within its bytes", end);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data) + offset;
    check.that(address % alignment == 0, "states and scales lie aligned",
               static_cast<std::int64_t>(offset));
  };
  for (const SnapshotPiece& piece : pieces) {
    check.that(piece.rows >= 0, "a piece has rows, or a window alone", piece.rows);
    check.that(piece.columns >= 1 || piece.rows == 0, "rows have columns", piece.columns);
    const auto window = static_cast<std::int64_t>(piece.window_bytes);
    const std::int64_t values = piece.rows * piece.columns;
    inside(slot, piece.slot_window, window, 1);
    inside(slot, piece.slot_state, values * static_cast<std::int64_t>(element), element);
    inside(packed, piece.packed_window, window, 1);
    inside(packed, piece.packed_scales, piece.rows * 2, 2);
    inside(packed, piece.packed_values, values, 1);
  }
}

template <typename T>
void pack_plain(const SnapshotRows<const T>& job) {
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const T* const state = job.state + row * job.columns;
    std::int8_t* const values = job.values + row * job.columns;
    std::uint32_t largest = 0;
    for (std::int64_t n = 0; n < job.columns; ++n) {
      largest = std::max(largest, std::bit_cast<std::uint32_t>(to_float(state[n])) & 0x7fffffffU);
    }
    job.scales[row] = snapshot_scale(largest);
    const float scale = snapshot_scale_value(job.scales[row]);
    for (std::int64_t n = 0; n < job.columns; ++n) {
      values[n] = std::isnan(scale)
                      ? std::int8_t{0}
                      : static_cast<std::int8_t>(std::nearbyint(to_float(state[n]) / scale));
    }
  }
}

template <typename T>
void unpack_plain(const SnapshotRows<T>& job) {
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const float scale = snapshot_scale_value(job.scales[row]);
    for (std::int64_t i = row * job.columns; i < (row + 1) * job.columns; ++i) {
      job.state[i] = from_float<T>(static_cast<float>(job.values[i]) * scale);
    }
  }
}

template <typename T>
void pack_rows(Isa isa, const SnapshotRows<const T>& job) {
  if (run_vectors(isa, job)) return;
  pack_plain(job);
}

template <typename T>
void unpack_rows(Isa isa, const SnapshotRows<T>& job) {
  if (run_vectors(isa, job)) return;
  unpack_plain(job);
}

/// Rows first .. first+rows-1 of a piece, both sides.
template <typename T>
SnapshotRows<T> rows_of(const SnapshotPiece& piece, std::byte* slot, std::byte* packed,
                        std::int64_t first, std::int64_t rows) {
  const std::int64_t at = first * piece.columns;
  return {.state = reinterpret_cast<T*>(slot + piece.slot_state) + at,
          .scales = reinterpret_cast<bf16*>(packed + piece.packed_scales) + first,
          .values = reinterpret_cast<std::int8_t*>(packed + piece.packed_values) + at,
          .rows = rows,
          .columns = piece.columns};
}

/// Parts of a piece that are done separately: its rows, or its window in one.
std::int64_t parts_of(const SnapshotPiece& piece) { return std::max(piece.rows, std::int64_t{1}); }

/// The share of a piece's window that goes with parts first .. first+count-1.
void copy_window(const SnapshotPiece& piece, std::byte* to, const std::byte* from,
                 std::int64_t first, std::int64_t count) {
  const auto cut = [&](std::int64_t part) {
    return piece.window_bytes * static_cast<std::size_t>(part) /
           static_cast<std::size_t>(parts_of(piece));
  };
  const std::size_t begin = cut(first);
  std::memcpy(to + begin, from + begin, cut(first + count) - begin);
}

/// Calls body(piece, first part, parts) until all parts of all pieces are covered.
template <typename Body>
void each_run(Queue& queue, std::span<const SnapshotPiece> pieces, Body&& body) {
  std::int64_t parts = 0, elements = 0;
  for (const SnapshotPiece& piece : pieces) {
    parts += parts_of(piece);
    elements += piece.rows * piece.columns;
  }
  const auto cover = [&](std::int64_t begin, std::int64_t end) {
    std::int64_t before = 0;
    for (const SnapshotPiece& piece : pieces) {
      const std::int64_t first = std::max(begin - before, std::int64_t{0});
      const std::int64_t last = std::min(end - before, parts_of(piece));
      if (first < last) body(piece, first, last - first);
      before += parts_of(piece);
    }
  };
  if (elements <= elements_alone) {
    queue.alone([&](int, int) { cover(0, parts); });
  } else {
    queue.share(parts, rows_at_once,
                [&](std::int64_t begin, std::int64_t end, int) { cover(begin, end); });
  }
}

}  // namespace

void pack_snapshot(Queue& queue, const PackSnapshot& op) {
  check(Check("pack_snapshot"), op.pieces, op.state_dtype, op.slot, op.packed);
  if (on_card(queue, [&](auto& stream) { cuda::pack_snapshot(stream, op); })) return;
  auto* const slot = op.slot.as<std::byte>();
  auto* const packed = op.packed.as<std::byte>();
  visit_float(op.state_dtype, [&]<typename T>(Tag<T>) {
    each_run(
        queue, op.pieces, [&](const SnapshotPiece& piece, std::int64_t first, std::int64_t count) {
          copy_window(piece, packed + piece.packed_window, slot + piece.slot_window, first, count);
          const std::int64_t rows = std::min(count, piece.rows);
          pack_rows(queue.isa(), rows_of<const T>(piece, slot, packed, first, rows));
        });
  });
}

void unpack_snapshot(Queue& queue, const UnpackSnapshot& op) {
  check(Check("unpack_snapshot"), op.pieces, op.state_dtype, op.slot, op.packed);
  if (on_card(queue, [&](auto& stream) { cuda::unpack_snapshot(stream, op); })) return;
  auto* const slot = op.slot.as<std::byte>();
  auto* const packed = op.packed.as<std::byte>();
  visit_float(op.state_dtype, [&]<typename T>(Tag<T>) {
    each_run(
        queue, op.pieces, [&](const SnapshotPiece& piece, std::int64_t first, std::int64_t count) {
          copy_window(piece, slot + piece.slot_window, packed + piece.packed_window, first, count);
          const std::int64_t rows = std::min(count, piece.rows);
          unpack_rows(queue.isa(), rows_of<T>(piece, slot, packed, first, rows));
        });
  });
}

}  // namespace hyb::kernels
