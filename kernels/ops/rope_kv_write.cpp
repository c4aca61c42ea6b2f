#include "kernels/ops/rope_kv_write.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t pairs_max = rope_kv_write_head_dim_max / 2;  // a card has room for
constexpr AttentionReach own_token{.window = 1};  ///< earlier positions are not looked at

struct Turn {
  float cosine, sine;
};
using Turns = std::array<Turn, pairs_max>;

void check_pairs(const Check& check, std::span<const double> frequencies, std::int64_t head_dim) {
  check.that(2 * std::ssize(frequencies) <= head_dim, "pairs are within head_dim",
             std::ssize(frequencies));
}

void check(const Rope& op) {
  const Check check("rope");
  check.activations(op.x, "x");
  check.tensor(op.x, "x", op.x.dtype, {op.x.dim(0), op.heads * op.head_dim});
  check.table(op.position_of_row, "position_of_row", op.x.dim(0));
  const std::int64_t pairs = std::ssize(op.frequencies);
  check.that(pairs >= 1 && pairs <= pairs_max, "there are 1 to 256 pairs", pairs);
  check_pairs(check, op.frequencies, op.head_dim);
}

void fill_turns(std::span<const double> frequencies, std::int32_t position, Turns& turns) {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = position * frequencies[i];
    turns[i] = {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
  }
}

template <typename T>
void turn_head(const Turns& turns, std::int64_t pairs, float scale, T* x) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    Turn turn = turns[static_cast<std::size_t>(i)];
    turn = {turn.cosine * scale, turn.sine * scale};
    const float low = to_float(x[i]), high = to_float(x[i + pairs]);
    x[i] = from_float<T>(low * turn.cosine - high * turn.sine);
    x[i + pairs] = from_float<T>(high * turn.cosine + low * turn.sine);
  }
}

}  // namespace

float QueryScale::at(std::int64_t position) const {
  if (beta == 0.0F) return 1.0F;
  const std::int64_t periods = (position + offset) / period;
  return 1.0F + beta * std::log(1.0F + static_cast<float>(periods));
}

void rope(Queue& queue, const Rope& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::rope(stream, op); })) return;
  const std::int64_t pairs = std::ssize(op.frequencies);
  const std::int64_t elements = (2 * op.heads + 32) * pairs;
  share(queue, op.x.dim(0), 1, elements, [&](std::int64_t begin, std::int64_t end) {
    Turns turns;
    for (std::int64_t t = begin; t < end; ++t) {
      fill_turns(op.frequencies, op.position_of_row.as<std::int32_t>()[t], turns);
      visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
        for (std::int64_t head = 0; head < op.heads; ++head) {
          const float scale = head < op.scaled_heads ? op.scale : 1.0F;
          turn_head<T>(turns, pairs, scale, op.x.row<T>(t) + head * op.head_dim);
        }
      });
    }
  });
}

namespace {

void check(const KvWrite& op) {
  const Check check("kv_write");
  check.activations(op.k, "k");
  check.that(op.kv_heads >= 1, "kv_heads is positive", op.kv_heads);
  check.that(op.head_dim >= 2 && op.head_dim % 2 == 0, "head_dim is even", op.head_dim);
  check.that(op.kv.page_tokens >= 2 && op.kv.page_tokens % 2 == 0, "page_tokens is even",
             op.kv.page_tokens);
  const std::int64_t tokens = op.k.dim(0), width = op.kv_heads * op.head_dim;
  check.tensor(op.k, "k", op.k.dtype, {tokens, width});
  check.tensor(op.v, "v", op.k.dtype, {tokens, width});
  check.pages(op.kv, tokens, 2 * width, own_token);
}

template <typename T, typename K>
void write_token(const KvWrite& op, const KvLayout& layout, std::int64_t token, K* page,
                 std::int64_t place) {
  for (std::int64_t head = 0; head < op.kv_heads; ++head) {
    const T* const k = op.k.row<T>(token) + head * op.head_dim;
    const T* const v = op.v.row<T>(token) + head * op.head_dim;
    K* const to = page + head * layout.head_size();
    for (std::int64_t i = 0; i < op.head_dim; ++i) {
      to[layout.key(place, i)] = from_float<K>(to_float(k[i]));
      to[layout.value(place, i)] = from_float<K>(to_float(v[i]));
    }
  }
}

template <typename T, typename K>
void write_tokens(const KvWrite& op, std::int64_t begin, std::int64_t end) {
  const KvLayout layout(op.head_dim, op.kv.page_tokens, sizeof(K));
  op.kv.each_token(begin, end, [&](std::int64_t token, std::int64_t at, const auto* pages) {
    write_token<T, K>(op, layout, token, op.kv.arena.row<K>(pages[at / op.kv.page_tokens]),
                      at % op.kv.page_tokens);
  });
}

}  // namespace

