#include "kernels/ops/rope.h"

#include <array>
#include <cmath>

#include "kernels/ops/check.h"
#include "kernels/ops/share.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t pairs_max = 512;

struct Turn {
  float cosine, sine;
};
using Turns = std::array<Turn, pairs_max>;

void check(const Rope& op) {
  const Check check("rope");
  check.activations(op.x, "x");
  check.tensor(op.x, "x", op.x.dtype, {op.x.dim(0), op.heads * op.head_dim});
  check.table(op.position_of_row, "position_of_row", op.x.dim(0));
  check.that(op.rotary_dim >= 2 && op.rotary_dim % 2 == 0, "rotary_dim is even", op.rotary_dim);
  check.that(op.rotary_dim <= op.head_dim, "rotary_dim is within head_dim", op.rotary_dim);
  check.that(op.rotary_dim <= 2 * pairs_max, "rotary_dim is at most 1024", op.rotary_dim);
  check.that(op.theta > 0.0, "theta is positive", static_cast<std::int64_t>(op.theta));
}

void fill_turns(const std::array<double, pairs_max>& frequencies, std::int64_t pairs,
                std::int32_t position, Turns& turns) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(pairs); ++i) {
    const double angle = position * frequencies[i];
    turns[i] = {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
  }
}

template <typename T>
void turn_head(const Turns& turns, std::int64_t pairs, T* x) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const Turn turn = turns[static_cast<std::size_t>(i)];
    const float low = to_float(x[i]), high = to_float(x[i + pairs]);
    x[i] = from_float<T>(low * turn.cosine - high * turn.sine);
    x[i + pairs] = from_float<T>(high * turn.cosine + low * turn.sine);
  }
}

}  // namespace

void rope(Queue& queue, const Rope& op) {
  check(op);
  const std::int64_t pairs = op.rotary_dim / 2;
  std::array<double, pairs_max> frequencies;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(op.rotary_dim);
    frequencies[static_cast<std::size_t>(i)] = std::pow(op.theta, exponent);
  }
  const std::int64_t elements = op.heads * op.rotary_dim + 32 * pairs;
  share(queue, op.x.dim(0), 1, elements, [&](std::int64_t begin, std::int64_t end) {
    Turns turns;
    for (std::int64_t t = begin; t < end; ++t) {
      fill_turns(frequencies, pairs, op.position_of_row.as<std::int32_t>()[t], turns);
      visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
        for (std::int64_t head = 0; head < op.heads; ++head) {
          turn_head<T>(turns, pairs, op.x.row<T>(t) + head * op.head_dim);
        }
      });
    }
  });
}

}  // namespace hyb::kernels
