#include "kernels/ops/attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/rope_kv_write.h"
#include "kernels/simd/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

/// The plain loops: one row against the keys of its sequence, one after the other. Whenever a
/// larger score comes, what was summed so far shrinks by exp(old maximum - new maximum).
template <typename T, typename K>
void attend_row(const AttentionRows<T, K>& job, std::int64_t row) {
  const KvLayout layout(job.head_dim, job.page_tokens, sizeof(K));
  const std::int64_t token = row / job.group, offset = row % job.group * job.head_dim;
  const T* const q = job.q + token * job.q_stride + offset;
  std::array<float, attention_head_dim_max> sums{};
  float largest = -std::numeric_limits<float>::infinity(), weights = 0.0F;
  if (job.sinks != nullptr) {
    largest = job.sinks[row % job.group];
    weights = 1.0F;
  }
  const std::int64_t own = job.position + token;
  for (std::int64_t position = first_key(job.reach, own); position <= own; ++position) {
    const K* const page = job.pages + job.page_table[position / job.page_tokens] * job.page_stride;
    const std::int64_t place = position % job.page_tokens;
    float dot = 0.0F;
    for (std::int64_t i = 0; i < job.head_dim; ++i) {
      dot +=
          to_float(from_float<KvOperand<K>>(to_float(q[i]))) * to_float(page[layout.key(place, i)]);
    }
    const float plain = dot * job.scale;
    const float score = job.softcap == 0.0F ? plain : job.softcap * std::tanh(plain / job.softcap);
    const float next = std::fmax(largest, score);
    const float shrink = std::exp(largest - next), weight = std::exp(score - next);
    weights = weights * shrink + weight;
    for (std::int64_t i = 0; i < job.head_dim; ++i) {
      float& sum = sums[static_cast<std::size_t>(i)];
      sum = sum * shrink + weight * to_float(page[layout.value(place, i)]);
    }
    largest = next;
  }
  T* const y = job.y + token * job.y_stride + offset;
  for (std::int64_t i = 0; i < job.head_dim; ++i) {
    y[i] = from_float<T>(sums[static_cast<std::size_t>(i)] / weights);
  }
  if (job.gate == nullptr) return;
  const T* const gate = job.gate + token * job.gate_stride + row % job.group * job.gate_dim;
  for (std::int64_t i = 0; i < job.head_dim; ++i) {
    const float z = to_float(gate[job.gate_dim == 1 ? 0 : i]);
    y[i] = from_float<T>(to_float(y[i]) / (1.0F + std::exp(-z)));
  }
}

template <typename T, typename K>
void attend_rows(const AttentionRows<T, K>& job) {
  for (std::int64_t row = job.first_row; row < job.first_row + job.rows; ++row) {
    attend_row(job, row);
  }
}

AttentionReach reach_of(const PagedAttention& op) {
  return {.window = op.window, .chunk = op.chunk};
}

template <typename T, typename K>
std::int64_t first_run(const AttentionRows<T, K>& job) {
  return first_key(job.reach, job.position + job.first_row / job.group) / attention_run_keys;
}

bool fits_vectors(const PagedAttention& op) {
  const std::int64_t segments = op.kv.page_tokens / 16;
  return op.kv.page_tokens % 16 == 0 && (segments & (segments - 1)) == 0;
}

/// Holds what the step consists of: for every span and kv head, tiles of rows.
class Rows {
 public:
  explicit Rows(const PagedAttention& op)
      : op_(op), group_(op.heads / op.kv_heads), rows_max_(attention_rows_max(op.head_dim)) {}

  std::int64_t spans() const { return op_.kv.spans(); }
  std::int64_t rows(std::int64_t span) const { return tokens(span) * group_; }
  std::int64_t tiles(std::int64_t span) const { return (rows(span) + rows_max_ - 1) / rows_max_; }
  std::int64_t items(std::int64_t span) const { return op_.kv_heads * tiles(span); }
  /// Keys that some token of the span reaches.
  std::int64_t keys(std::int64_t span) const {
    return end(span) - first_key(reach_of(op_), position(span));
  }
  std::int64_t first_run(std::int64_t span) const {
    return first_key(reach_of(op_), position(span)) / attention_run_keys;
  }
  /// Runs that some token of the span reaches.
  std::int64_t runs(std::int64_t span) const {
    return (end(span) + attention_run_keys - 1) / attention_run_keys - first_run(span);
  }
  /// Workspace of these runs of all rows of one span, in floats.
  std::int64_t floats(std::int64_t span) const {
    return runs(span) * tokens(span) * op_.heads * attention_partial(op_.head_dim);
  }

