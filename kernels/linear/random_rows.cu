#include "kernels/linear/random_rows.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vectors.h"
#include "kernels/linear/bits12_rows.h"
#include "kernels/linear/pack.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int elements = 8;  // of a thread
constexpr int threads = 256;

template <typename T>
struct Params {
  RandomNumbers numbers;
  std::int64_t count;
  T* out;
};

/// A thread owns neighbouring elements.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(threads) random_kernel(const Params<T> p) {
  const std::int64_t first = (std::int64_t{blockIdx.x} * threads + threadIdx.x) * elements;
  start_next_and_wait();
  if (first >= p.count) return;
  float values[elements];
  for (int i = 0; i < elements; ++i) values[i] = p.numbers[first + i];
  const auto left = static_cast<int>(std::min<std::int64_t>(p.count - first, elements));
  if (Aligned && left == elements) {
    store_eight<Aligned>(p.out + first, left, values);
  } else {
    store_eight<false>(p.out + first, left, values);
  }
}

struct CodesParams {
  RandomNumbers numbers;
  RandomCoding coding;  ///< bits12: none
  std::int64_t rows, columns, first, count;
  std::byte* out;
  std::uint32_t scale = 0;  ///< as it is stored; bits12: exponent of code 0
  std::int64_t halves = 0, row_bytes = 0, scales_at = 0, expert_bytes = 0;
};

/// Says where in a half of a chunk, 64 columns, what lane q of a matrix instruction takes.
struct LanePlace {
  std::int64_t half;
  int q;
  std::byte* row;

  __device__ __forceinline__ std::int64_t column(int group, int i) const {
    return half * 64 + group * 32 + q * 8 + i;
  }
};

template <WeightCode Code>
__device__ __forceinline__ void store_codes(const CodesParams& p, const RandomNumbers& numbers,
                                            const LanePlace& place) {
  std::uint32_t words[4] = {};
  for (int i = 0; i < 16; ++i) {
    const std::int64_t k = place.column(i / 8, i % 8);
    const std::uint32_t code =
        k < p.columns ? random_code(Code, p.coding, numbers.drawn(k)) : zero_code(Code);
    if constexpr (has_nibbles(Code)) {
      words[i / 8] |= code << (i % 8 * 4);
    } else {
      words[i / 4] |= code << (i % 4 * 8);
    }
  }
  if constexpr (has_nibbles(Code)) {
    store8(place.row + place.half * 32 + place.q * 8, {words[0], words[1]});
  } else {
    store16(place.row + place.half * 64 + place.q * 16, {words[0], words[1], words[2], words[3]});
  }
}

__device__ __forceinline__ void store_bits12(const CodesParams& p, const RandomNumbers& numbers,
                                             const LanePlace& place) {
  std::uint32_t rests[4] = {}, codes[2] = {};
#pragma unroll
  for (int group = 0; group < 2; ++group) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::int64_t k = place.column(group, i);
      const std::uint32_t bits = k < p.columns ? to_bf16(numbers[k]).bits : p.scale << 7;
      rests[group * 2 + i / 4] |= ((bits >> 8 & 0x80U) | (bits & 0x7fU)) << (i % 4 * 8);
      codes[group] |= ((bits >> 7 & 255U) - p.scale) << (i % 2 * 16 + i / 2 * 4);
    }
  }
  std::byte* const half = place.row + place.half * Bits12RowsShape::half_bytes;
  store16(half + place.q * 16, {rests[0], rests[1], rests[2], rests[3]});
  store8(half + Bits12RowsShape::codes_at + place.q * 8, {codes[0], codes[1]});
}

/// The scales of a half, or of 12 bits the header of the row.
template <WeightCode Code>
__device__ __forceinline__ void store_scales(const CodesParams& p, std::byte* scales,
                                             std::int64_t half) {
  constexpr std::int64_t chunk_bytes = CodedRowsShape::chunk_scale_bytes(Code);
  if constexpr (Code == WeightCode::bits12) {
    if (half == 0) {
      *reinterpret_cast<Bits12RowHeader*>(scales) = {.base = static_cast<std::uint16_t>(p.scale),
                                                     .first_patch = Bits12RowHeader::no_column,
                                                     .patches = 0};
    }
  } else if constexpr (Code == WeightCode::fp8) {
    if (half % 2 == 0) *reinterpret_cast<std::uint32_t*>(scales + half / 2 * chunk_bytes) = p.scale;
  } else {
    using Scale = std::conditional_t<Code == WeightCode::mxfp4, std::uint8_t, std::uint16_t>;
    auto* const two = reinterpret_cast<Scale*>(scales + half * chunk_bytes / 2);
    for (int group = 0; group < 2; ++group) {
      two[group] = static_cast<Scale>(half * 64 + group * 32 < p.columns ? p.scale : 0);
    }
  }
}

