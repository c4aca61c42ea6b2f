#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/support.h"

namespace two_cards_test {

using namespace emulator::testing;
using emulator::Holder;
using emulator::ledger;

namespace {

__global__ void add_kernel(int* y, int value) { y[threadIdx.x] += value; }
__global__ void copy_kernel(const int* from, int* to) { to[threadIdx.x] = from[threadIdx.x]; }
__global__ void nothing_kernel() {}

constexpr std::size_t bytes = sizeof(int);

class Event {
 public:
  Event() { REQUIRE(cudaEventCreateWithFlags(&event_, cudaEventDefault) == cudaSuccess); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A stream of a card, and an int there.
struct Side {
  OnCard on;
  Stream stream;
  DeviceArray<int> y;

  Side(int card, int value) : on(card), y(std::vector<int>{value}) {}
};

/// What the int holds now, whatever waits in other streams.
int value_of(const int* at) {
  int value = -1;
  const Stream own;
  CHECK(cudaMemcpyAsync(&value, at, bytes, cudaMemcpyDeviceToHost, own) == cudaSuccess);
  CHECK(cudaStreamSynchronize(own) == cudaSuccess);
  return value;
}

TEST_SUITE("cuda_emulator/two_cards") {
  TEST_CASE("every thread has its current card, of those that there are") {
    reset();
    const Cards cards(2);
    int count = 0, card = -1;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
    CHECK(count == 2);
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
    const OnCard second(1);
    CHECK(cudaGetDevice(&card) == cudaSuccess);
    CHECK(card == 1);
    std::thread([] {
      int other = -1;
      cudaGetDevice(&other);
      CHECK(other == 0);
    }).join();

    cudaDeviceProp first_has, second_has;
    CHECK(cudaGetDeviceProperties(&first_has, 0) == cudaSuccess);
    CHECK(cudaGetDeviceProperties(&second_has, 1) == cudaSuccess);
    CHECK(first_has.multiProcessorCount == second_has.multiProcessorCount);
    CHECK(cudaGetDeviceProperties(&second_has, 2) == cudaErrorInvalidDevice);
    int value = 0;
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 1) == cudaSuccess);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 2) == cudaErrorInvalidDevice);
    CHECK_THROWS_AS(set_cards(0), std::invalid_argument);
    CHECK_THROWS_AS(set_cards(emulator::cards_max + 1), std::invalid_argument);
  }

