#include "kernels/probe.h"

#include <emmintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/probe_loops.h"
#include "kernels/simd/routes.h"
#include "kernels/transfer.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {
std::uint64_t read_all_plain(const std::byte* bytes, std::size_t count) {
  return read_words<__m128i>(bytes, count);
}

std::int64_t dot_f32_plain(std::int64_t rounds, float& sink) {
  return add_products<12, 8, __m128>(
      rounds, sink, _mm_set1_ps(1.0F),
      [](__m128 sum, __m128 x, __m128 w) { return _mm_add_ps(sum, _mm_mul_ps(x, w)); });
}

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
constexpr std::chrono::milliseconds dot_time{50};
constexpr std::int64_t rounds_between_clock_reads = 20'000;

/// Passes of a copy, and runs of a product, that outweigh what asking for them costs.
constexpr int card_rounds = 4;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

auto reader_of(Isa isa) {
  return isa == Isa::avx512 ? read_all_avx512 : isa == Isa::avx2 ? read_all_avx2 : read_all_plain;
}

auto dot_of(Isa isa, DType dtype) {
  if (isa == Isa::avx512) return dtype == DType::bf16 ? dot_bf16_avx512 : dot_f32_avx512;
  return isa == Isa::avx2 ? dot_f32_avx2 : dot_f32_plain;
}

double copied_bytes_per_s(Queue& queue, const Buffer& buffer) {
  const std::size_t half = buffer.bytes() / 2;
  wait(queue);
  const auto start = SteadyClock::now();
  for (int i = 0; i < card_rounds; ++i) copy(queue, buffer.data() + half, buffer.data(), half);
  wait(queue);
  return static_cast<double>(2 * half) * card_rounds / seconds_since(start);
}

/// Numbers between -1 and 1, in a pattern that repeats: zeros would be multiplied at less power,
/// and so faster, than any model's numbers.
void fill(Queue& queue, const Buffer& buffer, DType dtype) {
  std::vector<std::byte> pattern(std::min(buffer.bytes(), std::size_t{1} << 20));
  std::minstd_rand random(1);
  const auto values = static_cast<std::int64_t>(pattern.size() / size_of(dtype));
  for (std::int64_t i = 0; i < values; ++i) {
    write_value(pattern.data(), dtype, i, static_cast<float>(random() % 2048) / 1024.0F - 1.0F);
  }
  for (std::size_t at = 0; at < buffer.bytes(); at += pattern.size()) {
    upload(queue, buffer.data() + at,
           std::span(pattern).first(std::min(pattern.size(), buffer.bytes() - at)));
  }
}

/// One product of two n x n matrices.
double product_seconds(Queue& queue, DType dtype, std::int64_t n) {
  const auto bytes = static_cast<std::size_t>(n * n) * size_of(dtype);
  const Buffer x(Device::cuda, bytes), y(Device::cuda, bytes), w(Device::cuda, bytes);
  fill(queue, x, dtype);
  fill(queue, w, dtype);
  const Weight weight = Weight::view({dtype, 1, n, n, {w.data(), bytes}});
  const Linear op = {
      .x = x.tensor(0, dtype, {n, n}), .weight = &weight, .y = y.tensor(0, dtype, {n, n})};
  linear(queue, op);
  wait(queue);
  const auto start = SteadyClock::now();
  for (int i = 0; i < card_rounds; ++i) linear(queue, op);
  wait(queue);
  return seconds_since(start) / card_rounds;
}

double product_flops_per_s(Queue& queue, DType dtype) {
  constexpr std::int64_t side_min = 128, side_max = 8192;
  const double enough = std::chrono::duration<double>(dot_time).count() / (8 * card_rounds);
  for (std::int64_t n = side_min;; n *= 2) {
    const double seconds = product_seconds(queue, dtype, n);
    const double flops =
        2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    if (n == side_max || seconds > enough) return flops / seconds;
  }
}

}  // namespace

ReadProbe::ReadProbe(Queue& queue, std::size_t bytes)
    : queue_(&queue), buffer_(queue.device(), bytes / piece_bytes * piece_bytes) {
  require(bytes >= piece_bytes, "probe: at least 1 MiB to read");
  if (queue.device() == Device::cuda) return;
  const auto pieces = static_cast<std::int64_t>(buffer_.bytes()) / piece_bytes;
  queue_->share(pieces, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::memset(buffer_.data() + begin * piece_bytes, 1,
                static_cast<std::size_t>((end - begin) * piece_bytes));
  });
}

double ReadProbe::bytes_per_s() {
  if (queue_->device() == Device::cuda) return copied_bytes_per_s(*queue_, buffer_);
  const auto read = reader_of(queue_->isa());
  const auto pieces = static_cast<std::int64_t>(buffer_.bytes()) / piece_bytes;
  std::atomic<std::uint64_t> sink{0};
  const auto start = SteadyClock::now();
  queue_->share(pieces, 1, [&](std::int64_t begin, std::int64_t end, int) {
    sink += read(buffer_.data() + begin * piece_bytes,
                 static_cast<std::size_t>((end - begin) * piece_bytes));
  });
  return static_cast<double>(buffer_.bytes()) / seconds_since(start);
}

double flops_per_s(Queue& queue, DType dtype) {
  if (queue.device() == Device::cuda) return product_flops_per_s(queue, dtype);
  const auto dot = dot_of(queue.isa(), dtype);
  std::atomic<std::int64_t> done{0};
  std::atomic<float> sink{0.0F};
  const auto start = SteadyClock::now();
  queue.parallel([&](int, int) {
    std::int64_t mine = 0;
    float seen = 0.0F;
    while (SteadyClock::now() - start < dot_time) mine += dot(rounds_between_clock_reads, seen);
    done += mine;
    sink.store(seen);
  });
  return static_cast<double>(done.load()) / seconds_since(start);
}

}  // namespace hyb::kernels
