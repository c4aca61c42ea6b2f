#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

template <typename T>
void pack_row(const T* row, std::int64_t columns, bf16& scale, std::int8_t* values) {
  Vec largest = zeros();
  each_vector(columns, [&](std::int64_t n, auto part) {
    largest = larger_bits(largest, absolute(load(row + n, part)));
  });
  scale = snapshot_scale(largest_bits_of(largest));
  const float step = snapshot_scale_value(scale);
  if (step != step) {
    for (std::int64_t n = 0; n < columns; ++n) values[n] = 0;
    return;
  }
  const Vec steps = broadcast(step);
  each_vector(columns, [&](std::int64_t n, auto part) {
    store(values + n, load(row + n, part) / steps, part);
  });
}

template <typename T>
void pack_all(const SnapshotRows<const T>& job) {
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const std::int64_t at = row * job.columns;
    pack_row(job.state + at, job.columns, job.scales[row], job.values + at);
  }
}

template <typename T>
void unpack_all(const SnapshotRows<T>& job) {
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const Vec scale = broadcast(snapshot_scale_value(job.scales[row]));
    const std::int8_t* const values = job.values + row * job.columns;
    T* const state = job.state + row * job.columns;
    each_vector(job.columns, [&](std::int64_t n, auto part) {
      store(state + n, load(values + n, part) * scale, part);
    });
  }
}

}  // namespace

template <typename T>
struct VectorRoute<vector_isa, SnapshotRows<const T>> {
  static void run(const SnapshotRows<const T>& job) { pack_all(job); }
};
template <typename T>
struct VectorRoute<vector_isa, SnapshotRows<T>> {
  static void run(const SnapshotRows<T>& job) { unpack_all(job); }
};
template struct VectorRoute<vector_isa, SnapshotRows<const float>>;
template struct VectorRoute<vector_isa, SnapshotRows<const bf16>>;
template struct VectorRoute<vector_isa, SnapshotRows<float>>;
template struct VectorRoute<vector_isa, SnapshotRows<bf16>>;

}  // namespace hyb::kernels
