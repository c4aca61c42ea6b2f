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
  check.that(op.page_tokens >= 2 && op.page_tokens % 2 == 0, "page_tokens is even", op.page_tokens);
  const std::int64_t pages_max = op.pages_of_layer.dim(0);
  check.keys_and_values(op.pages_of_layer, "pages_of_layer");
  check.tensor(op.pages_of_layer, "pages_of_layer", op.pages_of_layer.dtype,
               {pages_max, 2 * op.kv_heads * op.head_dim * op.page_tokens});
  check.spans(op.span_begin, op.tokens);
  check.page_tables(op.span_begin, op.position, op.page_begin, op.pages, op.page_tokens, pages_max,
                    written_alone);
}

/// Places [begin, end) of a page; a whole one has no gaps.
template <typename K>
void clear_places(const KvClear& op, K* page, std::int64_t begin, std::int64_t end) {
  const KvLayout layout(op.head_dim, op.page_tokens, sizeof(K));
  if (end - begin == op.page_tokens) {
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
  const auto* const tokens = op.span_begin.as<std::int32_t>() + span;
  const std::int64_t first = op.position.as<std::int32_t>()[span];
  const std::int64_t end = first + tokens[1] - tokens[0];
  const std::int32_t* const pages =
      op.pages.as<std::int32_t>() + op.page_begin.as<std::int32_t>()[span];
  for (std::int64_t at = first; at < end;) {
    const std::int64_t page = at / op.page_tokens, start = page * op.page_tokens;
    const std::int64_t next = std::min(end, start + op.page_tokens);
    clear_places(op, op.pages_of_layer.row<K>(pages[page]), at - start, next - start);
    at = next;
  }
}

}  // namespace

void kv_clear(Queue& queue, const KvClear& op) {
  check(op);
  const std::int64_t spans = op.position.dim(0);
  const std::int64_t elements =
      2 * op.kv_heads * op.head_dim * (1 + op.tokens / std::max<std::int64_t>(spans, 1));
  share(queue, spans, 1, elements, [&](std::int64_t begin, std::int64_t end) {
    visit_kv(op.pages_of_layer.dtype, [&]<typename K>(Tag<K>) {
      for (std::int64_t span = begin; span < end; ++span) clear_span<K>(op, span);
    });
  });
}

}  // namespace hyb::kernels
