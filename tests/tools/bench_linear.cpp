// Prints what linear achieves beside probes of the same moment: prefill against the FLOP probe,
// decode against the read probe. Other programs disturb both, so probe and measurement alternate
// and the best of each counts.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/linear/linear.h"
#include "kernels/probe.h"

namespace {

using namespace hyb;
using namespace hyb::kernels;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 7;

struct Shape {
  std::int64_t n, k;
};

double seconds_of(const auto& body) {
  const auto begun = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

Buffer filled(std::size_t bytes) {
  Buffer buffer(Device::cpu, bytes);
  auto* const values = reinterpret_cast<std::uint16_t*>(buffer.data());
  for (std::size_t i = 0; i < bytes / 2; ++i) {
    values[i] = static_cast<std::uint16_t>(0x3c00 + i * 7 % 251);
  }
  return buffer;
}

Weight random_weight(Queue& queue, const Shape& shape, DType dtype) {
  const auto bytes = static_cast<std::size_t>(shape.n * shape.k) * size_of(dtype);
  const Buffer source = filled(bytes);
  return Weight::pack(queue, {dtype, 1, shape.n, shape.k, {source.data(), bytes}}, dtype);
}

void prefill(Queue& queue, const Shape& shape, std::int64_t tokens, DType dtype) {
  const Weight weight = random_weight(queue, shape, dtype);
  const Buffer x = filled(static_cast<std::size_t>(tokens * shape.k) * size_of(dtype));
  const Buffer y = filled(static_cast<std::size_t>(tokens * shape.n) * size_of(dtype));
  const Linear op = {.x = x.tensor(0, dtype, {tokens, shape.k}),
                     .weight = &weight,
                     .y = y.tensor(0, dtype, {tokens, shape.n})};
  const double work = 2.0 * static_cast<double>(tokens * shape.n * shape.k);
  const int repeats = std::max(1, static_cast<int>(1e11 / work));
  double best = 0, probe = 0;
  for (int round = 0; round < rounds; ++round) {
    probe = std::max(probe, flops_per_s(queue, dtype));
    const double seconds = seconds_of([&] {
      for (int i = 0; i < repeats; ++i) linear(queue, op);
    });
    best = std::max(best, work * repeats / seconds);
  }
  fmt::print("{} T {:4} N {:6} K {:5}: {:7.1f} GFLOP/s of {:7.1f}: {:.3f}\n", name_of(dtype),
             tokens, shape.n, shape.k, best / 1e9, probe / 1e9, best / probe);
  std::fflush(stdout);
}

/// Many weights one after the other, so that none stays in a cache.
void decode(Queue& queue, ReadProbe& read_probe, const Shape& shape, std::int64_t tokens,
            DType dtype) {
  const double bytes = static_cast<double>(shape.n * shape.k) * static_cast<double>(size_of(dtype));
  const int copies = std::max(2, static_cast<int>(4e8 / bytes));
  std::vector<Weight> weights;
  for (int i = 0; i < copies; ++i) weights.push_back(random_weight(queue, shape, dtype));
  const Buffer x = filled(static_cast<std::size_t>(tokens * shape.k) * size_of(dtype));
  const Buffer y = filled(static_cast<std::size_t>(tokens * shape.n) * size_of(dtype));
  double best = 0, probe = 0;
  for (int round = 0; round < rounds; ++round) {
    probe = std::max(probe, read_probe.bytes_per_s());
    const double seconds = seconds_of([&] {
      for (const Weight& weight : weights) {
        linear(queue, {.x = x.tensor(0, dtype, {tokens, shape.k}),
                       .weight = &weight,
                       .y = y.tensor(0, dtype, {tokens, shape.n})});
      }
    });
    best = std::max(best, bytes * copies / seconds);
  }
  fmt::print("{} T {:4} N {:6} K {:5}: {:7.2f} GB/s of {:7.2f}: {:.3f}\n", name_of(dtype), tokens,
             shape.n, shape.k, best / 1e9, probe / 1e9, best / probe);
  std::fflush(stdout);
}

void pack_speed(Queue& queue) {
  const Shape shape = {100352, 768};
  const auto bytes = static_cast<std::size_t>(shape.n * shape.k) * 2;
  const Buffer source = filled(bytes);
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    best =
        std::min(best, seconds_of([&] {
                   Weight::pack(queue, {DType::bf16, 1, shape.n, shape.k, {source.data(), bytes}},
                                DType::bf16);
                 }));
  }
  fmt::print("pack: {:.2f} GB/s of source, 0.68 GB in {:.3f} s\n",
             static_cast<double>(bytes) / best / 1e9, 0.68e9 * best / static_cast<double>(bytes));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    QueueOptions options;
    if (argc > 1) options.isa = static_cast<Isa>(std::atoi(argv[1]));
    Queue queue(Device::cpu, options);
    const bool only_decode = argc > 2 && std::string(argv[2]) == "decode";
    pack_speed(queue);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const Shape shape : {Shape{3376, 768}, Shape{768, 1536}, Shape{4096, 768},
                                Shape{768, 2048}, Shape{1536, 1536}, Shape{4096, 4096}}) {
        if (!only_decode) prefill(queue, shape, 512, dtype);
      }
    }
    ReadProbe read_probe(queue);
    for (const Shape shape : {Shape{3376, 768}, Shape{768, 1536}, Shape{768, 2048},
                              Shape{4096, 768}, Shape{100352, 768}, Shape{4096, 4096}}) {
      for (const std::int64_t tokens : {1, 2, 4, 6, 8, 16}) {
        decode(queue, read_probe, shape, tokens, DType::bf16);
      }
    }
    decode(queue, read_probe, {4096, 4096}, 1, DType::f32);
  } catch (const Error& error) {
    fmt::print(stderr, "bench_linear: {}\n", error.what());
    return static_cast<int>(error.kind());
  }
}