  template <typename T, typename K>
  AttentionRows<T, K> job(std::int64_t span, std::int64_t item) const {
    const std::int64_t kv_head = item / tiles(span), first = item % tiles(span) * rows_max_;
    const std::int64_t head = kv_head * group_ * op_.head_dim, token = begin()[span];
    return {.q = op_.q.row<T>(token) + head,
            .y = op_.y.row<T>(token) + head,
            .q_stride = op_.q.row_stride,
            .y_stride = op_.y.row_stride,
            .pages = op_.kv.arena.as<K>() + 2 * kv_head * op_.head_dim * op_.kv.page_tokens,
            .page_stride = op_.kv.arena.row_stride,
            .page_table = op_.kv.table(span),
            .position = position(span),
            .group = group_,
            .head_dim = op_.head_dim,
            .page_tokens = op_.kv.page_tokens,
            .scale = op_.scale,
            .first_row = first,
            .rows = std::min(rows_max_, rows(span) - first),
            .reach = reach_of(op_),
            .softcap = op_.softcap,
            .sinks = op_.sinks.empty() ? nullptr : op_.sinks.as<float>() + kv_head * group_,
            .gate = op_.gate.empty() ? nullptr
                                     : op_.gate.row<T>(token) + kv_head * group_ * op_.gate_dim(),
            .gate_stride = op_.gate.row_stride,
            .gate_dim = op_.gate_dim()};
  }

 private:
  const std::int32_t* begin() const { return op_.kv.span_begin.as<std::int32_t>(); }
  std::int64_t tokens(std::int64_t span) const { return begin()[span + 1] - begin()[span]; }
  std::int64_t position(std::int64_t span) const {
    return op_.kv.position.as<std::int32_t>()[span];
  }
  std::int64_t end(std::int64_t span) const { return position(span) + tokens(span); }

  const PagedAttention& op_;
  std::int64_t group_, rows_max_;
};

template <typename T, typename K>
AttentionRoutes<T, K> routes_of(Isa isa, const PagedAttention& op) {
  if (isa == Isa::plain || !fits_vectors(op)) return {attend_rows<T, K>, nullptr, nullptr};
  if (isa == Isa::avx2) return RoutesOf<Isa::avx2, T, K>::attention();
  return RoutesOf<Isa::avx512, T, K>::attention();
}

/// Distributes numbered items to free threads: which thread computes an item changes nothing.
/// `count(span)` items belong to each span; body gets a span and the item's number within it.
template <typename Count, typename Body>
void distribute(Queue& queue, bool alone, std::int64_t spans, Count count, Body body) {
  std::atomic<std::int64_t> next{0};
  auto work = [&](int, int) {
    std::int64_t span = 0, before = 0;
    for (std::int64_t item = next.fetch_add(1);; item = next.fetch_add(1)) {
      while (span < spans && item - before >= count(span)) before += count(span++);
      if (span == spans) return;
      body(span, item - before);
    }
  };
  if (alone) {
    queue.alone(work);
  } else {
    queue.parallel(work);
  }
}

/// Keys are shared between threads where rows alone would leave some idle.
bool shares_keys(const PagedAttention& op, const Rows& rows, int threads) {
  std::int64_t items = 0, floats = 0, runs = 0;
  for (std::int64_t span = 0; span < rows.spans(); ++span) {
    items += rows.items(span);
    floats += rows.floats(span);
    runs = std::max(runs, rows.runs(span));
  }
  const auto bytes = static_cast<std::size_t>(op.workspace.empty() ? 0 : op.workspace.size()) *
                     size_of(op.workspace.dtype);
  return runs > 1 && items < 2 * threads && items % threads != 0 &&
         bytes >= static_cast<std::size_t>(floats) * sizeof(float);
}

