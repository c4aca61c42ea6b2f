// What decides how a card reaches experts in the machine's memory, a JSON object per figure:
//   chain     the CPU's products of bf16 against the card's chains of multiply-adds, bit by bit
//   register  how long the driver takes to pin memory
//   read      the rate at which threads read pinned memory, alone and beside a copy to the card
//   hop       from the card to the CPU and back between two kernels, with no work on the CPU: by
//             graphs in pieces, by memory operations in a graph, by a block that spins
//
//     ninja card_hop && ./card_hop

#include <cuda.h>
#include <dlfcn.h>
#include <emmintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/linear/linear.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr std::size_t gibibyte = std::size_t{1} << 30;

double seconds_since(Clock::time_point begin) { return Seconds(Clock::now() - begin).count(); }

const char* text(bool value) { return value ? "true" : "false"; }

// ---- chains of multiply-adds --------------------------------------------------------------------

constexpr int chain_columns = 4;  // two pairs: the second one's sum starts from the first one's

struct ChainParams {
  const std::uint16_t *x, *w;  ///< bf16 [rows, chain_columns], [outputs, chain_columns]
  const float* y;              ///< the CPU's, [rows, outputs]
  int rows, outputs;
  unsigned long long* wrong;
};

__device__ float multiply_add(float a, float b, float sum, bool flushes) {
  float result;
  if (flushes) {
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(sum));
  } else {
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(sum));
  }
  return result;
}

/// Counts results that are not the CPU's, but for a zero's sign and a NaN's payload.
template <bool odd_first, bool flushes>
__global__ void chain_kernel(const ChainParams p) {
  const auto number = [](std::uint16_t bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
  };
  const long long all = static_cast<long long>(p.rows) * p.outputs;
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < all;
       i += static_cast<long long>(gridDim.x) * blockDim.x) {
    const std::uint16_t* const x = p.x + i / p.outputs * chain_columns;
    const std::uint16_t* const w = p.w + i % p.outputs * chain_columns;
    float sum = 0;
    for (int k = 0; k < chain_columns; ++k) {
      const int at = odd_first ? k ^ 1 : k;
      sum = multiply_add(number(x[at]), number(w[at]), sum, flushes);
    }
    const bool same = sum == p.y[i] || (sum != sum && p.y[i] != p.y[i]);
    if (!same) atomicAdd(p.wrong, 1ULL);
  }
}

/// bf16 of three kinds: about 1, such that products are next to the smallest normal number, and
/// next to or below that themselves.
std::vector<std::uint16_t> numbers(std::size_t count, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<std::uint16_t> all(count);
  for (std::uint16_t& bits : all) {
    const unsigned kind = random() % 10;
    const unsigned exponent = kind < 5   ? 121 + random() % 13
                              : kind < 9 ? 58 + random() % 13
                                         : random() % 4;
    bits = static_cast<std::uint16_t>((random() % 2) << 15 | exponent << 7 | random() % 128);
  }
  return all;
}

template <bool odd_first, bool flushes>
void print_chain(Stream& stream, const ChainParams& params, Isa isa) {
  std::byte* const wrong = allocate(sizeof(unsigned long long));
  ChainParams p = params;
  p.wrong = reinterpret_cast<unsigned long long*>(wrong);
  launch(stream, {.blocks = dim3(1024), .threads = 256, .waits = true},
         chain_kernel<odd_first, flushes>, p);
  unsigned long long count = 0;
  download(stream, std::as_writable_bytes(std::span(&count, 1)), wrong);
  release(wrong);
  std::printf(
      "{\"what\":\"chain\",\"avx512\":%s,\"sums\":%lld,\"odd_first\":%s,\"flushes\":%s,"
      "\"wrong\":%llu}\n",
      text(isa == Isa::avx512), static_cast<long long>(p.rows) * p.outputs, text(odd_first),
      text(flushes), count);
}

