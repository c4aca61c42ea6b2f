#include "kernels/cuda/memory.h"

#include <string>

#include "kernels/cuda/launch.h"

namespace hyb::kernels::cuda {

namespace {

double attribute(cudaDeviceAttr of, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, of, device), "cudaDeviceGetAttribute");
  return value;
}

/// Returns the FLOPs of a multiprocessor in a cycle: bf16 products and f32 sums of its matrix
/// instructions.
double flops_of_cycle(int major, int minor) {
  if (major == 8 && minor == 0) return 2048;
  if (major == 9) return 4096;
  if (major == 10) return 8192;
  return 512;
}

/// The card of this thread.
thread_local int current_card = 0;

}  // namespace

int card_count() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    throw Error(ErrorKind::usage, std::string("cuda: no card that can be used (") +
                                      cudaGetErrorString(error) +
                                      "); hyb doctor says more; or use --device cpu");
  }
  return count;
}

void use_card(int card) {
  if (card == current_card) return;
  if (const int count = card_count(); card < 0 || card >= count) {
    throw Error(ErrorKind::usage, "cuda: there is no card " + std::to_string(card) + ", of " +
                                      std::to_string(count) + " in all");
  }
  check(cudaSetDevice(card), "cudaSetDevice");
  current_card = card;
}

bool are_peers(int card, int other) {
  int there = 0, back = 0;
  check(cudaDeviceCanAccessPeer(&there, card, other), "cudaDeviceCanAccessPeer");
  check(cudaDeviceCanAccessPeer(&back, other, card), "cudaDeviceCanAccessPeer");
  return there != 0 && back != 0;
}

Card card(int device) {
  constexpr int built_for[] = {__CUDA_ARCH_LIST__};  // ascending: 900 is 9.0
  card_count();
  const int before = current_card;
  use_card(device);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  Card card = {.name = properties.name,
               .major = properties.major,
               .minor = properties.minor,
               .processors = properties.multiProcessorCount,
               .memory_bytes = 0,
               .free_bytes = 0,
               .l2_bytes = static_cast<std::size_t>(properties.l2CacheSize),
               .driver_cuda = 0,
               .runtime_cuda = 0,
               .shared_bytes_max = properties.sharedMemPerBlockOptin,
               .kernels_min = built_for[0] / 10};
  constexpr double hz = 1000, bits = 8, transfers = 2;  // of a cycle of the memory's clock
  card.bytes_per_s = attribute(cudaDevAttrMemoryClockRate, device) * hz * transfers *
                     attribute(cudaDevAttrGlobalMemoryBusWidth, device) / bits;
  card.flops_per_s = attribute(cudaDevAttrClockRate, device) * hz * card.processors *
                     flops_of_cycle(card.major, card.minor);
  check(cudaMemGetInfo(&card.free_bytes, &card.memory_bytes), "cudaMemGetInfo");
  check(cudaDriverGetVersion(&card.driver_cuda), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&card.runtime_cuda), "cudaRuntimeGetVersion");
  use_card(before);
  return card;
}

void fail_out_of_memory(const char* call, std::size_t bytes) {
  cudaGetLastError();
  std::size_t free = 0, all = 0;
  cudaMemGetInfo(&free, &all);
  throw Error(ErrorKind::memory,
              std::string("memory: ") + call + " was refused" +
                  (bytes == 0 ? std::string() : " " + std::to_string(bytes) + " bytes") + "; " +
                  std::to_string(free) + " of the " + std::to_string(all) + " bytes of card " +
                  std::to_string(current_card) +
                  " are free; use a smaller --memory, --context or model");
}

std::byte* allocate(std::size_t bytes) {
  std::byte* at = nullptr;
  const cudaError_t error = cudaMalloc(&at, bytes);
  if (error == cudaErrorMemoryAllocation) fail_out_of_memory("cudaMalloc", bytes);
  check(error, "cudaMalloc");
  check(cudaMemset(at, 0, bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return at;
}

void release(std::byte* at) noexcept { cudaFree(at); }

void upload(Stream& stream, std::byte* to, std::span<const std::byte> from) {
  check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream.handle()),
        "cudaMemcpyAsync");
  stream.wait();
}

void download(Stream& stream, std::span<std::byte> to, const std::byte* from) {
  check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream.handle()),
        "cudaMemcpyAsync");
  stream.wait();
}

void copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.handle()),
        "cudaMemcpyAsync");
}

}  // namespace hyb::kernels::cuda