/// A thread owns what one lane takes of a half. Of an expert's end, what no row has is zeros.
template <WeightCode Code>
__global__ void __launch_bounds__(threads) codes_kernel(const CodesParams p) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  const std::int64_t row = thread / 4 / p.halves;
  const std::int64_t n = (p.first + row) % p.rows;
  std::byte* const expert = p.out + (p.first + row) / p.rows * p.expert_bytes;
  const LanePlace place = {.half = thread / 4 % p.halves,
                           .q = static_cast<int>(thread % 4),
                           .row = expert + n * p.row_bytes};
  start_next_and_wait();
  if (row >= p.count) return;
  const RandomNumbers numbers = p.numbers.from(row * p.columns);
  std::int64_t scale_bytes = 8;
  if constexpr (Code == WeightCode::bits12) {
    store_bits12(p, numbers, place);
  } else {
    store_codes<Code>(p, numbers, place);
    scale_bytes = p.halves / 2 * CodedRowsShape::chunk_scale_bytes(Code);
  }
  if (place.q != 0) return;
  store_scales<Code>(p, expert + p.scales_at + n * scale_bytes, place.half);
  if (n + 1 < p.rows || place.half > 0) return;
  for (std::int64_t i = p.scales_at + p.rows * scale_bytes; i < p.expert_bytes; ++i) {
    expert[i] = std::byte{0};
  }
}

void (*codes_kernel_of(WeightCode code))(CodesParams) {
  switch (code) {
    case WeightCode::fp8:
      return codes_kernel<WeightCode::fp8>;
    case WeightCode::q8:
      return codes_kernel<WeightCode::q8>;
    case WeightCode::q4:
      return codes_kernel<WeightCode::q4>;
    case WeightCode::mxfp4:
      return codes_kernel<WeightCode::mxfp4>;
    default:
      return codes_kernel<WeightCode::bits12>;
  }
}

}  // namespace

void fill_codes(Stream& stream, const RandomRows& job) {
  CodesParams p = {.numbers = job.numbers,
                   .coding = random_coding(job.code, job.numbers.reach),
                   .rows = job.rows,
                   .columns = job.columns,
                   .first = job.first,
                   .count = job.count,
                   .out = job.out};
  if (job.code == WeightCode::bits12) {
    const Bits12RowsShape shape = {job.rows, job.columns};
    p.scale = random_exponent(job.numbers);
    p.halves = shape.halves();
    p.row_bytes = shape.row_bytes();
    p.scales_at = shape.headers_at();
    p.expert_bytes = shape.expert_bytes();
  } else {
    const CodedRowsShape shape = {job.code, job.rows, job.columns};
    p.scale = scale_bits(job.code, p.coding.scale);
    p.halves = shape.chunks() * 2;
    p.row_bytes = shape.row_bytes();
    p.scales_at = shape.codes_bytes();
    p.expert_bytes = shape.expert_bytes();
  }
  launch(
      stream,
      {.blocks = dim3(pieces(job.count * p.halves * 4, std::int64_t{threads})), .threads = threads},
      codes_kernel_of(job.code), p);
}

void fill_random(Stream& stream, const RandomNumbers& numbers, std::int64_t count, DType dtype,
                 std::byte* out) {
  visit_float(dtype, [&]<typename T>(Tag<T>) {
    auto* const to = reinterpret_cast<T*>(out);
    launch(stream,
           {.blocks = dim3(pieces(count, std::int64_t{threads} * elements)), .threads = threads},
           is_vector_aligned(to, 0) ? random_kernel<T, true> : random_kernel<T, false>,
           Params<T>{.numbers = numbers, .count = count, .out = to});
  });
}

}  // namespace hyb::kernels::cuda
