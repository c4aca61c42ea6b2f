// Questions of designs that only a card can answer, a JSON object per figure:
//   driver calls   how long the calls of virtual memory take while the card is idle and while a
//                  kernel runs: how large handles are to be, and whether a flip may make any
//   aliases        whether memory that is mapped twice is as fast as memory that is mapped once,
//                  and whether a kernel reads through one mapping what the last one wrote through
//                  the other
//   state layout   whether a decode step reads and writes recurrent states as fast where the layers
//                  of a sequence are together as where the sequences of a layer are
//
//     ninja card_gates && ./card_gates     (16 GiB of the card's memory)

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/arena/cuda_arena.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"

namespace hyb::kernels::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

const char* text(bool value) { return value ? "true" : "false"; }

/// Microseconds; `share` of them all are faster: 0.5 is the median.
struct Times {
  template <typename Action>
  void add(const Action& action) {
    const auto begin = Clock::now();
    action();
    all.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  double quantile(double share) {
    std::sort(all.begin(), all.end());
    const auto at = static_cast<std::size_t>(share * static_cast<double>(all.size()));
    return all.at(std::min(at, all.size() - 1));
  }

  std::vector<double> all;
};

/// Microseconds of the kernels that `body` enqueues, from a graph: the median of some replays.
template <typename Body>
double kernel_us(Stream& stream, const Body& body) {
  body();  // loads them: no part of a graph
  stream.wait();
  const Graph graph(stream, body);
  Times times;
  for (int i = 0; i < 9; ++i) {
    times.add([&] {
      graph.replay(stream);
      stream.wait();
    });
  }
  return times.quantile(0.5);
}

// ---- driver calls -------------------------------------------------------------------------------

/// Runs until the flag is set, ten seconds at most.
__global__ void busy_kernel(const std::uint32_t* ends) {
  const long long end = clock64() + 15'000'000'000;
  while (*static_cast<const volatile std::uint32_t*>(ends) == 0 && clock64() < end) continue;
}

/// A kernel that keeps the card busy while this lives.
class Busy {
 public:
  explicit Busy(bool wanted) : wanted_(wanted) {
    check(cudaHostAlloc(reinterpret_cast<void**>(&ends_), sizeof(*ends_), cudaHostAllocMapped),
          "cudaHostAlloc");
    *ends_ = 0;
    if (wanted) busy_kernel<<<1, 32, 0, stream_.handle()>>>(ends_);
    check(cudaGetLastError(), "busy_kernel");
  }
  ~Busy() {
    *static_cast<volatile std::uint32_t*>(ends_) = 1;
    cudaStreamSynchronize(stream_.handle());
    cudaFreeHost(ends_);
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

  /// It has not ended: no call waited for it.
  bool is_running() const { return wanted_ && !stream_.is_done(); }

 private:
  Stream stream_;
  std::uint32_t* ends_ = nullptr;
  bool wanted_;
};

/// The driver's calls for memory of one card, as the product makes them; throws where one is
/// refused.
struct Mapper {
  static void succeed(driver::Result result, const char* call) {
    if (result == driver::success) return;
    throw std::runtime_error(std::string(call) + " failed: " + std::to_string(result));
  }
  driver::Address reserve(std::size_t bytes) const {
    driver::Address at = 0;
    succeed(driver.mem_address_reserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
    return at;
  }
  driver::Handle create(std::size_t bytes) const {
    driver::Handle handle = 0;
    succeed(driver.mem_create(&handle, bytes, &properties, 0), "cuMemCreate");
    return handle;
  }
  void map(driver::Address at, std::size_t bytes, driver::Handle handle) const {
    succeed(driver.mem_map(at, bytes, 0, handle, 0), "cuMemMap");
  }
  void open(driver::Address at, std::size_t bytes) const {
    succeed(driver.mem_set_access(at, bytes, &access, 1), "cuMemSetAccess");
  }
  void unmap(driver::Address at, std::size_t bytes) const {
    succeed(driver.mem_unmap(at, bytes), "cuMemUnmap");
  }
  void release(driver::Handle handle) const { succeed(driver.mem_release(handle), "cuMemRelease"); }
  void free(driver::Address at, std::size_t bytes) const {
    succeed(driver.mem_address_free(at, bytes), "cuMemAddressFree");
  }

  DriverTable driver = cuda::driver();
  driver::AllocationProperties properties = {
      driver::allocation_pinned, driver::handle_none, {driver::location_device, 0}, nullptr, {}};
  driver::AccessDescription access = {{driver::location_device, 0}, driver::access_read_write};
};

void print_calls(const Mapper& mapper, std::size_t bytes, std::size_t count, bool is_busy) {
  const driver::Address at = mapper.reserve(bytes * count);
  std::vector<driver::Handle> handles(count);
  Times create, map, open, unmap, release, open_all, unmap_all;
  const Busy busy(is_busy);
  for (std::size_t i = 0; i < count; ++i) {
    create.add([&] { handles[i] = mapper.create(bytes); });
    map.add([&] { mapper.map(at + bytes * i, bytes, handles[i]); });
    open.add([&] { mapper.open(at + bytes * i, bytes); });
  }
  for (std::size_t i = 0; i < count; ++i) {
    unmap.add([&] { mapper.unmap(at + bytes * i, bytes); });
  }
  for (std::size_t i = 0; i < count; ++i) mapper.map(at + bytes * i, bytes, handles[i]);
  open_all.add([&] { mapper.open(at, bytes * count); });
  unmap_all.add([&] { mapper.unmap(at, bytes * count); });
  for (const driver::Handle handle : handles) release.add([&] { mapper.release(handle); });
  const bool was_busy = busy.is_running();
  mapper.free(at, bytes * count);
  std::printf(
      "{\"what\":\"driver calls\",\"mib\":%zu,\"count\":%zu,\"busy\":%s,\"busy_to_the_end\":%s",
      bytes / mebibyte, count, text(is_busy), text(was_busy));
  const auto print = [](const char* name, Times& times) {
    std::printf(",\"%s_us\":%.2f,\"%s_p99_us\":%.2f", name, times.quantile(0.5), name,
                times.quantile(0.99));
  };
  print("create", create);
  print("map", map);
  print("set_access", open);
  print("unmap", unmap);
  print("release", release);
  std::printf(",\"set_access_of_all_us\":%.1f,\"unmap_of_all_us\":%.1f}\n", open_all.all[0],
              unmap_all.all[0]);
}

// ---- aliases ------------------------------------------------------------------------------------

constexpr unsigned many_blocks = 132 * 16, threads = 256;

__global__ void copy_kernel(uint4* to, const uint4* from, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

__global__ void read_kernel(std::uint32_t* sink, const uint4* from, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  std::uint32_t seen = 0;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    const uint4 value = from[i];
    seen ^= value.x ^ value.y ^ value.z ^ value.w;
  }
  if (seen == 0x12345678U) *sink = 0;  // never: but the loads are needed
}

__global__ void fill_kernel(std::uint32_t* to, std::size_t count, std::uint32_t first) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    to[i] = first + static_cast<std::uint32_t>(i);
  }
}

__global__ void compare_kernel(std::uint32_t* wrong, const std::uint32_t* from, std::size_t count,
                               std::uint32_t first) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    if (from[i] != first + static_cast<std::uint32_t>(i)) atomicAdd(wrong, 1U);
  }
}