void print_chains(Stream& stream) {
  constexpr int rows = 512, outputs = 65536;
  Queue queue(Device::cpu);
  const std::vector<std::uint16_t> x = numbers(rows * chain_columns, 1);
  const std::vector<std::uint16_t> w = numbers(outputs * chain_columns, 2);
  const auto bytes_of = [](const auto& values) { return std::as_bytes(std::span(values)); };
  std::vector<float> y(static_cast<std::size_t>(rows) * outputs);
  const Weight weight =
      Weight::pack(queue, {DType::bf16, 1, outputs, chain_columns, bytes_of(w)}, DType::bf16);
  linear(queue,
         {.x = Tensor(const_cast<std::uint16_t*>(x.data()), DType::bf16, {rows, chain_columns}),
          .weight = &weight,
          .y = Tensor(y.data(), DType::f32, {rows, outputs})});
  std::byte* held[3] = {};
  const std::span<const std::byte> from[3] = {bytes_of(x), bytes_of(w), bytes_of(y)};
  for (int i = 0; i < 3; ++i) upload(stream, held[i] = allocate(from[i].size()), from[i]);
  const ChainParams params = {.x = reinterpret_cast<std::uint16_t*>(held[0]),
                              .w = reinterpret_cast<std::uint16_t*>(held[1]),
                              .y = reinterpret_cast<float*>(held[2]),
                              .rows = rows,
                              .outputs = outputs,
                              .wrong = nullptr};
  print_chain<true, true>(stream, params, queue.isa());
  print_chain<true, false>(stream, params, queue.isa());
  print_chain<false, true>(stream, params, queue.isa());
  print_chain<false, false>(stream, params, queue.isa());
  for (std::byte* const at : held) release(at);
}

// ---- the machine's memory -----------------------------------------------------------------------

