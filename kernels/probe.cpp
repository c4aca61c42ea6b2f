#include "kernels/probe.h"

#include <atomic>
#include <chrono>
#include <cstring>

#include "kernels/probe_routes.h"

namespace hyb::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
constexpr std::chrono::milliseconds dot_time{50};
constexpr std::int64_t rounds_between_clock_reads = 20'000;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

auto reader_of(Isa isa) {
  return isa == Isa::avx512 ? read_all_avx512 : isa == Isa::avx2 ? read_all_avx2 : read_all_plain;
}

auto dot_of(Isa isa, DType dtype) {
  if (isa == Isa::avx512) return dtype == DType::bf16 ? dot_bf16_avx512 : dot_f32_avx512;
  return isa == Isa::avx2 ? dot_f32_avx2 : dot_f32_plain;
}

}  // namespace

ReadProbe::ReadProbe(Queue& queue, std::size_t bytes)
    : queue_(&queue), buffer_(queue.device(), bytes / piece_bytes * piece_bytes) {
  require(bytes >= piece_bytes, "probe: at least 1 MiB to read");
  const auto pieces = static_cast<std::int64_t>(buffer_.bytes()) / piece_bytes;
  queue_->share(pieces, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::memset(buffer_.data() + begin * piece_bytes, 1,
                static_cast<std::size_t>((end - begin) * piece_bytes));
  });
}

double ReadProbe::bytes_per_s() {
  const auto read = reader_of(queue_->isa());
  const auto pieces = static_cast<std::int64_t>(buffer_.bytes()) / piece_bytes;
  std::atomic<std::uint64_t> sink{0};
  const auto begun = Clock::now();
  queue_->share(pieces, 1, [&](std::int64_t begin, std::int64_t end, int) {
    sink += read(buffer_.data() + begin * piece_bytes,
                 static_cast<std::size_t>((end - begin) * piece_bytes));
  });
  return static_cast<double>(buffer_.bytes()) / seconds_since(begun);
}

double flops_per_s(Queue& queue, DType dtype) {
  const auto dot = dot_of(queue.isa(), dtype);
  std::atomic<std::int64_t> done{0};
  std::atomic<float> sink{0.0F};
  const auto begun = Clock::now();
  queue.parallel([&](int, int) {
    std::int64_t mine = 0;
    float seen = 0.0F;
    while (Clock::now() - begun < dot_time) mine += dot(rounds_between_clock_reads, seen);
    done += mine;
    sink.store(seen);
  });
  return static_cast<double>(done.load()) / seconds_since(begun);
}

}  // namespace hyb::kernels