/// Where handle i is in the second mapping, which has another order.
std::size_t other_place(std::size_t i, std::size_t count) { return (i * 7 + 3) % count; }

/// Words that a kernel reads wrong through one mapping, after another one wrote them through the
/// other.
std::uint32_t wrong_words(Stream& stream, std::uint32_t* wrong, driver::Address first,
                          driver::Address second, std::size_t bytes, std::size_t count) {
  const std::size_t words = bytes / sizeof(std::uint32_t);
  for (unsigned round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < count; i += std::max<std::size_t>(1, count / 64)) {
      auto* to = reinterpret_cast<std::uint32_t*>(first + bytes * i);
      auto* from = reinterpret_cast<std::uint32_t*>(second + bytes * other_place(i, count));
      if (round % 2 == 1) std::swap(to, from);
      const auto value = static_cast<std::uint32_t>(1000 * round + i);
      fill_kernel<<<64, threads, 0, stream.handle()>>>(to, words, value);
      compare_kernel<<<64, threads, 0, stream.handle()>>>(wrong, from, words, value);
    }
  }
  std::uint32_t found = 0;
  download(stream, std::as_writable_bytes(std::span(&found, 1)),
           reinterpret_cast<std::byte*>(wrong));
  return found;
}

void print_aliases(Stream& stream, const Mapper& mapper, std::size_t bytes, std::size_t total) {
  const std::size_t count = total / bytes;
  const driver::Address places[3] = {mapper.reserve(total), mapper.reserve(total),
                                     mapper.reserve(total)};
  std::vector<driver::Handle> handles;
  for (std::size_t i = 0; i < 2 * count; ++i) handles.push_back(mapper.create(bytes));
  for (std::size_t i = 0; i < count; ++i) {
    mapper.map(places[0] + bytes * i, bytes, handles[i]);
    mapper.map(places[1] + bytes * other_place(i, count), bytes, handles[i]);
    mapper.map(places[2] + bytes * i, bytes, handles[count + i]);
  }
  for (const driver::Address at : places) mapper.open(at, total);
  auto* const word = reinterpret_cast<std::uint32_t*>(allocate(sizeof(std::uint32_t)));
  const std::size_t vectors = total / sizeof(uint4);
  // In turns, so that a drift of clocks does not look like a mapping's cost.
  for (const int place : {0, 1, 2, 0, 1, 2}) {
    auto* const at = reinterpret_cast<uint4*>(places[place]);
    const double read = kernel_us(stream, [&] {
      read_kernel<<<many_blocks, threads, 0, stream.handle()>>>(word, at, vectors);
    });
    const double copied = kernel_us(stream, [&] {
      copy_kernel<<<many_blocks, threads, 0, stream.handle()>>>(at + vectors / 2, at, vectors / 2);
    });
    std::printf(
        "{\"what\":\"aliases\",\"mib\":%zu,\"mapped\":%d,\"mapping\":%d,\"read_gb_s\":%.1f,"
        "\"copy_gb_s\":%.1f}\n",
        bytes / mebibyte, place < 2 ? 2 : 1, place % 2, static_cast<double>(total) / read / 1e3,
        static_cast<double>(total) / copied / 1e3);
  }
  std::printf("{\"what\":\"aliases\",\"mib\":%zu,\"wrong_words\":%u}\n", bytes / mebibyte,
              wrong_words(stream, word, places[0], places[1], bytes, count));
  for (const driver::Address at : places) mapper.unmap(at, total);
  for (const driver::Handle handle : handles) mapper.release(handle);
  for (const driver::Address at : places) mapper.free(at, total);
  release(reinterpret_cast<std::byte*>(word));
}

