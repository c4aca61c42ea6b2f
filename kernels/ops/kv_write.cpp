#include "kernels/ops/kv_write.h"

#include "kernels/ops/check.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/share.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const KvWrite& op) {
  const Check check("kv_write");
  check.activations(op.k, "k");
  check.that(op.kv_heads >= 1, "kv_heads is positive", op.kv_heads);
  check.that(op.head_dim >= 2 && op.head_dim % 2 == 0, "head_dim is even", op.head_dim);
  check.that(op.page_tokens >= 2 && op.page_tokens % 2 == 0, "page_tokens is even", op.page_tokens);
  const std::int64_t tokens = op.k.dim(0), width = op.kv_heads * op.head_dim;
  check.tensor(op.k, "k", op.k.dtype, {tokens, width});
  check.tensor(op.v, "v", op.k.dtype, {tokens, width});
  const std::int64_t pages_max = op.pages_of_layer.dim(0);
  check.keys_and_values(op.pages_of_layer, "pages_of_layer");
  check.tensor(op.pages_of_layer, "pages_of_layer", op.pages_of_layer.dtype,
               {pages_max, 2 * width * op.page_tokens});
  check.spans(op.span_begin, tokens);
  check.page_tables(op.span_begin, op.position, op.page_begin, op.pages, op.page_tokens, pages_max);
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
  const KvLayout layout(op.head_dim, op.page_tokens, sizeof(K));
  const auto* const span_begin = op.span_begin.as<std::int32_t>();
  std::int64_t span = 0;
  for (std::int64_t token = begin; token < end; ++token) {
    while (span_begin[span + 1] <= token) ++span;
    const std::int64_t at = op.position.as<std::int32_t>()[span] + token - span_begin[span];
    const std::int32_t* const pages =
        op.pages.as<std::int32_t>() + op.page_begin.as<std::int32_t>()[span];
    write_token<T, K>(op, layout, token, op.pages_of_layer.row<K>(pages[at / op.page_tokens]),
                      at % op.page_tokens);
  }
}

}  // namespace

void kv_write(Queue& queue, const KvWrite& op) {
  check(op);
  share(queue, op.k.dim(0), 1, 2 * op.k.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.k.dtype, [&]<typename T>(Tag<T>) {
      visit_kv(op.pages_of_layer.dtype,
               [&]<typename K>(Tag<K>) { write_tokens<T, K>(op, begin, end); });
    });
  });
}

}  // namespace hyb::kernels
