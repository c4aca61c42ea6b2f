// What a node of a graph costs on a card (on the emulator this only shows that the program works):
// a chain of kernels that do next to nothing, each of which depends on the one before it, with and
// without early starts, for one block, one per multiprocessor and four. One JSON object per line.
//
//     ninja card_nodes && ./card_nodes [nodes]

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/stream.h"

namespace hyb::kernels::cuda {
namespace {

constexpr unsigned threads = 128;

struct Params {
  std::uint32_t* counts;  ///< one per block
};

__global__ void count_kernel(const Params p) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (threadIdx.x == 0) p.counts[blockIdx.x] += 1;
}

/// Microseconds per node of the fastest of some replays, each of which was waited for.
void print_nodes(Stream& stream, int nodes, int blocks, bool starts_early) {
  constexpr int replays = 30;
  std::vector<std::uint32_t> counts(static_cast<std::size_t>(blocks));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(counts));
  std::byte* const held = allocate(bytes.size());
  const LaunchShape shape{
      .blocks = dim3(static_cast<unsigned>(blocks)), .threads = threads, .waits = !starts_early};
  const Params params{reinterpret_cast<std::uint32_t*>(held)};
  launch(stream, shape, count_kernel, params);  // loads it: no part of a graph
  const Graph graph(stream, [&] {
    for (int i = 0; i < nodes; ++i) launch(stream, shape, count_kernel, params);
  });
  double best = 0;
  for (int i = 0; i < replays; ++i) {
    stream.wait();
    const auto begin = std::chrono::steady_clock::now();
    graph.replay(stream);
    stream.wait();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    best = i == 0 ? time.count() : std::min(best, time.count());
  }
  download(stream, bytes, held);
  release(held);
  const auto expected = static_cast<std::uint32_t>(1 + replays * nodes);
  const bool counted = std::all_of(counts.begin(), counts.end(),
                                   [&](std::uint32_t count) { return count == expected; });
  const auto text = [](bool value) { return value ? "true" : "false"; };
  std::printf(
      "{\"what\":\"nodes\",\"nodes\":%d,\"blocks\":%d,\"starts_early\":%s,\"us_per_node\":%.3f,"
      "\"counted_right\":%s}\n",
      nodes, blocks, text(starts_early), best / nodes, text(counted));
  if (!counted) throw std::runtime_error("the kernels of a graph did not run one after the other");
}

}  // namespace
}  // namespace hyb::kernels::cuda

int main(int count, char** arguments) {
  try {
    using namespace hyb::kernels::cuda;
    const int nodes = count > 1 ? std::stoi(arguments[1]) : 300;
    Stream stream;
    for (const bool starts_early : {false, true}) {
      for (const int blocks : {1, stream.processors(), 4 * stream.processors()}) {
        print_nodes(stream, nodes, blocks, starts_early);
      }
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "card_nodes: %s\n", error.what());
    return 1;
  }
}
