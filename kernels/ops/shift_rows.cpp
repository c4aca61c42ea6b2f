#include "kernels/ops/shift_rows.h"

#include <cstring>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"

namespace hyb::kernels {
namespace {

void check(const ShiftRows& op, Device device) {
  const Check check("shift_rows", device);
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  const std::int64_t tokens = op.x.dim(0), columns = op.x.dim(1);
  check.tensor(op.y, "y", op.x.dtype, {tokens, columns});
  check.that(op.y.data != op.x.data, "y is not x", 0);
  check.tensor(op.kept, "kept", op.x.dtype, {op.kept.dim(0), columns});
  check.slots(op.read_slot, op.write_slot, check.spans(op.span_begin, tokens), op.kept.dim(0));
}

/// One span; its slot is written when all have read theirs.
void shift_span(const ShiftRows& op, std::int64_t span) {
  const std::size_t bytes = static_cast<std::size_t>(op.x.dim(1)) * size_of(op.x.dtype);
  const auto* const begin = op.span_begin.as<std::int32_t>();
  const auto* const read = op.read_slot.as<std::int32_t>();
  const auto* const write = op.write_slot.as<std::int32_t>();
  const auto row = [](const Tensor& of, std::int64_t at) { return of.rows(at, 1).data; };
  for (std::int64_t t = begin[span]; t < begin[span + 1]; ++t) {
    const bool is_first = t == begin[span];
    const bool is_chain = span > 0 && read[span] >= 0 && read[span] == write[span - 1];
    if (!is_first || is_chain) {
      std::memcpy(row(op.y, t), row(op.x, t - 1), bytes);
    } else if (read[span] >= 0) {
      std::memcpy(row(op.y, t), row(op.kept, read[span]), bytes);
    } else {
      std::memset(row(op.y, t), 0, bytes);
    }
  }
}

void keep_last(const ShiftRows& op, std::int64_t span) {
  const std::int32_t slot = op.write_slot.as<std::int32_t>()[span];
  if (slot < 0) return;
  const std::int32_t last = op.span_begin.as<std::int32_t>()[span + 1] - 1;
  std::memcpy(op.kept.rows(slot, 1).data, op.x.rows(last, 1).data,
              static_cast<std::size_t>(op.x.dim(1)) * size_of(op.x.dtype));
}

}  // namespace

void shift_rows(Queue& queue, const ShiftRows& op) {
  check(op, queue.device());
  if (on_card(queue, [&](auto& stream) { cuda::shift_rows(stream, op); })) return;
  const std::int64_t spans = op.read_slot.dim(0);
  const auto share_spans = [&](const auto& run) {
    share(queue, spans, 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t span = begin; span < end; ++span) run(op, span);
    });
  };
  share_spans(shift_span);
  share_spans(keep_last);
}

}  // namespace hyb::kernels