void kv_write(Queue& queue, const KvWrite& op) {
  check(op);
  share(queue, op.k.dim(0), 1, 2 * op.k.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.k.dtype, [&]<typename T>(Tag<T>) {
      visit_kv(op.kv.arena.dtype, [&]<typename K>(Tag<K>) { write_tokens<T, K>(op, begin, end); });
    });
  });
}

namespace {

void scale_queries(Queue& queue, const RopeKvWrite& op, const Tensor& q) {
  share(queue, q.dim(0), 1, q.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(q.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int32_t position = op.position_of_row.as<std::int32_t>()[t];
        float factor = op.query_scale.at(position);
        if (op.query_scale.is_rounded) factor = to_float(from_float<T>(factor));
        T* const row = q.row<T>(t);
        for (std::int64_t i = 0; i < q.dim(1); ++i)
          row[i] = from_float<T>(to_float(row[i]) * factor);
      }
    });
  });
}

void norm_heads(Queue& queue, const RopeKvWrite& op, const Tensor& weight, const Tensor& heads) {
  rms_norm(queue, {.x = heads,
                   .weight = weight,
                   .y = heads,
                   .eps = op.norm_eps,
                   .one_plus = op.norm_one_plus,
                   .heads = heads.dim(1) / op.head_dim});
}

}  // namespace

/// On the CPU its parts check the numbers in tables; a card's route calls none of them.
void check(const RopeKvWrite& op, Device device) {
  const Check check("rope_kv_write", device);
  check.activations(op.qkv, "qkv");
  check.that(op.heads >= 0, "heads is not negative", op.heads);
  check.that(op.kv_heads >= 1, "kv_heads is positive", op.kv_heads);
  check.that(op.head_dim >= 2 && op.head_dim % 2 == 0 && op.head_dim <= rope_kv_write_head_dim_max,
             "head_dim is even and within 2..512", op.head_dim);
  check.that(op.kv.page_tokens >= 2 && op.kv.page_tokens % 2 == 0, "page_tokens is even",
             op.kv.page_tokens);
  const std::int64_t width = (op.heads + 2 * op.own_kv_heads()) * op.head_dim;
  check.tensor(op.qkv, "qkv", op.qkv.dtype, {op.qkv.dim(0), std::max(width, op.qkv.dim(1))});
  if (!op.q_norm.empty()) check.tensor(op.q_norm, "q_norm", DType::f32, {op.head_dim});
  if (!op.k_norm.empty()) check.tensor(op.k_norm, "k_norm", DType::f32, {op.head_dim});
  check.that(!op.queries_only || (op.k_norm.empty() && !op.value_norm),
             "queries alone have no norms of keys and values", 0);
  check.that(!op.weightless_norm || (op.q_norm.empty() && op.k_norm.empty()),
             "a norm without weights has none", 0);
  if (op.reads_positions()) check.table(op.position_of_row, "position_of_row", op.qkv.dim(0));
  check.that(op.query_scale.period >= 1 && op.query_scale.offset >= 0,
             "the factor on q has a period and no negative offset", op.query_scale.period);
  check_pairs(check, op.frequencies, op.head_dim);
  check.pages(op.kv, op.qkv.dim(0), 2 * op.kv_heads * op.head_dim, own_token);
}

void rope_kv_write(Queue& queue, const RopeKvWrite& op) {
  check(op, queue.device());
  if (on_card(queue, [&](auto& stream) { cuda::rope_kv_write(stream, op); })) return;
  const std::int64_t q = op.heads * op.head_dim, kv = op.own_kv_heads() * op.head_dim;
  const Tensor keys = op.qkv.columns(q, kv), values = op.qkv.columns(q + kv, kv);
  if (op.weightless_norm) norm_heads(queue, op, {}, op.qkv.columns(0, q + kv));
  if (!op.q_norm.empty()) norm_heads(queue, op, op.q_norm, op.qkv.columns(0, q));
  if (!op.k_norm.empty()) norm_heads(queue, op, op.k_norm, keys);
  if (op.value_norm) norm_heads(queue, op, {}, values);
  if (!op.frequencies.empty()) {
    rope(queue, {.x = op.qkv.columns(0, q + kv),
                 .position_of_row = op.position_of_row,
                 .heads = op.heads + op.own_kv_heads(),
                 .head_dim = op.head_dim,
                 .frequencies = op.frequencies,
                 .scaled_heads = op.heads,
                 .scale = op.query_scale.rotated});
  }
  if (op.query_scale.beta != 0.0F) scale_queries(queue, op, op.qkv.columns(0, q));
  if (op.queries_only) return;
  kv_write(queue,
           {.k = keys, .v = values, .kv = op.kv, .kv_heads = op.kv_heads, .head_dim = op.head_dim});
}

}  // namespace hyb::kernels
