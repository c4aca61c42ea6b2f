// bench_codes [isa] [rows...]: what linear achieves on weights with codes, beside probes of the
// same moment: up to 16 rows packed bytes against the read probe, above that against the FLOP probe
// of bf16; and how fast packing is. Probe and measurement alternate, and the best of each counts.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/base/error.h"
#include "kernels/linear/linear.h"
#include "kernels/probe.h"
#include "tests/kernels/linear/coded_weights.h"

namespace {

using namespace hyb;
using namespace hyb::kernels;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 7;

double seconds_of(const auto& body) {
  const auto begun = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

Weight weight_of(Queue& queue, WeightCode code, const testing::PublishedMatrix& published) {
  const Quantize quantize = code == WeightCode::q8   ? Quantize::q8
                            : code == WeightCode::q4 ? Quantize::q4
                                                     : Quantize::none;
  return Weight::pack(queue, published.source, DType::bf16, quantize);
}

void bench(Queue& queue, ReadProbe& read_probe, WeightCode code, std::int64_t n, std::int64_t k,
           std::int64_t rows) {
  const testing::PublishedMatrix published(code == WeightCode::fp8 ? DType::f8_e4m3 : DType::bf16,
                                           1, n, k, 128, 128, 1);
  const bool few = rows <= 16;
  std::vector<Weight> weights;
  double pack_seconds = 1e9;
  pack_seconds = seconds_of([&] { weights.push_back(weight_of(queue, code, published)); });
  const double bytes = static_cast<double>(weights[0].owned_bytes());
  const int copies = few ? std::max(2, static_cast<int>(3e8 / bytes)) : 1;
  while (static_cast<int>(weights.size()) < copies) {
    weights.push_back(weight_of(queue, code, published));
  }
  Buffer x(Device::cpu, static_cast<std::size_t>(rows * k) * 2);
  Buffer y(Device::cpu, static_cast<std::size_t>(rows * n) * 2);
  for (std::int64_t i = 0; i < rows * k; ++i) {
    reinterpret_cast<bf16*>(x.data())[i] = to_bf16(static_cast<float>(i % 17) - 8.0F);
  }
  const double work = 2.0 * static_cast<double>(rows * n * k);
  const int repeats = few ? 1 : std::max(1, static_cast<int>(5e10 / work));
  double best = 0, probe = 0;
  for (int round = 0; round < rounds; ++round) {
    probe = std::max(probe, few ? read_probe.bytes_per_s() : flops_per_s(queue, DType::bf16));
    const double seconds = seconds_of([&] {
      for (int i = 0; i < repeats; ++i) {
        for (const Weight& weight : weights) {
          linear(queue, {.x = x.tensor(0, DType::bf16, {rows, k}),
                         .weight = &weight,
                         .y = y.tensor(0, DType::bf16, {rows, n})});
        }
      }
    });
    best = std::max(best, (few ? bytes * copies : work * repeats) / seconds);
  }
  fmt::print("{:5} T {:4} N {:6} K {:5}: {:7.2f} {} of {:7.2f}: {:.3f}   packed at {:.0f} M/s\n",
             testing::name_of(code), rows, n, k, best / 1e9, few ? "GB/s" : "GFLOP/s", probe / 1e9,
             best / probe, 1e-6 * static_cast<double>(n * k) / pack_seconds);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    QueueOptions options;
    if (argc > 1) options.isa = static_cast<Isa>(std::atoi(argv[1]));
    Queue queue(Device::cpu, options);
    ReadProbe read_probe(queue);
    std::vector<std::int64_t> counts;
    for (int i = 2; i < argc; ++i) counts.push_back(std::atoi(argv[i]));
    if (counts.empty()) counts = {1, 2, 4, 6, 8, 16, 512};
    for (const std::int64_t rows : counts) {
      for (const WeightCode code : testing::all_codes) {
        bench(queue, read_probe, code, 3584, 1024, rows);
        bench(queue, read_probe, code, 1024, 3584, rows);
        bench(queue, read_probe, code, 6144, 1024, rows);
      }
    }
  } catch (const Error& error) {
    fmt::print(stderr, "bench_codes: {}\n", error.what());
    return static_cast<int>(error.kind());
  }
}
