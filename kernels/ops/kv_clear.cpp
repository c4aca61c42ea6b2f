#include "kernels/ops/kv_clear.h"

#include <algorithm>

#include "kernels/ops/check.h"
#include "kernels/ops/rope_kv_write.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

constexpr AttentionReach written_alone{.window = 1};  ///< earlier positions are not looked at

void check(const KvClear& op) {
  const Check check("kv_clear");
  check.that(op.kv_heads >= 1, "kv_heads is positive", op.kv_heads);
  check.that(op.head_dim >= 2 && op.head_dim % 2 == 0, "head_dim is even", op.head_dim);
  check.that(op.kv.page_tokens >= 2 && op.kv.page_tokens % 2 == 0, "page_tokens is even",
             op.kv.page_tokens);
  check.pages(op.kv, op.tokens, 2 * op.kv_heads * op.head_dim, written_alone);
}

/// Places [begin, end) of a page; a whole one has no gaps.
template <typename K>
void clear_places(const KvClear& op, K* page, std::int64_t begin, std::int64_t end) {
  const KvLayout layout(op.head_dim, op.kv.page_tokens, sizeof(K));
  if (end - begin == op.kv.page_tokens) {
    std::fill_n(page, op.kv_heads * layout.head_size(), K{});
    return;
  }
  for (std::int64_t head = 0; head < op.kv_heads; ++head, page += layout.head_size()) {
    for (std::int64_t i = 0; i < op.head_dim; ++i) {
      for (std::int64_t place = begin; place < end; ++place) {
        page[layout.key(place, i)] = page[layout.value(place, i)] = K{};
      }
    }
  }
}

template <typename K>
void clear_span(const KvClear& op, std::int64_t span) {
  const auto* const tokens = op.kv.span_begin.as<std::int32_t>() + span;
  const std::int64_t first = op.kv.position.as<std::int32_t>()[span];
  const std::int64_t end = first + tokens[1] - tokens[0];
  const std::int32_t* const pages = op.kv.table(span);
  for (std::int64_t at = first; at < end;) {
    const std::int64_t page = at / op.kv.page_tokens, start = page * op.kv.page_tokens;
    const std::int64_t next = std::min(end, start + op.kv.page_tokens);
    clear_places(op, op.kv.arena.row<K>(pages[page]), at - start, next - start);
    at = next;
  }
}

}  // namespace

void kv_clear(Queue& queue, const KvClear& op) {
  check(op);
  const std::int64_t spans = op.kv.position.dim(0);
  const std::int64_t elements =
      2 * op.kv_heads * op.head_dim * (1 + op.tokens / std::max<std::int64_t>(spans, 1));
  share(queue, spans, 1, elements, [&](std::int64_t begin, std::int64_t end) {
    visit_kv(op.kv.arena.dtype, [&]<typename K>(Tag<K>) {
      for (std::int64_t span = begin; span < end; ++span) clear_span<K>(op, span);
    });
  });
}

}  // namespace hyb::kernels
