#include "kernels/ops/latent_attention.h"

#include <array>
#include <cmath>
#include <limits>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/simd/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

constexpr AttentionReach all_rows = {}, own_row = {.window = 1};

/// Checks what both ops say of pages and tables alike.
void check_pages(const Check& check, const KvPages& kv, std::int64_t tokens, std::int64_t width,
                 const AttentionReach& reach) {
  check.that(width >= 1 && width <= latent_width_max, "a row has at most 1024 numbers", width);
  check.that(kv.page_tokens >= 1, "page_tokens is positive", kv.page_tokens);
  check.pages(kv, tokens, width, reach);
}

/// Computes the answer of a head, as attention's plain loop.
template <typename T, typename K>
void attend_head(const LatentRows<T, K>& job, std::int64_t head) {
  const T* const turned = job.turned + head * job.turned_stride;
  const T* const latent = job.latent + head * job.latent_width;
  std::array<float, latent_width_max> sums{};
  float largest = -std::numeric_limits<float>::infinity(), weights = 0.0F;
  for (std::int64_t position = 0; position <= job.position; ++position) {
    const K* const row = job.row_at(position);
    const K* const values = row + job.turned_width;
    float dot = 0.0F;
    for (std::int64_t i = 0; i < job.turned_width; ++i)
      dot += to_float(turned[i]) * to_float(row[i]);
    for (std::int64_t i = 0; i < job.latent_width; ++i) {
      dot += to_float(latent[i]) * to_float(values[i]);
    }
    const float score = dot * job.scale, next = std::fmax(largest, score);
    const float shrink = std::exp(largest - next), weight = std::exp(score - next);
    weights = weights * shrink + weight;
    for (std::int64_t i = 0; i < job.latent_width; ++i) {
      float& sum = sums[static_cast<std::size_t>(i)];
      sum = sum * shrink + weight * to_float(values[i]);
    }
    largest = next;
  }
  T* const y = job.y + head * job.latent_width;
  for (std::int64_t i = 0; i < job.latent_width; ++i) {
    y[i] = from_float<T>(sums[static_cast<std::size_t>(i)] / weights * job.factors[head]);
  }
}

template <typename T, typename K>
void attend(Isa isa, const LatentRows<T, K>& job) {
  if constexpr (!std::is_same_v<K, e4m3>) {
    if (run_vectors(isa, job)) return;
  }
  for (std::int64_t head = 0; head < job.heads; ++head) attend_head(job, head);
}

void check(const LatentAttention& op, Device device) {
  const Check check("latent_attention", device);
  check.activations(op.latent, "latent");
  check.that(op.shape.heads >= 1, "heads is positive", op.shape.heads);
  const std::int64_t tokens = op.latent.dim(0), width = op.shape.latents();
  check.tensor(op.latent, "latent", op.latent.dtype, {tokens, width});
  check.tensor(op.y, "y", op.latent.dtype, {tokens, width});
  check.that(op.y.data != op.latent.data, "y is not latent", 0);
  const std::int64_t stride = op.turned.dim(1) / op.shape.heads;
  check.tensor(op.turned, "turned", op.latent.dtype, {tokens, stride * op.shape.heads});
  check.that(op.shape.turned_width >= 0 && op.shape.turned_width <= stride,
             "turned is within its stride", op.shape.turned_width);
  if (!op.gate.empty()) check.tensor(op.gate, "gate", op.latent.dtype, {tokens, op.shape.heads});
  check_pages(check, op.kv, tokens, op.shape.row_width(), all_rows);
}

/// Returns what y of some heads of a token is multiplied by.
template <typename T>
std::array<float, latent_heads_max> factors_of(const LatentAttention& op, std::int64_t token,
                                               std::int64_t head, std::int64_t heads) {
  std::array<float, latent_heads_max> factors;
  factors.fill(1.0F);
  if (op.gate.empty()) return factors;
  const T* const gate = op.gate.row<T>(token) + head;
  for (std::int64_t i = 0; i < heads; ++i) {
    factors[static_cast<std::size_t>(i)] = 1.0F / (1.0F + std::exp(-to_float(gate[i])));
  }
  return factors;
}

}  // namespace