  TEST_CASE("cards reach each other or do not, and never themselves as a peer") {
    const Cards cards(2);
    int can = -1;
    for (const bool reach : {false, true}) {
      set_peer_access(reach);
      CHECK(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess);
      CHECK(can == (reach ? 1 : 0));
      CHECK(cudaDeviceCanAccessPeer(&can, 1, 1) == cudaSuccess);
      CHECK(can == 0);
    }
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 2) == cudaErrorInvalidDevice);
  }

  TEST_CASE("each card counts its own memory, and refuses on its own") {
    const Cards cards(2);
    std::size_t free_before[2], free_after[2], total = 0;
    const auto read_free = [&](std::size_t(&bytes_free)[2]) {
      for (const int card : {0, 1}) {
        const OnCard on(card);
        CHECK(cudaMemGetInfo(&bytes_free[card], &total) == cudaSuccess);
      }
    };
    read_free(free_before);
    void *at = nullptr, *refused = nullptr, *pinned = nullptr;
    const std::size_t pinned_before = ledger(1).bytes(Holder::pinned);
    {
      const OnCard second(1);
      CHECK(cudaMalloc(&at, 1000) == cudaSuccess);
      CHECK(cudaMallocHost(&pinned, 500) == cudaSuccess);
    }
    read_free(free_after);
    CHECK(free_after[0] == free_before[0]);
    CHECK(free_before[1] - free_after[1] == 1000);
    CHECK(ledger(1).bytes(Holder::pinned) == pinned_before + 500);

    ledger(1).refuse(1);
    const DeviceArray<int> on_first(std::size_t{4});
    {
      const OnCard second(1);
      CHECK(cudaMalloc(&refused, 16) == cudaErrorMemoryAllocation);
    }
    ledger(1).refuse(0);

    CHECK(cudaFree(at) == cudaSuccess);  // of a card that is not the current one
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(ledger(1).bytes(Holder::pinned) == pinned_before);
    read_free(free_after);
    CHECK(free_after[1] == free_before[1]);
  }

  TEST_CASE("kernels, fills and graphs go into streams of the current card only") {
    const Cards cards(2);
    cudaStream_t first = nullptr, second = nullptr;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking) == cudaSuccess);
    const OnCard on(1);
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking) == cudaSuccess);
    const DeviceArray<int> y(std::vector<int>{0});
    CHECK(launch({.stream = second}, nothing_kernel) == cudaSuccess);
    CHECK(launch({.stream = first}, nothing_kernel) == cudaErrorInvalidResourceHandle);
    CHECK(cudaMemsetAsync(y.data(), 1, bytes, second) == cudaSuccess);
    CHECK(cudaMemsetAsync(y.data(), 1, bytes, first) == cudaErrorInvalidResourceHandle);

    CHECK(cudaStreamBeginCapture(second, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    launch({.threads = 1, .stream = second}, add_kernel, y.data(), 5);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaStreamEndCapture(second, &graph) == cudaSuccess);
    const std::size_t before = ledger(1).bytes(Holder::graph);
    CHECK(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
    CHECK(ledger(1).bytes(Holder::graph) > before);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphLaunch(executable, second) == cudaSuccess);
    {
      const OnCard other(0);
      CHECK(cudaGraphLaunch(executable, second) == cudaErrorInvalidResourceHandle);
      CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    }
    CHECK(ledger(1).bytes(Holder::graph) == before);
    CHECK(y.values()[0] == 0x01010101 + 5);
    CHECK(cudaStreamDestroy(first) == cudaSuccess);
    CHECK(cudaStreamDestroy(second) == cudaSuccess);
  }

  TEST_CASE("the stream without a name, and a wait for the device, are the current card's") {
    const Cards cards(2);
    const DeviceArray<int> first(std::vector<int>{0});
    const OnCard on(1);
    const DeviceArray<int> second(std::vector<int>{0});
    launch({.threads = 1}, add_kernel, second.data(), 7);
    {
      const OnCard other(0);
      launch({.threads = 1}, add_kernel, first.data(), 3);
      CHECK(cudaDeviceSynchronize() == cudaSuccess);
      CHECK(value_of(first.data()) == 3);
      CHECK(value_of(second.data()) == 0);
    }
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(value_of(second.data()) == 7);
  }

  TEST_CASE("an event orders streams of two cards; without it the other's work comes later") {
    for (const bool waits : {true, false}) {
      const Cards cards(2);
      const Side first(0, 0);
      const Event event;
      const Side second(1, 0);
      {
        const OnCard on(0);
        launch({.threads = 1, .stream = first.stream}, add_kernel, first.y.data(), 7);
        CHECK(cudaEventRecord(event, first.stream) == cudaSuccess);
        launch({.threads = 1, .stream = first.stream}, add_kernel, first.y.data(), 100);
      }
      if (waits) CHECK(cudaStreamWaitEvent(second.stream, event) == cudaSuccess);
      CHECK(cudaMemcpyPeerAsync(second.y.data(), 1, first.y.data(), 0, bytes, second.stream) ==
            cudaSuccess);
      CHECK(launch({.threads = 1, .stream = second.stream}, add_kernel, second.y.data(), 20) ==
            cudaSuccess);
      CHECK(cudaStreamQuery(second.stream) == cudaErrorNotReady);
      CHECK(cudaStreamQuery(second.stream) == cudaSuccess);
      CHECK(value_of(second.y.data()) == (waits ? 27 : 20));
      CHECK(cudaEventQuery(event) == (waits ? cudaSuccess : cudaErrorNotReady));
      CHECK(cudaEventSynchronize(event) == cudaSuccess);
    }
  }

  TEST_CASE("an event is recorded in streams of its own card, and timed against its own") {
    const Cards cards(2);
    const Event first;
    const Stream first_stream;
    const OnCard on(1);
    const Event second;
    const Stream second_stream;
    CHECK(cudaEventRecord(first, second_stream) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventRecord(first, nullptr) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventRecord(first, first_stream) == cudaSuccess);
    CHECK(cudaEventRecord(second, second_stream) == cudaSuccess);
    CHECK(cudaEventSynchronize(first) == cudaSuccess);
    CHECK(cudaEventSynchronize(second) == cudaSuccess);
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, first, second) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventElapsedTime(&ms, second, second) == cudaSuccess);
  }

  TEST_CASE("a copy between cards is done late, in the order of its stream") {
    for (const bool reach : {true, false}) {
      const Cards cards(2);
      set_peer_access(reach);
      const Side first(0, 3), second(1, 0);
      emulator::take_host_calls();
      CHECK(cudaMemcpyPeerAsync(second.y.data(), 1, first.y.data(), 0, bytes, second.stream) ==
            cudaSuccess);
      CHECK(emulator::take_host_calls().copies == 1);
      CHECK(value_of(second.y.data()) == 0);
      {
        const OnCard on(0);  // the planted bug: nothing says that the copy has been done
        launch({.threads = 1, .stream = first.stream}, add_kernel, first.y.data(), 40);
        CHECK(cudaStreamSynchronize(first.stream) == cudaSuccess);
      }
      CHECK(cudaStreamSynchronize(second.stream) == cudaSuccess);
      CHECK(value_of(second.y.data()) == 43);
      // The other way, in a stream of the card that is read, whatever card is current.
      CHECK(cudaMemcpyPeerAsync(first.y.data(), 0, second.y.data(), 1, bytes, second.stream) ==
            cudaSuccess);
      CHECK(cudaMemcpyAsync(second.y.data(), first.y.data(), bytes, cudaMemcpyDefault,
                            first.stream) == cudaSuccess);
      CHECK(cudaStreamSynchronize(second.stream) == cudaSuccess);
      CHECK(cudaStreamSynchronize(first.stream) == cudaSuccess);
      CHECK(value_of(second.y.data()) == 43);
      CHECK(fault_text() == "");
    }
  }

  TEST_CASE("a copy between cards names the cards whose memory it is") {
    const Cards cards(2);
    const Side first(0, 0), second(1, 0);
    int host = 0;
    const auto copy = [&](int* to, int to_card, const int* from, int from_card) {
      return cudaMemcpyPeerAsync(to, to_card, from, from_card, bytes, second.stream);
    };
    CHECK(copy(second.y.data(), 0, first.y.data(), 0) == cudaErrorInvalidValue);
    CHECK(copy(second.y.data(), 1, first.y.data(), 1) == cudaErrorInvalidValue);
    CHECK(copy(second.y.data(), 1, &host, 0) == cudaErrorInvalidValue);
    CHECK(copy(second.y.data() + 1, 1, first.y.data(), 0) == cudaErrorInvalidValue);
    CHECK(copy(second.y.data(), 2, first.y.data(), 0) == cudaErrorInvalidDevice);
    CHECK(copy(second.y.data(), 1, first.y.data(), -1) == cudaErrorInvalidDevice);
    CHECK(cudaMemsetAsync(first.y.data(), 0, bytes, second.stream) == cudaErrorInvalidValue);
  }

  TEST_CASE("a kernel that touches another card's allocation is a fault that names both") {
    const Cards cards(2);
    const DeviceArray<int> first(std::vector<int>{3});
    const OnCard on(1);
    const DeviceArray<int> second(std::vector<int>{4});
    const auto fault = [&](const int* from, int* to) {
      return fault_of({}, [&] { launch({.threads = 1}, copy_kernel, from, to); });
    };
    CHECK(fault(second.data(), second.data()) == "");
    const std::string text = "of card 0, which card 1 may not touch";
    CHECK(contains(fault(first.data(), second.data()), text));
    CHECK(contains(fault(second.data(), first.data()), text));
    CHECK(contains(fault(second.data(), first.data()), "copy_kernel"));
  }

  TEST_CASE("the memory of the card before is closed again when one stream waits for another") {
    const Cards cards(2);
    const Side first(0, 1);
    const Event event;
    const Side second(1, 2);
    const std::string fault = fault_of({}, [&] {
      {
        const OnCard on(0);
        launch({.threads = 1, .stream = first.stream}, add_kernel, first.y.data(), 1);
        cudaEventRecord(event, first.stream);
      }
      launch({.threads = 1, .stream = second.stream}, add_kernel, second.y.data(), 1);
      cudaStreamWaitEvent(second.stream, event);
      launch({.threads = 1, .stream = second.stream}, add_kernel, first.y.data(), 1);
      cudaStreamSynchronize(second.stream);
    });
    CHECK(contains(fault, "of card 0, which card 1 may not touch"));
    CHECK(value_of(first.y.data()) == 2);
    CHECK(value_of(second.y.data()) == 3);
  }

  TEST_CASE("how much shared memory a kernel may have is set for one card") {
    const Cards cards(2);
    constexpr int much = 100 << 10;
    CHECK(cudaFuncSetAttribute(nothing_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               48 << 10) == cudaSuccess);
    {
      const OnCard on(1);
      CHECK(cudaFuncSetAttribute(nothing_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 much) == cudaSuccess);
      CHECK(launch({.shared_bytes = much}, nothing_kernel) == cudaSuccess);
    }
    CHECK(launch({.shared_bytes = much}, nothing_kernel) == cudaErrorInvalidValue);
  }

  TEST_CASE("a graph of work of both cards") {
    const Cards cards(2);
    const Side first(0, 1), second(1, 2);
    const DeviceArray<int> copied(std::vector<int>{0});
    const Event fork;
    cudaGraph_t graph = nullptr;
    {
      const OnCard on(0);
      const Event join;
      CHECK(cudaStreamBeginCapture(second.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
      CHECK(cudaEventRecord(fork, second.stream) == cudaSuccess);
      CHECK(cudaStreamWaitEvent(first.stream, fork) == cudaSuccess);
      CHECK(launch({.threads = 1, .stream = first.stream}, add_kernel, first.y.data(), 10) ==
            cudaSuccess);
      CHECK(cudaEventRecord(join, first.stream) == cudaSuccess);
      CHECK(cudaStreamWaitEvent(second.stream, join) == cudaSuccess);
    }
    CHECK(launch({.threads = 1, .stream = second.stream}, add_kernel, second.y.data(), 500) ==
          cudaSuccess);
    CHECK(cudaMemcpyPeerAsync(copied.data(), 1, first.y.data(), 0, bytes, second.stream) ==
          cudaSuccess);
    CHECK(cudaStreamEndCapture(second.stream, &graph) == cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    for (const int step : {1, 2}) {
      CHECK(cudaGraphLaunch(executable, second.stream) == cudaSuccess);
      CHECK(cudaStreamSynchronize(second.stream) == cudaSuccess);
      CHECK(value_of(first.y.data()) == 1 + 10 * step);
      CHECK(value_of(copied.data()) == 1 + 10 * step);
      CHECK(value_of(second.y.data()) == 2 + 500 * step);
    }
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(fault_text() == "");
  }

  TEST_CASE("a capture that is local to its thread is not broken by another thread's calls") {
    const Cards cards(2);
    const Stream stream;
    for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
      const bool is_local = mode == cudaStreamCaptureModeThreadLocal;
      CHECK(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
      std::thread([&] {
        const OnCard on(1);
        void* at = nullptr;
        CHECK(cudaMalloc(&at, 16) == (is_local ? cudaSuccess : cudaErrorStreamCaptureUnsupported));
        if (is_local) CHECK(cudaFree(at) == cudaSuccess);
      }).join();
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(stream, &graph) ==
            (is_local ? cudaSuccess : cudaErrorStreamCaptureInvalidated));
      if (is_local) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    }
  }

  TEST_CASE("a stream keeps its priority, within those that there are") {
    int least = -1, greatest = 0, priority = 1;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess);
    CHECK(least == 0);
    CHECK(greatest == -5);
    for (const int wanted : {-9, -5, -2, 0, 4}) {
      cudaStream_t stream = nullptr;
      CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, wanted) == cudaSuccess);
      CHECK(cudaStreamGetPriority(stream, &priority) == cudaSuccess);
      CHECK(priority == std::clamp(wanted, greatest, least));
      CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    }
  }
}

}  // namespace

}  // namespace two_cards_test
