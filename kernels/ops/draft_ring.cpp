#include "kernels/ops/draft_ring.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

/// Returns how many rows the ring has; none is empty.
std::int64_t check_ring(const Check& check, const Tensor& ring, const Tensor& x,
                        std::int64_t ring_column) {
  if (ring.empty()) return 0;
  check.that(ring.rank == 3, "ring is [G,E,W]", ring.rank);
  check.tensor(ring, "ring", x.dtype, {ring.dim(0), ring.dim(1), ring.dim(2)});
  check.that(ring_column >= 0 && ring_column + x.dim(1) <= ring.dim(2),
             "the columns are within the ring", ring_column);
  return ring.dim(0) * ring.dim(1);
}

/// Row n of a ring tensor.
template <typename T>
T* ring_row(const Tensor& ring, std::int64_t n) {
  return ring.row<T>(n / ring.dim(1)) + n % ring.dim(1) * ring.dim(2);
}

void check(const ExtendRows& op, Device device) {
  const Check check("extend_rows", device);
  check.activations(op.y, "y");
  check.that(op.y.rank == 2, "y is a matrix", op.y.rank);
  check.tensor(op.x, "x", op.y.dtype, {op.x.dim(0), op.y.dim(1)});
  check.table(op.from, "from", op.y.dim(0));
  const std::int64_t ring_rows = check_ring(check, op.ring, op.x, op.ring_column);
  if (!check.reads_tables()) return;
  for (std::int64_t i = 0; i < op.y.dim(0); ++i) {
    const std::int32_t from = op.from.as<std::int32_t>()[i];
    check.that(from < op.x.dim(0), "from is a row of x", from);
    check.that(op.ring.empty() || from >= -ring_rows || from == no_row, "from is a row of a ring",
               from);
  }
}

template <typename T>
void extend_row(const ExtendRows& op, std::int64_t i) {
  const std::int32_t from = op.from.as<std::int32_t>()[i];
  T* const y = op.y.row<T>(i);
  if (from == no_row || (from < 0 && op.ring.empty())) {
    std::fill_n(y, op.y.dim(1), from_float<T>(from == no_row ? 0.0F : 1.0F));
    return;
  }
  const T* const row =
      from >= 0 ? op.x.row<T>(from) : ring_row<T>(op.ring, -1 - from) + op.ring_column;
  std::memcpy(y, row, static_cast<std::size_t>(op.y.dim(1)) * sizeof(T));
}

void check(const KeepRows& op, Device device) {
  const Check check("keep_rows", device);
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  if (!op.gate.empty()) check.tensor(op.gate, "gate", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
  check.table(op.to, "to", op.x.dim(0));
  check.that(!op.ring.empty(), "there is a ring", 0);
  const std::int64_t ring_rows = check_ring(check, op.ring, op.x, op.ring_column);
  if (!check.reads_tables()) return;
  for (std::int64_t i = 0; i < op.x.dim(0); ++i) {
    const std::int32_t to = op.to.as<std::int32_t>()[i];
    check.that(to < ring_rows, "to is a row of a ring", to);
  }
}

template <typename T>
void keep_row(const KeepRows& op, std::int64_t i) {
  const std::int32_t to = op.to.as<std::int32_t>()[i];
  if (to < 0) return;
  const T* const x = op.x.row<T>(i);
  T* const kept = ring_row<T>(op.ring, to) + op.ring_column;
  if (op.gate.empty()) {
    std::memcpy(kept, x, static_cast<std::size_t>(op.x.dim(1)) * sizeof(T));
    return;
  }
  const T* const gate = op.gate.row<T>(i);
  for (std::int64_t c = 0; c < op.x.dim(1); ++c) {
    kept[c] = from_float<T>(to_float(gate[c]) * to_float(x[c]));
  }
}

}  // namespace

void extend_rows(Queue& queue, const ExtendRows& op) {
  check(op, queue.device());
  if (on_card(queue, [&](auto& stream) { cuda::extend_rows(stream, op); })) return;
  share(queue, op.y.dim(0), 1, op.y.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.y.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t i = begin; i < end; ++i) extend_row<T>(op, i);
    });
  });
}

void keep_rows(Queue& queue, const KeepRows& op) {
  check(op, queue.device());
  if (on_card(queue, [&](auto& stream) { cuda::keep_rows(stream, op); })) return;
  share(queue, op.x.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t i = begin; i < end; ++i) keep_row<T>(op, i);
    });
  });
}

}  // namespace hyb::kernels