template <typename T, typename K>
void attend(Queue& queue, const PagedAttention& op) {
  const Rows rows(op);
  const AttentionRoutes<T, K> routes = routes_of<T, K>(queue.isa(), op);
  const std::int64_t spans = rows.spans();
  const auto items = [&](std::int64_t span) { return rows.items(span); };
  if (routes.run == nullptr || !shares_keys(op, rows, queue.threads())) {
    std::int64_t elements = 0;
    for (std::int64_t span = 0; span < spans; ++span) {
      elements += rows.rows(span) * op.kv_heads * op.head_dim * rows.keys(span);
    }
    distribute(
        queue, elements <= 8 * elements_alone, spans, items,
        [&](std::int64_t span, std::int64_t item) { routes.rows(rows.job<T, K>(span, item)); });
    return;
  }
  const std::int64_t partial = attention_partial(op.head_dim);
  const auto run_stride = [&](std::int64_t span) {
    return rows.rows(span) * op.kv_heads * partial;
  };
  const auto partials_of = [&](std::int64_t span, const AttentionRows<T, K>& job, std::int64_t item,
                               std::int64_t run) {
    float* at = op.workspace.as<float>();
    for (std::int64_t i = 0; i < span; ++i) at += rows.floats(i);
    return at + (item / rows.tiles(span) * rows.rows(span) + job.first_row) * partial +
           (run - rows.first_run(span)) * run_stride(span);
  };
  distribute(
      queue, false, spans, [&](std::int64_t span) { return items(span) * rows.runs(span); },
      [&](std::int64_t span, std::int64_t i) {
        const std::int64_t item = i / rows.runs(span);
        const std::int64_t run = rows.first_run(span) + i % rows.runs(span);
        const AttentionRows<T, K> job = rows.job<T, K>(span, item);
        routes.run(job, run, partials_of(span, job, item, run));
      });
  distribute(queue, true, spans, items, [&](std::int64_t span, std::int64_t item) {
    const AttentionRows<T, K> job = rows.job<T, K>(span, item);
    routes.merge(job, partials_of(span, job, item, first_run(job)), run_stride(span));
  });
}

}  // namespace

std::size_t attention_workspace_bytes(Device device, std::int64_t tokens, std::int64_t heads,
                                      std::int64_t head_dim, std::int64_t positions,
                                      std::int64_t keys) {
  if constexpr (has_cuda) {
    if (device == Device::cuda) {
      return cuda::attention_workspace_bytes(tokens, heads, head_dim, positions);
    }
  }
  const auto runs_of = [](std::int64_t count) {
    return (count + attention_run_keys - 1) / attention_run_keys;
  };
  // Keys in reach start anywhere in a run: they touch one run more than they fill.
  const std::int64_t runs =
      keys == 0 ? runs_of(positions) : std::min(runs_of(positions), runs_of(keys - 1) + 1);
  return static_cast<std::size_t>(tokens * heads * runs * attention_partial(head_dim)) *
         sizeof(float);
}

void check(const PagedAttention& op, Device device) {
  const Check check("paged_attention", device);
  check.activations(op.q, "q");
  check.that(op.kv_heads >= 1 && op.heads % op.kv_heads == 0, "kv_heads divides heads",
             op.kv_heads);
  check.that(op.head_dim >= 2 && op.head_dim % 2 == 0, "head_dim is even", op.head_dim);
  check.that(op.head_dim <= attention_head_dim_max, "head_dim is at most 512", op.head_dim);
  check.that(op.kv.page_tokens >= 2 && op.kv.page_tokens % 2 == 0, "page_tokens is even",
             op.kv.page_tokens);
  const std::int64_t tokens = op.q.dim(0), width = op.heads * op.head_dim;
  check.tensor(op.q, "q", op.q.dtype, {tokens, width});
  check.tensor(op.y, "y", op.q.dtype, {tokens, width});
  check.that(op.y.data != op.q.data, "y is not q", 0);
  check.that(op.window >= 0, "window is not negative", op.window);
  check.that(op.chunk >= 0, "chunk is not negative", op.chunk);
  check.that(op.softcap >= 0.0F && std::isfinite(op.softcap), "softcap is 0 or a positive number",
             static_cast<std::int64_t>(op.softcap));
  if (!op.sinks.empty()) check.tensor(op.sinks, "sinks", DType::f32, {op.heads});
  if (!op.gate.empty()) {
    check.tensor(op.gate, "gate", op.q.dtype, {tokens, op.heads * op.gate_dim()});
    check.that(op.y.data != op.gate.data, "y is not gate", 0);
  }
  check.pages(op.kv, tokens, 2 * op.kv_heads * op.head_dim, reach_of(op));
}

void paged_attention(Queue& queue, const PagedAttention& op) {
  check(op, queue.device());
  if (on_card(queue, [&](auto& stream) { cuda::paged_attention(stream, op); })) return;
  visit_float(op.q.dtype, [&]<typename T>(Tag<T>) {
    visit_kv(op.kv.arena.dtype, [&]<typename K>(Tag<K>) { attend<T, K>(queue, op); });
  });
}

}  // namespace hyb::kernels
