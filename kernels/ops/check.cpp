#include "kernels/ops/check.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb::kernels {

void Check::fail(const char* rule, std::int64_t got) const {
  throw Error(ErrorKind::runtime, fmt::format("{}: {}, got {}", op_, rule, got));
}

void Check::fail(const char* name, const char* rule, std::int64_t got) const {
  throw Error(ErrorKind::runtime, fmt::format("{}: {} {}, got {}", op_, name, rule, got));
}

void Check::tensor(const Tensor& tensor, const char* name, DType dtype,
                   std::initializer_list<std::int64_t> dims) const {
  if (tensor.rank != static_cast<int>(dims.size())) fail(name, "has the wrong rank", tensor.rank);
  if (tensor.dtype != dtype) fail(name, "has the wrong type", static_cast<int>(tensor.dtype));
  int i = 0;
  for (const std::int64_t dim : dims) {
    if (tensor.dim(i++) != dim) {
      throw Error(ErrorKind::runtime, fmt::format("{}: {} needs {} in dimension {}, got {}", op_,
                                                  name, dim, i - 1, tensor.dim(i - 1)));
    }
  }
  if (tensor.empty() && tensor.size() != 0) fail(name, "must not be empty", 0);
}

void Check::activations(const Tensor& tensor, const char* name) const {
  if (tensor.dtype != DType::f32 && tensor.dtype != DType::bf16) {
    fail(name, "is f32 or bf16", static_cast<int>(tensor.dtype));
  }
}

void Check::function(const Activation& activation) const {
  that(name_of(activation.function) != nullptr, "the activation's function exists",
       static_cast<int>(activation.function));
  that(activation.gated || !activation.is_limited(), "an activation with a limit is gated", 0);
}

void Check::table(const Tensor& tensor, const char* name, std::int64_t count) const {
  this->tensor(tensor, name, DType::i32, {count});
}

std::int64_t Check::spans(const Tensor& span_begin, std::int64_t tokens) const {
  if (span_begin.rank != 1 || span_begin.dtype != DType::i32 || span_begin.dim(0) < 1) {
    fail("span_begin is an i32 table of R+1 numbers", span_begin.dim(0));
  }
  const std::int64_t spans = span_begin.dim(0) - 1;
  if (!reads_tables()) return spans;
  const auto* const begin = span_begin.as<std::int32_t>();
  that(begin[0] == 0, "span_begin starts at 0", begin[0]);
  for (std::int64_t r = 0; r < spans; ++r) {
    that(begin[r] < begin[r + 1], "span_begin rises", begin[r + 1]);
  }
  that(begin[spans] == tokens, "span_begin ends at the number of tokens", begin[spans]);
  return spans;
}

void Check::slots(const Tensor& read_slot, const Tensor& write_slot, std::int64_t spans,
                  std::int64_t slots) const {
  table(read_slot, "read_slot", spans);
  table(write_slot, "write_slot", spans);
  if (!reads_tables()) return;
  for (std::int64_t r = 0; r < spans; ++r) {
    const std::int32_t from = read_slot.as<std::int32_t>()[r];
    const std::int32_t to = write_slot.as<std::int32_t>()[r];
    that(from >= -1 && from < slots, "read_slot is a slot or -1", from);
    that(to >= -1 && to < slots, "write_slot is a slot or -1", to);
  }
}

void Check::pages(const KvPages& kv, std::int64_t tokens, std::int64_t numbers,
                  const AttentionReach& reach) const {
  const DType dtype = kv.arena.dtype;
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f8_e4m3) {
    fail("arena", "is f32, bf16 or F8_E4M3", static_cast<int>(dtype));
  }
  tensor(kv.arena, "arena", dtype, {kv.arena.dim(0), kv.page_tokens * numbers});
  const std::int64_t count = spans(kv.span_begin, tokens);
  table(kv.position, "position", count);
  table(kv.page_begin, "page_begin", count + 1);
  that(kv.pages.dtype == DType::i32 && kv.pages.rank == 1, "pages is an i32 table", kv.pages.rank);
  if (!reads_tables()) return;
  const auto* const begin = kv.span_begin.as<std::int32_t>();
  const auto* const page = kv.page_begin.as<std::int32_t>();
  that(page[0] >= 0, "page_begin is not negative", page[0]);
  that(page[count] <= kv.pages.dim(0), "page_begin ends within pages", page[count]);
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t first = kv.position.as<std::int32_t>()[r];
    that(first >= 0, "position is not negative", first);
    const std::int64_t end = first + begin[r + 1] - begin[r], last = (end - 1) / kv.page_tokens;
    that((page[r + 1] - page[r]) * kv.page_tokens >= end, "a page table reaches its span's end",
         end);
    for (std::int64_t i = first_key(reach, first) / kv.page_tokens; i <= last; ++i) {
      const std::int32_t id = kv.table(r)[i];
      that(id >= 0 && id < kv.arena.dim(0), "pages are within the arena", id);
    }
  }
}

}  // namespace hyb::kernels