// ---- state layout -------------------------------------------------------------------------------

struct StateParams {
  float4* states;
  std::size_t sequence_stride, layer_stride;  ///< in vectors
  int layer, head_vectors;
};

/// What a step of a recurrence reads and writes: block (sequence, head), sequences in a mixed
/// order.
__global__ void state_kernel(const StateParams p) {
  const std::size_t sequence = (blockIdx.x * 37 + 11) % 256;
  float4* const state = p.states + sequence * p.sequence_stride +
                        static_cast<std::size_t>(p.layer) * p.layer_stride +
                        static_cast<std::size_t>(blockIdx.y) * p.head_vectors;
  for (int i = threadIdx.x; i < p.head_vectors; i += blockDim.x) {
    float4 value = state[i];
    value.x = value.x * 0.999F + 1e-6F;
    value.y *= 0.999F;
    value.z *= 0.999F;
    value.w *= 0.999F;
    state[i] = value;
  }
}

void print_layouts(Stream& stream, const char* model, int layers, unsigned heads,
                   std::size_t head_bytes) {
  constexpr std::size_t sequences = 256, unit = 2 * mebibyte;
  const std::size_t layer_bytes = heads * head_bytes;
  const std::size_t slot_bytes = (layers * layer_bytes + unit - 1) / unit * unit;
  std::byte* const held = allocate(slot_bytes * sequences);
  const auto vectors = [](std::size_t bytes) { return bytes / sizeof(float4); };
  for (const unsigned batch : {1U, 8U, 64U, 256U}) {
    const auto time = [&](std::size_t sequence_stride, std::size_t layer_stride) {
      return kernel_us(stream, [&] {
        for (int layer = 0; layer < layers; ++layer) {
          state_kernel<<<dim3(batch, heads), 128, 0, stream.handle()>>>(
              {reinterpret_cast<float4*>(held), vectors(sequence_stride), vectors(layer_stride),
               layer, static_cast<int>(vectors(head_bytes))});
        }
      });
    };
    const auto by_sequence = [&] { return time(slot_bytes, layer_bytes); };
    const double first = by_sequence();
    const double by_layer = time(layer_bytes, layer_bytes * sequences);
    std::printf(
        "{\"what\":\"state layout\",\"model\":\"%s\",\"batch\":%u,\"by_sequence_us\":%.1f,"
        "\"by_layer_us\":%.1f,\"by_sequence_again_us\":%.1f}\n",
        model, batch, first, by_layer, by_sequence());
  }
  release(held);
}

}  // namespace
}  // namespace hyb::kernels::cuda

int main() {
  try {
    using namespace hyb::kernels::cuda;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was measured before a cut stays
    Stream stream;
    const Mapper mapper;
    for (const bool is_busy : {false, true}) {
      print_calls(mapper, 2 * mebibyte, 512, is_busy);
      print_calls(mapper, 16 * mebibyte, 128, is_busy);
      print_calls(mapper, 64 * mebibyte, 64, is_busy);
      print_calls(mapper, 512 * mebibyte, 8, is_busy);
    }
    for (const std::size_t mib : {2, 64}) {
      print_aliases(stream, mapper, mib * mebibyte, 4096 * mebibyte);
    }
    print_layouts(stream, "granite-4.0-h-tiny", 36, 48, 64 * 128 * sizeof(float));
    print_layouts(stream, "nemotron-3-nano", 23, 64, 64 * 128 * sizeof(float));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "card_gates: %s\n", error.what());
    return 1;
  }
}
