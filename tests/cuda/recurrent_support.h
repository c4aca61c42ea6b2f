#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/stream.h"
#include "tests/cuda/support.h"
#include "tests/kernels/ops/chain_case.h"

/// What the tests of ops with slots share.
namespace hyb::kernels::testing {

inline constexpr DType f32 = DType::f32, b16 = DType::bf16;

/// A table with entries for spans after the real ones, which have neither tokens nor slots.
inline std::vector<std::int32_t> padded(std::vector<std::int32_t> table, std::int32_t value,
                                        std::size_t spare_spans = 2) {
  table.insert(table.end(), spare_spans, value);
  return table;
}

/// Runs body, which only launches, or a graph that recorded it; then waits.
template <typename Body>
void run_or_replay(cuda::Stream& stream, bool replayed, Body&& body) {
  if (replayed) {
    const cuda::Graph graph(stream, body);
    graph.replay(stream);
    stream.wait();
  } else {
    body();
    stream.wait();
  }
}

/// The first rows have the same bytes.
inline bool same_rows(const TestTensor& a, const TestTensor& b, std::int64_t rows) {
  const std::vector<std::byte> left = a.packed(), right = b.packed();
  const auto bytes = static_cast<std::ptrdiff_t>(left.size()) / a.view().dim(0) * rows;
  return std::equal(left.begin(), left.begin() + bytes, right.begin());
}

/// What a recurrence leaves.
struct RecurrentAnswer {
  TestTensor y, state;
};

/// Nothing outside of slots has changed, and no slot that is not in `write`.
inline void check_slots(const std::vector<std::int32_t>& write, const TestTensor& before,
                        const TestTensor& after) {
  CHECK(after.guards_intact());
  const std::vector<std::byte> old = before.packed(), now = after.packed();
  const auto slots = static_cast<std::int32_t>(before.view().dim(0));
  const auto slot_bytes = static_cast<std::ptrdiff_t>(old.size()) / slots;
  for (std::int32_t slot = 0; slot < slots; ++slot) {
    if (std::find(write.begin(), write.end(), slot) != write.end()) continue;
    const auto first = slot * slot_bytes;
    CHECK(std::equal(old.begin() + first, old.begin() + first + slot_bytes, now.begin() + first));
  }
}

/// Device memory that a route may work in; it starts as NaN.
class Workspace {
 public:
  explicit Workspace(std::size_t size) : size_(size) {
    cuda::check(cudaMalloc(&data_, size_), "cudaMalloc");
    fill_card(data_, 0xff, size_);
  }
  ~Workspace() { cudaFree(data_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  Tensor view() const { return {data_, DType::u8, {static_cast<std::int64_t>(size_)}}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

}  // namespace hyb::kernels::testing
