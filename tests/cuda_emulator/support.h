#pragma once

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/cuda_emulator/card.h"
#include "tests/cuda_emulator/device/sync.h"
#include "tests/cuda_emulator/emulator.h"

namespace emulator::testing {

using emulator::fault_text, emulator::Order, emulator::reset, emulator::Schedule,
    emulator::set_cards, emulator::set_peer_access, emulator::set_schedule;

/// This thread's current card while this lives; then the one before it.
class OnCard {
 public:
  explicit OnCard(int card) {
    cudaGetDevice(&before_);
    REQUIRE(cudaSetDevice(card) == cudaSuccess);
  }
  ~OnCard() { cudaSetDevice(before_); }
  OnCard(const OnCard&) = delete;
  OnCard& operator=(const OnCard&) = delete;

 private:
  int before_ = 0;
};

/// There are this many cards while it lives, which reach each other; then as many as before.
class Cards {
 public:
  explicit Cards(int count) {
    cudaGetDeviceCount(&before_);
    set_cards(count);
  }
  ~Cards() {
    reset();
    set_peer_access(true);
    set_cards(before_);
  }
  Cards(const Cards&) = delete;
  Cards& operator=(const Cards&) = delete;

 private:
  int before_ = 1;
};

/// A stream of the current card.
class Stream {
 public:
  Stream() { REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Memory of the current card that lives as long as this object.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    REQUIRE(cudaMalloc(&data_, count * sizeof(T)) == cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    REQUIRE(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice) ==
            cudaSuccess);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }

  /// Waits for the device. What it holds after a fault is no answer.
  std::vector<T> values() const {
    std::vector<T> all(count_);
    cudaDeviceSynchronize();
    cudaMemcpy(all.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost);
    return all;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

// What CUDA has and no kernel uses: the emulator's own tests do, as what may go wrong in a kernel.

inline void barrier_arrive(int barrier, int threads, Where where = Where::current()) {
  emulator::arrive_at_barrier(barrier, threads, where);
}
inline void sync_grid(Where where = Where::current()) { emulator::sync_grid(where); }
inline void spin_pause(Where where = Where::current()) { emulator::spin_pause(where); }
inline unsigned load_acquire(const unsigned* at) {
  return std::atomic_ref<unsigned>(const_cast<unsigned&>(*at)).load(std::memory_order_acquire);
}

struct Shape {
  dim3 blocks = 1, threads = 32;
  std::size_t shared_bytes = 0;
  bool cooperative = false;
  bool starts_early = false;
  cudaStream_t stream = nullptr;
};

template <typename... Formal, typename... Actual>
cudaError_t launch(const Shape& shape, void (*kernel)(Formal...), Actual... actual) {
  cudaLaunchAttribute attributes[2] = {
      {.id = cudaLaunchAttributeCooperative, .val = {.cooperative = shape.cooperative}},
      {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
       .val = {.programmaticStreamSerializationAllowed = shape.starts_early}}};
  const cudaLaunchConfig_t config{.gridDim = shape.blocks,
                                  .blockDim = shape.threads,
                                  .dynamicSmemBytes = shape.shared_bytes,
                                  .stream = shape.stream,
                                  .attrs = attributes,
                                  .numAttrs = 2};
  return cudaLaunchKernelEx(&config, kernel, actual...);
}

inline std::vector<Schedule> schedules() {
  std::vector<Schedule> all{{.order = Order::first_warp_ahead},
                            {.order = Order::last_warp_ahead},
                            {.order = Order::permuted, .seed = 3}};
  for (const std::uint64_t seed : {1, 2, 5}) all.push_back({.order = Order::random, .seed = seed});
  return all;
}

inline std::string name_of(const Schedule& schedule) {
  const char* const names[] = {"first warp ahead", "last warp ahead", "permuted", "random"};
  return std::string(names[static_cast<int>(schedule.order)]) + ", seed " +
         std::to_string(schedule.seed);
}

/// Runs the body under a schedule and forgets all faults afterwards. The first fault's text.
template <typename Body>
std::string fault_of(const Schedule& schedule, Body body) {
  reset();
  set_schedule(schedule);
  body();
  cudaDeviceSynchronize();
  const std::string text = fault_text();
  reset();
  return text;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace emulator::testing
