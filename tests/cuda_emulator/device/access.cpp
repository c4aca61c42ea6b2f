#include "tests/cuda_emulator/device/access.h"

#include <cstdint>
#include <string>

#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/device/fault.h"

namespace emulator {

void check_alignment(const char* what, const void* at, std::size_t bytes, Where where) {
  if (reinterpret_cast<std::uintptr_t>(at) % bytes == 0) return;
  fault(std::string(what) + ": misaligned, the address is no multiple of " + std::to_string(bytes),
        where);
}

void check_shared(const char* what, const void* at, std::size_t bytes, Where where) {
  if (current_thread->block->shared.contains(at, bytes)) return;
  fault(std::string(what) + ": " + std::to_string(bytes) + " bytes that are not shared memory",
        where);
}

void check_global(const char* what, const void* at, std::size_t bytes, Where where) {
  if (device_memory().contains(at, bytes)) return;
  fault(std::string(what) + ": " + std::to_string(bytes) +
            " bytes that are not inside of an allocation of the device",
        where);
}

void check_index(int i, int count, Where where) {
  if (i >= 0 && i < count) return;
  fault("index " + std::to_string(i) + " of a shared array of " + std::to_string(count), where);
}

void* dynamic_shared(std::size_t bytes, std::size_t alignment, Where where) {
  const SharedMemory& shared = current_thread->block->shared;
  if (shared.dynamic_bytes() < bytes || alignment > 128) {
    fault("dynamic_shared: " + std::to_string(bytes) + " bytes aligned to " +
              std::to_string(alignment) + ", the launch gave " +
              std::to_string(shared.dynamic_bytes()) + " aligned to 128",
          where);
  }
  return shared.dynamic();
}

void* shared_object(const void* key, std::size_t bytes, std::size_t alignment, Where where) {
  void* const at = current_thread->block->shared.object(key, bytes, alignment);
  if (at == nullptr) fault("shared_object: no shared memory is left", where);
  return at;
}

void copy_async(void* to, const void* from, std::size_t bytes, bool is_there, Where where) {
  check_alignment("cp_async to", to, bytes, where);
  check_shared("cp_async to", to, bytes, where);
  if (is_there) {
    check_alignment("cp_async from", from, bytes, where);
    check_global("cp_async from", from, bytes, where);
  }
  current_thread->copies.issue(to, from, bytes, is_there ? bytes : 0);
}

}  // namespace emulator