void latent_write(Queue& queue, const LatentWrite& op) {
  const Check check("latent_write", queue.device());
  check.activations(op.rows, "rows");
  const std::int64_t width = op.rows.dim(1);
  check_pages(check, op.kv, op.rows.dim(0), width, own_row);
  if (on_card(queue, [&](auto& stream) { cuda::latent_write(stream, op); })) return;
  share(queue, op.rows.dim(0), 1, width, [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.rows.dtype, [&]<typename T>(Tag<T>) {
      visit_kv(op.kv.arena.dtype, [&]<typename K>(Tag<K>) {
        op.kv.each_token(begin, end, [&](std::int64_t token, std::int64_t at, const auto* table) {
          const T* const from = op.rows.row<T>(token);
          K* const to =
              op.kv.arena.row<K>(table[at / op.kv.page_tokens]) + at % op.kv.page_tokens * width;
          for (std::int64_t i = 0; i < width; ++i) to[i] = from_float<K>(to_float(from[i]));
        });
      });
    });
  });
}

void latent_attention(Queue& queue, const LatentAttention& op) {
  check(op, queue.device());
  if (on_card(queue, [&](auto& stream) { cuda::latent_attention(stream, op); })) return;
  // Some heads of a token: as many as a vector route takes at once.
  const std::int64_t pieces = (op.shape.heads + latent_heads_max - 1) / latent_heads_max;
  const std::int64_t stride = op.turned.dim(1) / op.shape.heads;
  const std::int64_t keys = op.kv.pages.dim(0) * op.kv.page_tokens;
  const auto heads_at = [&](std::int64_t item) { return item % pieces * latent_heads_max; };
  share(queue, op.latent.dim(0) * pieces, 1, latent_heads_max * op.shape.latent_width * keys,
        [&](std::int64_t begin, std::int64_t end) {
          visit_float(op.latent.dtype, [&]<typename T>(Tag<T>) {
            visit_kv(op.kv.arena.dtype, [&]<typename K>(Tag<K>) {
              const auto first = begin / pieces, last = (end + pieces - 1) / pieces;
              op.kv.each_token(
                  first, last, [&](std::int64_t token, std::int64_t at, const auto* table) {
                    for (std::int64_t item = std::max(begin, token * pieces);
                         item < std::min(end, (token + 1) * pieces); ++item) {
                      const std::int64_t head = heads_at(item);
                      const std::int64_t heads = std::min(latent_heads_max, op.shape.heads - head);
                      const auto factors = factors_of<T>(op, token, head, heads);
                      LatentRows<T, K> job = {op.shape};
                      job.heads = static_cast<std::int32_t>(heads);
                      job.turned = op.turned.row<T>(token) + head * stride;
                      job.latent = op.latent.row<T>(token) + head * op.shape.latent_width;
                      job.y = op.y.row<T>(token) + head * op.shape.latent_width;
                      job.turned_stride = stride;
                      job.pages = op.kv.arena.as<K>();
                      job.page_stride = op.kv.arena.row_stride;
                      job.page_table = table;
                      job.position = at;
                      job.page_tokens = op.kv.page_tokens;
                      job.factors = factors.data();
                      attend<T, K>(queue.isa(), job);
                    }
                  });
            });
          });
        });
}

std::size_t latent_workspace_bytes(Device device, std::int64_t tokens, std::int64_t heads,
                                   std::int64_t positions) {
  if constexpr (has_cuda) {
    if (device == Device::cuda) return cuda::latent_workspace_bytes(tokens, heads, positions);
  }
  return 0;
}

}  // namespace hyb::kernels
