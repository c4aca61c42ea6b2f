#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/cuda_emulator/device/accesses.h"
#include "tests/cuda_emulator/device/grid.h"

/// What g++ calls for every load and store of a file that it compiles with -fsanitize=thread. That
/// sanitizer's own library is not linked: these are the emulator's answers. Programs that have no
/// such file do not link this one.

namespace {

using emulator::Access;

void check(const void* at, std::size_t size, Access access, const void* place) {
  const emulator::DeviceThread* const thread = emulator::current_thread;
  if (thread == nullptr) return;  // the host's code
  thread->block->accesses->check(*thread, at, size, access, place);
}

/// An atomic operation that releases publishes what was stored before it.
void release(int order) {
  const emulator::DeviceThread* const thread = emulator::current_thread;
  if (thread != nullptr && order >= __ATOMIC_RELEASE) thread->block->accesses->fence(*thread);
}

}  // namespace

extern "C" {

void __tsan_init() { emulator::is_instrumented = true; }

void __tsan_read1(void* at) { check(at, 1, Access::read, __builtin_return_address(0)); }
void __tsan_write1(void* at) { check(at, 1, Access::write, __builtin_return_address(0)); }
void __tsan_read2(void* at) { check(at, 2, Access::read, __builtin_return_address(0)); }
void __tsan_write2(void* at) { check(at, 2, Access::write, __builtin_return_address(0)); }
void __tsan_read4(void* at) { check(at, 4, Access::read, __builtin_return_address(0)); }
void __tsan_write4(void* at) { check(at, 4, Access::write, __builtin_return_address(0)); }
void __tsan_read8(void* at) { check(at, 8, Access::read, __builtin_return_address(0)); }
void __tsan_write8(void* at) { check(at, 8, Access::write, __builtin_return_address(0)); }
void __tsan_read16(void* at) { check(at, 16, Access::read, __builtin_return_address(0)); }
void __tsan_write16(void* at) { check(at, 16, Access::write, __builtin_return_address(0)); }

void __tsan_read_range(void* at, std::size_t size) {
  check(at, size, Access::read, __builtin_return_address(0));
}
void __tsan_write_range(void* at, std::size_t size) {
  check(at, size, Access::write, __builtin_return_address(0));
}

void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __tsan_atomic_thread_fence(int order) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  release(order);
}
std::uint32_t __tsan_atomic32_load(const volatile std::uint32_t* at, int) {
  check(const_cast<const std::uint32_t*>(at), 4, Access::read, __builtin_return_address(0));
  return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}
void __tsan_atomic32_store(volatile std::uint32_t* at, std::uint32_t value, int order) {
  release(order);
  check(const_cast<std::uint32_t*>(at), 4, Access::atomic, __builtin_return_address(0));
  __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}
std::uint32_t __tsan_atomic32_fetch_add(volatile std::uint32_t* at, std::uint32_t value,
                                        int order) {
  release(order);
  check(const_cast<std::uint32_t*>(at), 4, Access::atomic, __builtin_return_address(0));
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
std::uint32_t __tsan_atomic32_fetch_or(volatile std::uint32_t* at, std::uint32_t value, int order) {
  release(order);
  check(const_cast<std::uint32_t*>(at), 4, Access::atomic, __builtin_return_address(0));
  return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST);
}
}
