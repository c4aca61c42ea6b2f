#include "kernels/ops/attention.h"

#include <array>
#include <cmath>
#include <limits>

#include "kernels/ops/check.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/share.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t head_dim_max = 512;

void check(const Attention& op) {
  const Check check("attention");
  check.activations(op.q, "q");
  check.that(op.kv_heads >= 1 && op.heads % op.kv_heads == 0, "kv_heads divides heads",
             op.kv_heads);
  check.that(op.head_dim >= 2 && op.head_dim % 2 == 0, "head_dim is even", op.head_dim);
  check.that(op.head_dim <= head_dim_max, "head_dim is at most 512", op.head_dim);
  check.that(op.page_tokens >= 2 && op.page_tokens % 2 == 0, "page_tokens is even", op.page_tokens);
  const std::int64_t tokens = op.q.dim(0), width = op.heads * op.head_dim;
  check.tensor(op.q, "q", op.q.dtype, {tokens, width});
  check.tensor(op.y, "y", op.q.dtype, {tokens, width});
  check.that(op.y.data != op.q.data, "y is not q", 0);
  const std::int64_t pages_max = op.pages_of_layer.dim(0);
  check.tensor(op.pages_of_layer, "pages_of_layer", op.q.dtype,
               {pages_max, 2 * op.kv_heads * op.head_dim * op.page_tokens});
  check.spans(op.span_begin, tokens);
  check.page_tables(op.span_begin, op.position, op.page_begin, op.pages, op.page_tokens, pages_max);
}

/// One query head against the keys of its sequence, one after the other: whenever a larger score
/// comes, what was summed so far shrinks by exp(old maximum - new maximum).
template <typename T>
void attend(const Attention& op, const std::int32_t* pages, std::int64_t kv_head,
            std::int64_t last_position, const T* q, T* y) {
  const KvLayout layout{op.head_dim, op.page_tokens, size_of(op.q.dtype) == 2 ? 2 : 1};
  std::array<float, head_dim_max> sums{};
  float largest = -std::numeric_limits<float>::infinity(), weights = 0.0F;
  for (std::int64_t position = 0; position <= last_position; ++position) {
    const T* const head =
        op.pages_of_layer.row<T>(pages[position / op.page_tokens]) + kv_head * layout.head_size();
    const std::int64_t place = position % op.page_tokens;
    float dot = 0.0F;
    for (std::int64_t i = 0; i < op.head_dim; ++i) {
      dot += to_float(q[i]) * to_float(head[layout.key(place, i)]);
    }
    const float score = dot * op.scale;
    const float next = std::fmax(largest, score);
    const float shrink = std::exp(largest - next), weight = std::exp(score - next);
    weights = weights * shrink + weight;
    for (std::int64_t i = 0; i < op.head_dim; ++i) {
      float& sum = sums[static_cast<std::size_t>(i)];
      sum = sum * shrink + weight * to_float(head[layout.value(place, i)]);
    }
    largest = next;
  }
  for (std::int64_t i = 0; i < op.head_dim; ++i) {
    y[i] = from_float<T>(sums[static_cast<std::size_t>(i)] / weights);
  }
}

template <typename T>
void attend_heads(const Attention& op, std::int64_t begin, std::int64_t end) {
  const auto* const span_begin = op.span_begin.as<std::int32_t>();
  std::int64_t span = 0;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t token = item / op.heads, head = item % op.heads;
    while (span_begin[span + 1] <= token) ++span;
    attend<T>(op, op.pages.as<std::int32_t>() + op.page_begin.as<std::int32_t>()[span],
              head / (op.heads / op.kv_heads),
              op.position.as<std::int32_t>()[span] + token - span_begin[span],
              op.q.row<T>(token) + head * op.head_dim, op.y.row<T>(token) + head * op.head_dim);
  }
}

}  // namespace

std::size_t attention_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                      std::int64_t head_dim, std::int64_t positions) {
  const std::int64_t runs = (positions + attention_run_keys - 1) / attention_run_keys;
  return static_cast<std::size_t>(tokens * heads * runs * (head_dim + 2)) * sizeof(float);
}

void attention(Queue& queue, const Attention& op) {
  check(op);
  share(queue, op.q.dim(0) * op.heads, 1, 64 * op.head_dim,
        [&](std::int64_t begin, std::int64_t end) {
          visit_float(op.q.dtype, [&]<typename T>(Tag<T>) { attend_heads<T>(op, begin, end); });
        });
}

}  // namespace hyb::kernels
