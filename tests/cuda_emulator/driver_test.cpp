#include "tests/cuda_emulator/driver.h"

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <vector>

#include "core/base/error.h"
#include "kernels/arena/cuda_arena.h"
#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/support.h"

namespace driver_test {

using namespace emulator::testing;
using namespace hyb::kernels::cuda;
using emulator::Holder;
using emulator::ledger;
using hyb::kernels::CudaArena;
using hyb::kernels::HandleId;
using hyb::kernels::testing::FakeDriver;

namespace {

constexpr std::size_t handle_bytes = 65536;
constexpr std::size_t handle_floats = handle_bytes / sizeof(float);

__global__ void copy_kernel(const float* from, float* to) {
  auto& stage = dynamic_shared<SharedArray<float, 4>>();
  cp_async16(&stage[0], from);
  cp_async_commit();
  cp_async_wait<0>();
  for (int i = 0; i < 4; ++i) to[i] = stage[i] + 1;
}

/// One handle of an arena, mapped.
class Mapped {
 public:
  Mapped(CudaArena& arena, HandleId handle) : arena_(arena), handles_{handle} {
    at_ = arena.reserve(handle_bytes);
    arena.map(at_, handles_);
  }
  ~Mapped() {
    arena_.unmap(at_, handles_);
    arena_.release(handles_[0]);
    arena_.unreserve(at_, handle_bytes);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  std::byte* bytes() const { return at_; }
  float* floats() const { return reinterpret_cast<float*>(at_); }

 private:
  CudaArena& arena_;
  std::array<HandleId, 1> handles_;
  std::byte* at_ = nullptr;
};

TEST_SUITE("cuda_emulator/driver") {
  TEST_CASE("kernels see one piece of memory at two addresses, and none where nothing is mapped") {
    reset();
    FakeDriver driver;
    CudaArena arena(emulator::driver_table(), 0, handle_bytes);
    const std::array<HandleId, 2> handles{arena.create(), arena.create()};
    std::byte* const first = arena.reserve(2 * handle_bytes);
    std::byte* const second = arena.reserve(2 * handle_bytes);
    arena.map(first, handles);
    arena.map(second, {&handles[1], 1});
    auto* const floats = reinterpret_cast<float*>(first);
    auto* const others = reinterpret_cast<float*>(second);

    // Four floats across the border of the two handles, then seen through the other view.
    const std::array<float, 4> values{1, 2, 3, 4};
    float* const across = floats + handle_floats - 2;
    CHECK(cudaMemcpy(across, values.data(), sizeof(values), cudaMemcpyHostToDevice) == cudaSuccess);
    launch({.threads = 1, .shared_bytes = 16}, copy_kernel, static_cast<const float*>(others),
           others + 4);
    std::array<float, 4> result{};
    cudaDeviceSynchronize();
    CHECK(cudaMemcpy(result.data(), floats + handle_floats + 4, sizeof(result),
                     cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(result[0] == 4);
    CHECK(result[1] == 5);
    CHECK(emulator::fault_text() == "");

    arena.unmap(second, {&handles[1], 1});
    CHECK(contains(fault_of({},
                            [&] {
                              launch({.threads = 1, .shared_bytes = 16}, copy_kernel,
                                     static_cast<const float*>(others), floats);
                            }),
                   "not inside of an allocation of the device"));
    CHECK(contains(fault_of({},
                            [&] {
                              launch({.threads = 1, .shared_bytes = 16}, copy_kernel,
                                     static_cast<const float*>(floats), others);
                            }),
                   "an access to memory that is not the device's"));
    CHECK(cudaMemcpy(others, values.data(), 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    reset();

    arena.unmap(first, handles);
    for (const HandleId handle : handles) arena.release(handle);
    arena.unreserve(first, 2 * handle_bytes);
    arena.unreserve(second, 2 * handle_bytes);
    CHECK(driver.broken_rules().empty());
    CHECK(driver.is_clean());
  }

  TEST_CASE("a mapping may be touched by the cards that were given access") {
    const Cards cards(2);
    FakeDriver driver;
    CudaArena own(emulator::driver_table(), 0, handle_bytes);
    CudaArena shared(emulator::driver_table(), 0, handle_bytes, {1});
    const Mapped closed(own, own.create()), open(shared, shared.create());
    const OnCard second(1);
    const DeviceArray<float> y(std::size_t{4});
    const auto fault = [&](const float* from) {
      return fault_of(
          {}, [&] { launch({.threads = 1, .shared_bytes = 16}, copy_kernel, from, y.data()); });
    };
    CHECK(fault(open.floats()) == "");
    CHECK(contains(fault(closed.floats()),
                   "cp_async from: 16 bytes of card 0, which card 1 may not touch"));
    CHECK(cudaMemcpyPeerAsync(y.data(), 1, closed.bytes(), 0, 16, nullptr) == cudaSuccess);
    CHECK(cudaMemcpyPeerAsync(y.data(), 1, closed.bytes(), 1, 16, nullptr) ==
          cudaErrorInvalidValue);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(driver.broken_rules().empty());
  }

  TEST_CASE("handles are of a card's memory, and on its ledger until nothing shows it") {
    const Cards cards(2);
    FakeDriver driver;
    const std::size_t before[] = {ledger(0).bytes(Holder::handle), ledger(1).bytes(Holder::handle)};
    const auto more = [&](int card) { return ledger(card).bytes(Holder::handle) - before[card]; };
    CudaArena arena(emulator::driver_table(), 1, handle_bytes);
    CudaArena other(emulator::driver_table(), 1, handle_bytes);
    {
      const Mapped first(arena, arena.create());
      CHECK(more(0) == 0);
      CHECK(more(1) == handle_bytes);
      const Mapped second(other, other.create());
      CHECK(more(1) == 2 * handle_bytes);
      ledger(1).refuse(1);
      CHECK_THROWS_AS(arena.create(), hyb::Error);
      ledger(1).refuse(0);
    }
    CHECK(more(1) == 0);
    CHECK_THROWS_AS(CudaArena(emulator::driver_table(), 2, handle_bytes), hyb::Error);
    CHECK(driver.is_clean());
  }

  TEST_CASE("memory whose handle is released while it is mapped is free once it is unmapped") {
    reset();
    namespace driver = hyb::kernels::driver;
    FakeDriver fake;
    const hyb::kernels::DriverTable table = emulator::driver_table();
    const std::size_t before = ledger().bytes(Holder::handle);
    const driver::AllocationProperties properties = {
        .type = driver::allocation_pinned,
        .requested_handle_types = driver::handle_none,
        .location = {.type = driver::location_device, .id = 0},
        .win32_meta_data = nullptr,
        .flags = {}};
    driver::Address at = 0;
    driver::Handle handle = 0;
    CHECK(table.mem_address_reserve(&at, handle_bytes, 0, 0, 0) == driver::success);
    CHECK(table.mem_create(&handle, handle_bytes, &properties, 0) == driver::success);
    CHECK(table.mem_map(at, handle_bytes, 0, handle, 0) == driver::success);
    CHECK(table.mem_release(handle) == driver::success);
    CHECK(ledger().bytes(Holder::handle) == before + handle_bytes);
    CHECK(table.mem_unmap(at, handle_bytes) == driver::success);
    CHECK(ledger().bytes(Holder::handle) == before);
    CHECK(table.mem_address_free(at, handle_bytes) == driver::success);
    CHECK(fake.is_clean());
  }

  TEST_CASE("no card is given another one's memory where they cannot reach each other") {
    const Cards cards(2);
    set_peer_access(false);
    FakeDriver driver;
    CudaArena arena(emulator::driver_table(), 0, handle_bytes, {1});
    const HandleId handle = arena.create();
    std::byte* const at = arena.reserve(handle_bytes);
    CHECK_THROWS_AS(arena.map(at, {&handle, 1}), hyb::Error);
    set_peer_access(true);
    arena.map(at, {&handle, 1});
    arena.unmap(at, {&handle, 1});
    arena.release(handle);
    arena.unreserve(at, handle_bytes);
    CHECK(driver.broken_rules().empty());
    CHECK(driver.is_clean());
  }

  TEST_CASE("a fill is done before later work of a stream that waits for no other one") {
    reset();
    FakeDriver driver;
    CudaArena arena(emulator::driver_table(), 0, handle_bytes);
    const std::array<HandleId, 1> handles{arena.create()};
    std::byte* const memory = arena.reserve(handle_bytes);
    arena.map(memory, handles);
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    std::array<std::byte, 64> bytes{};
    for (const std::byte value : {std::byte{3}, std::byte{255}}) {
      arena.fill(memory, handle_bytes, value);
      CHECK(cudaMemcpyAsync(bytes.data(), memory + 4096, bytes.size(), cudaMemcpyDeviceToHost,
                            stream) == cudaSuccess);
      CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
      CHECK(bytes.front() == value);
      CHECK(bytes.back() == value);
    }
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    arena.unmap(memory, handles);
    arena.release(handles[0]);
    arena.unreserve(memory, handle_bytes);
  }
}

}  // namespace

}  // namespace driver_test