/// Memory that no allocator rounds or reuses, all of it touched.
class Pages {
 public:
  Pages(std::size_t bytes, bool huge) : bytes_(bytes) {
    void* const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("mmap was refused");
    at_ = static_cast<std::byte*>(at);
    ::madvise(at_, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(at_, 1, bytes);
  }
  ~Pages() { ::munmap(at_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* data() const { return at_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* at_ = nullptr;
  std::size_t bytes_;
};

void print_registering(const Pages& pages, bool huge) {
  auto begin = Clock::now();
  check(cudaHostRegister(pages.data(), pages.bytes(), cudaHostRegisterDefault), "cudaHostRegister");
  const double pinning = seconds_since(begin);
  begin = Clock::now();
  check(cudaHostUnregister(pages.data()), "cudaHostUnregister");
  std::printf(
      "{\"what\":\"register\",\"mib\":%zu,\"huge_pages\":%s,\"register_s\":%.3f,"
      "\"unregister_s\":%.3f}\n",
      pages.bytes() / mebibyte, text(huge), pinning, seconds_since(begin));
}

/// Copies to the card until it has taken a second; bytes.
std::size_t copy_for_a_second(Stream& stream, std::byte* to, const Pages& pages) {
  constexpr std::size_t piece = 64 * mebibyte;
  std::size_t copied = 0;
  for (const auto begin = Clock::now(); seconds_since(begin) < 1;) {
    for (int i = 0; i < 4; ++i, copied += piece) {
      check(cudaMemcpyAsync(to, pages.data() + copied % pages.bytes(), piece,
                            cudaMemcpyHostToDevice, stream.handle()),
            "cudaMemcpyAsync");
    }
    stream.wait();
  }
  return copied;
}

/// Threads that each read their part of the memory again and again, and copies meanwhile.
void print_reads(Stream& stream, const Pages& pages, std::byte* to, int threads, bool copies) {
  const Isa isa = Queue(Device::cpu).isa();
  const auto read_all = isa == Isa::avx512 ? read_all_avx512
                        : isa == Isa::avx2 ? read_all_avx2
                                           : read_all_plain;
  std::atomic<bool> ends = false;
  std::atomic<std::size_t> read = 0;
  std::atomic<std::uint64_t> seen = 0;
  std::vector<std::thread> readers;
  const auto begin = Clock::now();
  for (int thread = 0; thread < threads; ++thread) {
    readers.emplace_back([&, thread] {
      const std::size_t part = pages.bytes() / static_cast<std::size_t>(threads) / mebibyte;
      const std::byte* const from =
          pages.data() + static_cast<std::size_t>(thread) * part * mebibyte;
      for (std::size_t i = 0; !ends; i = (i + 1) % part, read += mebibyte) {
        seen += read_all(from + i * mebibyte, mebibyte);
      }
    });
  }
  std::size_t copied = 0;
  if (copies) {
    copied = copy_for_a_second(stream, to, pages);
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  const double seconds = seconds_since(begin);
  ends = true;
  const std::size_t bytes = read;
  for (std::thread& reader : readers) reader.join();
  std::printf("{\"what\":\"read\",\"threads\":%d,\"read_gb_s\":%.1f,\"copied_gb_s\":%.1f}\n",
              threads, static_cast<double>(bytes) / seconds / 1e9,
              static_cast<double>(copied) / seconds / 1e9);
}

void print_memory(Stream& stream) {
  for (const bool huge : {false, true}) print_registering(Pages(gibibyte, huge), huge);
  const Pages pages(gibibyte, true);
  check(cudaHostRegister(pages.data(), pages.bytes(), cudaHostRegisterDefault), "cudaHostRegister");
  std::byte* const to = allocate(64 * mebibyte);
  const int all = static_cast<int>(std::max(2U, std::thread::hardware_concurrency()));
  print_reads(stream, pages, to, 0, true);
  for (const int threads : {all / 2, all}) {
    print_reads(stream, pages, to, threads, false);
    print_reads(stream, pages, to, threads, true);
  }
  release(to);
  check(cudaHostUnregister(pages.data()), "cudaHostUnregister");
}

// ---- hops to the CPU and back -------------------------------------------------------------------

constexpr int hops = 100, replays = 30;
constexpr double patience_s = 2;  // of the CPU and of kernels: what is not answered ends

/// In memory that both see; a line of the cache each.
struct alignas(64) Flag {
  std::uint32_t value = 0;
};
struct Flags {
  Flag ready[hops], done[hops];
};

__global__ void work_kernel(std::uint32_t* count, std::uint32_t* ready) {
  if (threadIdx.x != 0) return;
  *count += 1;
  if (ready == nullptr) return;
  __threadfence_system();
  *static_cast<volatile std::uint32_t*>(ready) = 1;
}

__global__ void spin_kernel(std::uint32_t* count, const std::uint32_t* done) {
  if (threadIdx.x != 0) return;
  const long long end = clock64() + static_cast<long long>(patience_s * 1e9);
  while (*static_cast<const volatile std::uint32_t*>(done) == 0 && clock64() < end) continue;
  *count += 1;
}

using AddMemoryOperations = CUresult (*)(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                                         const CUDA_BATCH_MEM_OP_NODE_PARAMS*);
using CurrentContext = CUresult (*)(CUcontext*);

template <typename Function>
Function driver_function(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const found = library == nullptr ? nullptr : ::dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string(name) + " is not in the driver");
  return reinterpret_cast<Function>(found);
}

/// A chain of nodes.
class Chain {
 public:
  Chain() { check(cudaGraphCreate(&graph_, 0), "cudaGraphCreate"); }
  ~Chain() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  template <typename... Values>
  void add_kernel(void (*kernel)(Values...), Values... values) {
    void* pointers[] = {&values...};
    cudaKernelNodeParams node = {};
    node.func = reinterpret_cast<void*>(kernel);
    node.gridDim = dim3(1);
    node.blockDim = dim3(128);
    node.kernelParams = pointers;
    cudaGraphNode_t added = nullptr;
    check(cudaGraphAddKernelNode(&added, graph_, &last_, last_ == nullptr ? 0 : 1, &node),
          "cudaGraphAddKernelNode");
    last_ = added;
  }

  /// Raises one flag, then waits for another.
  void add_memory_operations(Flag& ready, Flag& done) {
    CUstreamBatchMemOpParams two[2] = {};
    two[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    two[0].writeValue.address = reinterpret_cast<CUdeviceptr>(&ready.value);
    two[0].writeValue.value = 1;
    two[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    two[1].waitValue.address = reinterpret_cast<CUdeviceptr>(&done.value);
    two[1].waitValue.value = 1;
    two[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    CUDA_BATCH_MEM_OP_NODE_PARAMS node = {};
    driver_function<CurrentContext>("cuCtxGetCurrent")(&node.ctx);
    node.count = 2;
    node.paramArray = two;
    CUgraphNode added = nullptr;
    const CUresult result = driver_function<AddMemoryOperations>("cuGraphAddBatchMemOpNode")(
        &added, graph_, &last_, last_ == nullptr ? 0 : 1, &node);
    if (result != CUDA_SUCCESS) {
      throw std::runtime_error("cuGraphAddBatchMemOpNode: " + std::to_string(result));
    }
    last_ = added;
  }

  void replay(Stream& stream) {
    if (executable_ == nullptr) {
      check(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
    }
    check(cudaGraphLaunch(executable_, stream.handle()), "cudaGraphLaunch");
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  cudaGraphNode_t last_ = nullptr;
};

/// Answers every flag as it is raised, with no work. False: one was not in time; then all are
/// answered, so that the card comes to its end.
bool answer(Flags& flags) {
  const auto begin = Clock::now();
  for (int i = 0; i < hops; ++i) {
    while (std::atomic_ref(flags.ready[i].value).load(std::memory_order_acquire) == 0) {
      _mm_pause();
      if (seconds_since(begin) < patience_s) continue;
      for (Flag& done : flags.done) std::atomic_ref(done.value).store(1);
      return false;
    }
    std::atomic_ref(flags.done[i].value).store(1, std::memory_order_release);
  }
  return true;
}

/// Microseconds of a hop in the median and the slowest of some runs; `run` makes all hops and
/// waits. Those of its kernels alone are in it.
template <typename Run>
void print_hops(const char* way, const Run& run) {
  std::vector<double> times;
  try {
    for (int i = 0; i < replays; ++i) {
      const auto begin = Clock::now();
      run();
      if (i >= 3) times.push_back(seconds_since(begin) * 1e6 / hops);
    }
  } catch (const std::exception& error) {
    std::printf("{\"what\":\"hop\",\"way\":\"%s\",\"status\":\"%s\"}\n", way, error.what());
    return;
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"what\":\"hop\",\"way\":\"%s\",\"hops\":%d,\"us\":%.2f,\"slowest_us\":%.2f}\n",
              way, hops, times[times.size() / 2], times.back());
}

/// A graph that build(chain, i) extends by hop i.
template <typename Build>
void print_graph(Stream& stream, const char* way, Flags& flags, bool answers, const Build& build) {
  std::optional<Chain> chain;
  print_hops(way, [&] {
    if (!chain) {
      chain.emplace();
      for (int i = 0; i < hops; ++i) build(*chain, i);
    }
    flags = {};
    chain->replay(stream);
    const bool in_time = !answers || answer(flags);
    stream.wait();
    if (!in_time) throw std::runtime_error("a flag was not seen in time");
  });
}

void print_pieces(Stream& stream, std::uint32_t* count) {
  Chain piece;
  for (int i = 0; i < 2; ++i)
    piece.add_kernel<std::uint32_t*, std::uint32_t*>(work_kernel, count, nullptr);
  print_hops("pieces, waited for", [&] {
    for (int i = 0; i < hops; ++i) {
      piece.replay(stream);
      stream.wait();
    }
  });
  Event event;
  print_hops("pieces, event polled", [&] {
    for (int i = 0; i < hops; ++i) {
      piece.replay(stream);
      event.record(stream);
      while (!event.is_done()) _mm_pause();
    }
  });
}

void print_all_hops(Stream& stream) {
  void* shared = nullptr;
  check(cudaHostAlloc(&shared, sizeof(Flags), cudaHostAllocMapped), "cudaHostAlloc");
  Flags& flags = *new (shared) Flags;
  auto* const count = reinterpret_cast<std::uint32_t*>(allocate(sizeof(std::uint32_t)));
  const auto add_work = [&](Chain& chain, std::uint32_t* ready) {
    chain.add_kernel<std::uint32_t*, std::uint32_t*>(work_kernel, count, ready);
  };
  print_graph(stream, "kernels alone", flags, false, [&](Chain& chain, int) {
    add_work(chain, nullptr);
    add_work(chain, nullptr);
  });
  print_pieces(stream, count);
  print_graph(stream, "spinning block", flags, true, [&](Chain& chain, int i) {
    add_work(chain, &flags.ready[i].value);
    chain.add_kernel<std::uint32_t*, const std::uint32_t*>(spin_kernel, count,
                                                           &flags.done[i].value);
  });
  print_graph(stream, "memory operations", flags, true, [&](Chain& chain, int i) {
    add_work(chain, nullptr);
    chain.add_memory_operations(flags.ready[i], flags.done[i]);
    add_work(chain, nullptr);
  });
  release(reinterpret_cast<std::byte*>(count));
  check(cudaFreeHost(shared), "cudaFreeHost");
}

}  // namespace
}  // namespace hyb::kernels::cuda

int main() {
  try {
    using namespace hyb::kernels::cuda;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was measured before a cut stays
    Stream stream;
    print_chains(stream);
    print_memory(stream);
    print_all_hops(stream);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "card_hop: %s\n", error.what());
    return 1;
  }
}
