// What virtual memory costs on a card (or on the emulator, which only shows that this program
// works): driver calls for handles of several sizes, copies through one address and through a
// second one of the same memory, and a change of owner. One JSON object per line.
//
//     ninja card_memory && ./card_memory [MiB of the copies]

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/arena/cuda_arena.h"
#include "kernels/arena/superblocks.h"
#include "kernels/card.h"
#include "kernels/cuda/driver.h"
#include "kernels/transfer.h"

using namespace hyb;
using namespace hyb::kernels;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

template <typename Action>
double microseconds(const Action& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

void print_calls(std::size_t bytes) {
  constexpr int rounds = 8;
  CudaArena arena(cuda::driver(), 0, bytes);
  std::byte* const at = arena.reserve(rounds * bytes);
  std::vector<HandleId> handles;
  const double create = microseconds([&] {
    for (int i = 0; i < rounds; ++i) handles.push_back(arena.create());
  });
  const double map = microseconds([&] {
    for (int i = 0; i < rounds; ++i) {
      arena.map(at + static_cast<std::size_t>(i) * bytes,
                {&handles[static_cast<std::size_t>(i)], 1});
    }
  });
  const double unmap = microseconds([&] {
    for (int i = 0; i < rounds; ++i) {
      arena.unmap(at + static_cast<std::size_t>(i) * bytes,
                  {&handles[static_cast<std::size_t>(i)], 1});
    }
  });
  const double map_all = microseconds([&] { arena.map(at, handles); });
  const double unmap_all = microseconds([&] { arena.unmap(at, handles); });
  const double release = microseconds([&] {
    for (const HandleId handle : handles) arena.release(handle);
  });
  arena.unreserve(at, rounds * bytes);
  fmt::print(
      "{{\"what\":\"calls\",\"mib\":{},\"create_us\":{:.1f},\"map_and_access_us\":{:.1f},"
      "\"unmap_us\":{:.1f},\"map_8_access_once_us\":{:.1f},\"unmap_8_at_once_us\":{:.1f},"
      "\"release_us\":{:.1f}}}\n",
      bytes / mebibyte, create / rounds, map / rounds, unmap / rounds, map_all, unmap_all,
      release / rounds);
}

/// Bytes read and written per second by copies from one half to the other.
double copy_rate(Queue& queue, std::byte* at, std::size_t bytes) {
  constexpr int rounds = 5;
  const std::size_t half = bytes / 2;
  copy(queue, at + half, at, half);
  wait(queue);
  const double time = microseconds([&] {
    for (int i = 0; i < rounds; ++i) copy(queue, at + half, at, half);
    wait(queue);
  });
  return 2e6 * static_cast<double>(half) * rounds / time;
}

/// The same memory through one mapping, and while it is mapped twice, through both.
void print_aliases(Queue& queue, std::size_t bytes) {
  const std::size_t handle_bytes = std::max(2 * mebibyte, bytes / 64);
  CudaArena arena(cuda::driver(), 0, handle_bytes);
  std::vector<HandleId> handles;
  for (std::size_t i = 0; i < bytes / handle_bytes; ++i) handles.push_back(arena.create());
  std::byte* const first = arena.reserve(bytes);
  std::byte* const second = arena.reserve(bytes);
  arena.map(first, handles);
  std::vector<double> alone, one, other;
  for (int i = 0; i < 3; ++i) alone.push_back(copy_rate(queue, first, bytes));
  arena.map(second, handles);
  for (int i = 0; i < 3; ++i) {
    one.push_back(copy_rate(queue, first, bytes));
    other.push_back(copy_rate(queue, second, bytes));
  }
  const std::byte written{0x5a};
  upload(queue, first + bytes / 2, {&written, 1});
  std::byte seen{};
  download(queue, {&seen, 1}, second + bytes / 2);
  arena.unmap(first, handles);
  arena.unmap(second, handles);
  for (const HandleId handle : handles) arena.release(handle);
  arena.unreserve(first, bytes);
  arena.unreserve(second, bytes);
  const auto best = [](const std::vector<double>& rates) {
    return *std::max_element(rates.begin(), rates.end()) / 1e9;
  };
  fmt::print(
      "{{\"what\":\"aliases\",\"mib\":{},\"copy_gb_s\":{:.1f},\"copy_when_aliased_gb_s\":"
      "{:.1f},\"copy_through_alias_gb_s\":{:.1f},\"sees_the_same\":{}}}\n",
      bytes / mebibyte, best(alone), best(one), best(other), seen == written);
}

void print_flip(MapMode mode, const char* name) {
  constexpr std::size_t superblock = 16 * mebibyte;
  constexpr std::int32_t count = 8;
  const SuperblockShape shape = {.handle_bytes = 2 * mebibyte,
                                 .superblock_bytes = superblock,
                                 .superblocks = count,
                                 .plane_bytes = {{superblock / 2, superblock / 2}, {superblock}}};
  const auto map = make_superblocks(Device::cuda, shape, {.mode = mode});
  const auto own_all = [&](ViewId view) {
    return microseconds([&] {
             for (std::int32_t i = 0; i < count; ++i) map->own(SuperblockId{i}, view);
           }) /
           count;
  };
  own_all(ViewId{0});
  fmt::print("{{\"what\":\"change of owner\",\"mode\":\"{}\",\"mib\":{},\"us\":{:.2f}}}\n", name,
             superblock / mebibyte, own_all(ViewId{1}));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const std::size_t copied = (count > 1 ? std::stoul(arguments[1]) : 2048) * mebibyte;
    Queue queue(Device::cuda);
    for (const std::size_t mib : {2, 16, 64, 512}) print_calls(mib * mebibyte);
    print_aliases(queue, copied);
    print_flip(MapMode::flip, "flip");
    print_flip(MapMode::remap, "remap");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "card_memory: %s\n", error.what());
    return 1;
  }
}
