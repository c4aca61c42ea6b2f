#include "kernels/ops/cap.h"

#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

void check(const Cap& op) {
  const Check check("cap");
  check.tensor(op.x, "x", DType::f32, {op.x.dim(0), op.x.dim(1)});
  check.that(op.cap > 0, "cap is above 0", static_cast<std::int64_t>(op.cap));
}

void cap_plainly(const CapRow& row) {
  for (std::int64_t i = 0; i < row.count; ++i) row.x[i] = row.cap * std::tanh(row.x[i] / row.cap);
}

}  // namespace

void cap(Queue& queue, const Cap& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::cap(stream, op); })) return;
  constexpr std::int64_t grain = 1024;
  for (std::int64_t row = 0; row < op.x.dim(0); ++row) {
    share(queue, op.x.dim(1), grain, 1, [&](std::int64_t begin, std::int64_t end) {
      const CapRow part = {.x = op.x.row<float>(row) + begin, .count = end - begin, .cap = op.cap};
      if (!run_vectors(queue.isa(), part)) cap_plainly(part);
    });
  }
}

}  // namespace hyb::kernels
