// What superblocks cost on this machine's memory: start-up and changes of owner for the shapes of
// real models, and reading through the mappings against an ordinary buffer.
//
//     ninja bench_arena && ./bench_arena [GiB]

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/memory/pool/layout.h"
#include "kernels/arena/superblocks.h"
#include "kernels/buffer.h"

using namespace hyb;
using namespace hyb::kernels;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

/// CPU seconds of this thread: other programs on the machine do not count.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <typename Action>
double seconds(const Action& action) {
  const double begin = now();
  action();
  return now() - begin;
}

SuperblockShape shape_of(const SuperblockPlan& plan, std::size_t budget) {
  SuperblockShape shape = {
      .handle_bytes = plan.handle_bytes,
      .superblock_bytes = plan.superblock_bytes(),
      .superblocks = static_cast<std::int32_t>(budget / plan.superblock_bytes()),
      .plane_bytes = {}};
  for (const ViewPlan& view : plan.views) shape.plane_bytes.push_back(view.plane_bytes);
  return shape;
}

/// 16-token pages of some layers, and f32 slots.
void bench_shape(const std::string& name, std::size_t layers, std::size_t page_bytes,
                 std::size_t slot_bytes, std::size_t budget) {
  const std::vector<ViewRequest> views = {
      {.plane_unit_bytes = std::vector<std::size_t>(layers, page_bytes)},
      {.plane_unit_bytes = {slot_bytes}, .may_stretch = true}};
  const SuperblockShape shape =
      shape_of(plan_superblocks(views, 2 * mebibyte, std::size_t{4} << 30), budget);
  std::unique_ptr<SuperblockMap> map;
  const double start =
      seconds([&] { map = make_host_superblocks(shape, {.mode = MapMode::flip}); });
  constexpr int flips = 1000000;
  const double flip = seconds([&] {
    for (int i = 0; i < flips; ++i) {
      map->own(SuperblockId{i % shape.superblocks}, ViewId{i / shape.superblocks % 2});
    }
  });
  map = make_host_superblocks(shape, {.mode = MapMode::remap});
  const int changes = 2 * shape.superblocks;
  const double remap = seconds([&] {
    for (int i = 0; i < changes; ++i) {
      map->own(SuperblockId{i % shape.superblocks}, ViewId{i / shape.superblocks});
    }
  });
  fmt::print(
      "{:26} {:5} superblocks of {:4} MiB: start {:6.1f} ms, flip {:5.1f} ns, "
      "untouched remap {:6.1f} us\n",
      name, shape.superblocks, shape.superblock_bytes / mebibyte, start * 1e3, flip / flips * 1e9,
      remap / changes * 1e6);
}

/// Changes of owner of memory that was written, and the first writes of the new owner: in mode
/// remap they find new memory.
void bench_touched(MapMode mode, const char* name) {
  constexpr std::size_t layer = 14 * mebibyte;
  const SuperblockShape shape = {.handle_bytes = 2 * mebibyte,
                                 .superblock_bytes = 4 * layer,
                                 .superblocks = 1,
                                 .plane_bytes = {{layer, layer, layer, layer}, {4 * layer}}};
  const auto map = make_host_superblocks(shape, {.mode = mode});
  double change = 1e9;
  double write = 1e9;
  for (int i = 0; i < 20; ++i) {
    const ViewId view{i % 2};
    const double spent = seconds([&] { map->own(SuperblockId{0}, view); });
    const auto& planes = shape.plane_bytes[static_cast<std::size_t>(i % 2)];
    const double written = seconds([&] {
      for (std::size_t p = 0; p < planes.size(); ++p) {
        std::memset(map->plane(view, p), i, planes[p]);
      }
    });
    if (i < 2) continue;  // the very first touch
    change = std::min(change, spent);
    write = std::min(write, written);
  }
  fmt::print(
      "{}: 56 MiB that were written change owners in {:.2f} us, are written over in {:.1f} "
      "ms\n",
      name, change * 1e6, write * 1e3);
}

std::uint64_t sum(const std::byte* bytes, std::size_t count) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(bytes);
  return std::accumulate(words, words + count / sizeof(*words), std::uint64_t{0});
}

/// The same reads, turn by turn, through both; best of each.
void bench_reads(std::size_t bytes) {
  const SuperblockShape shape = {.handle_bytes = 2 * mebibyte,
                                 .superblock_bytes = bytes,
                                 .superblocks = 1,
                                 .plane_bytes = {{bytes}, {bytes}}};
  const auto map = make_host_superblocks(shape, {.mode = MapMode::flip});
  const Buffer buffer(Device::cpu, bytes);
  std::byte* const places[] = {buffer.data(), map->plane(ViewId{0}, 0)};
  for (std::byte* const place : places) std::memset(place, 1, bytes);
  constexpr std::size_t run = 16384;  // a page of 16 tokens in one layer
  std::vector<std::size_t> runs(bytes / run);
  std::iota(runs.begin(), runs.end(), std::size_t{0});
  std::shuffle(runs.begin(), runs.end(), std::mt19937(1));
  double whole[2] = {1e9, 1e9};
  double scattered[2] = {1e9, 1e9};
  std::uint64_t total = 0;
  for (int round = 0; round < 10; ++round) {
    for (const int i : {0, 1}) {
      whole[i] = std::min(whole[i], seconds([&] { total += sum(places[i], bytes); }));
      scattered[i] = std::min(scattered[i], seconds([&] {
                                for (const std::size_t at : runs) {
                                  total += sum(places[i] + at * run, run);
                                }
                              }));
    }
  }
  const auto rate = [&](double time) { return static_cast<double>(bytes) / time * 1e-9; };
  fmt::print("{} MiB in one go: buffer {:.2f} GB/s, superblocks {:.2f} GB/s, ratio {:.3f}\n",
             bytes / mebibyte, rate(whole[0]), rate(whole[1]), whole[0] / whole[1]);
  fmt::print(
      "{} MiB in scattered 16 KiB: buffer {:.2f} GB/s, superblocks {:.2f} GB/s, ratio "
      "{:.3f} (sum {})\n",
      bytes / mebibyte, rate(scattered[0]), rate(scattered[1]), scattered[0] / scattered[1], total);
}

}  // namespace

int main(int count, char** arguments) {
  const std::size_t budget = (count > 1 ? std::stoul(arguments[1]) : 64) << 30;
  bench_shape("granite-4.0-h-tiny", 4, 32768, 57344000, budget);
  bench_shape("Nemotron-Nano-12B-v2", 6, 65536, 148865024, budget);
  bench_shape("Qwen3-Next-80B-A3B", 12, 32768, 77266944, budget);
  bench_shape("Nemotron-3-Nano-30B-A3B", 6, 16384, 49086464, budget);
  bench_touched(MapMode::flip, "flip");
  bench_touched(MapMode::remap, "remap");
  bench_reads(std::size_t{1} << 30);
}
