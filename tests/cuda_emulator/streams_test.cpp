#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/support.h"

namespace streams_test {

using namespace emulator::testing;

namespace {

__global__ void add_kernel(int* y, int value) { y[threadIdx.x] += value; }
__global__ void add_from_kernel(int* y, const int* value) { y[threadIdx.x] += *value; }
__global__ void nothing_kernel() {}

class Pinned {
 public:
  explicit Pinned(int value) {
    REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&data_), sizeof(int)) == cudaSuccess);
    *data_ = value;
  }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  int& operator*() const { return *data_; }
  int* data() const { return data_; }

 private:
  int* data_ = nullptr;
};

constexpr std::size_t bytes = sizeof(int);

TEST_SUITE("cuda_emulator/streams") {
  TEST_CASE("work is done in order, and not before the host waits") {
    reset();
    const Stream stream;
    const DeviceArray<int> y(std::vector<int>{5});
    const Pinned result(-1);
    launch({.threads = 1, .stream = stream}, add_kernel, y.data(), 10);
    cudaMemcpyAsync(result.data(), y.data(), bytes, cudaMemcpyDeviceToHost, stream);
    launch({.threads = 1, .stream = stream}, add_kernel, y.data(), 100);
    CHECK(*result == -1);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    CHECK(*result == 15);
    CHECK(y.values()[0] == 115);
  }

  TEST_CASE("pinned memory that is written before its copy is done is the new value's") {
    reset();
    const Stream stream;
    const DeviceArray<int> y(std::vector<int>{0});
    const Pinned staged(3);
    cudaMemcpyAsync(y.data(), staged.data(), bytes, cudaMemcpyHostToDevice, stream);
    *staged = 4;  // the planted bug: nothing has waited
    cudaStreamSynchronize(stream);
    CHECK(y.values()[0] == 4);
    int pageable = 5;
    cudaMemcpyAsync(y.data(), &pageable, bytes, cudaMemcpyHostToDevice, stream);
    pageable = 6;
    cudaStreamSynchronize(stream);
    CHECK(y.values()[0] == 5);
  }

  TEST_CASE("an event orders two streams") {
    reset();
    const Stream first, second;
    const DeviceArray<int> value(std::vector<int>{0}), y(std::vector<int>{0});
    cudaEvent_t event = nullptr, later = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDefault);
    cudaEventCreateWithFlags(&later, cudaEventDefault);
    launch({.threads = 1, .stream = first}, add_kernel, value.data(), 7);
    cudaEventRecord(event, first);
    launch({.threads = 1, .stream = first}, add_kernel, value.data(), 100);
    cudaStreamWaitEvent(second, event);
    launch({.threads = 1, .stream = second}, add_from_kernel, y.data(),
           static_cast<const int*>(value.data()));
    cudaEventRecord(later, second);
    CHECK(cudaEventQuery(later) == cudaErrorNotReady);
    CHECK(cudaEventSynchronize(later) == cudaSuccess);
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, event, later) == cudaSuccess);
    CHECK(ms >= 0);
    CHECK(y.values()[0] == 7);
    cudaEventDestroy(event);
    cudaEventDestroy(later);
  }

  TEST_CASE("without the event the other stream's work comes later") {
    reset();
    const Stream first, second;
    const DeviceArray<int> value(std::vector<int>{0}), y(std::vector<int>{0});
    launch({.threads = 1, .stream = first}, add_kernel, value.data(), 7);
    launch({.threads = 1, .stream = second}, add_from_kernel, y.data(),
           static_cast<const int*>(value.data()));
    cudaStreamSynchronize(second);
    int result = -1;
    cudaMemcpy(&result, y.data(), bytes, cudaMemcpyDeviceToHost);
    CHECK(result == 0);
  }

  TEST_CASE("a graph replays what was captured, with the bytes of the moment") {
    reset();
    const Stream stream, side;
    const DeviceArray<int> y(std::vector<int>{0}), value(std::vector<int>{0});
    const Pinned staged(1);
    cudaEvent_t fork = nullptr, join = nullptr;
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    cudaMemcpyAsync(value.data(), staged.data(), bytes, cudaMemcpyHostToDevice, stream);
    cudaEventRecord(fork, stream);
    cudaStreamWaitEvent(side, fork);
    launch({.threads = 1, .stream = side}, add_from_kernel, y.data(),
           static_cast<const int*>(value.data()));
    cudaEventRecord(join, side);
    cudaStreamWaitEvent(stream, join);
    launch({.threads = 1, .stream = stream}, add_kernel, y.data(), 1000);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(y.values()[0] == 0);
    for (const int step : {1, 20, 300}) {
      *staged = step;
      CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
      cudaStreamSynchronize(stream);
    }
    CHECK(y.values()[0] == 3321);
    cudaGraphExecDestroy(executable);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
  }

  TEST_CASE("waiting in a capture breaks it") {
    reset();
    const Stream stream;
    cudaGraph_t graph = nullptr;
    for (const auto wait : {+[](cudaStream_t captured) { return cudaStreamSynchronize(captured); },
                            +[](cudaStream_t) { return cudaDeviceSynchronize(); },
                            +[](cudaStream_t) {
                              void* at = nullptr;
                              return cudaMalloc(&at, 16);
                            }}) {
      cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
      CHECK(wait(stream) == cudaErrorStreamCaptureUnsupported);
      CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
      CHECK(graph == nullptr);
    }
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorInvalidValue);
    reset();
  }

  TEST_CASE("launches that no card would take are refused") {
    reset();
    const auto refused = [](const Shape& shape) { return launch(shape, nothing_kernel); };
    CHECK(refused({.threads = 0}) == cudaErrorInvalidConfiguration);
    CHECK(refused({.threads = 1025}) == cudaErrorInvalidConfiguration);
    CHECK(refused({.blocks = dim3(1, 65536)}) == cudaErrorInvalidConfiguration);
    CHECK(refused({.shared_bytes = (48 << 10) + 1}) == cudaErrorInvalidValue);
    CHECK(refused({.blocks = 9, .threads = 1024, .cooperative = true}) ==
          cudaErrorCooperativeLaunchTooLarge);
    CHECK(cudaFuncSetAttribute(nothing_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               228 << 10) == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(nothing_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               227 << 10) == cudaSuccess);
    CHECK(refused({.shared_bytes = 227 << 10}) == cudaSuccess);
    CHECK(cudaGetLastError() != cudaSuccess);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    int host = 0;
    const DeviceArray<int> y(std::vector<int>{0});
    CHECK(cudaMemcpy(&host, &host, bytes, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(y.data(), &host, 2 * bytes, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    reset();
  }
}

}  // namespace

}  // namespace streams_test
