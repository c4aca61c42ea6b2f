#pragma once

#include <cstddef>

#include "tests/cuda_emulator/device/sync.h"

namespace emulator {

/// Faults unless `at` is a multiple of `bytes`, as a card does; a CPU would not notice.
void check_alignment(const char* what, const void* at, std::size_t bytes, Where where);
/// Faults unless all of it is this block's shared memory.
void check_shared(const char* what, const void* at, std::size_t bytes, Where where);
/// Faults unless all of it is inside of one allocation of the device.
void check_global(const char* what, const void* at, std::size_t bytes, Where where);
void check_index(int i, int count, Where where);

void* dynamic_shared(std::size_t bytes, std::size_t alignment, Where where);
void* shared_object(const void* key, std::size_t bytes, std::size_t alignment, Where where);

void copy_async(void* to, const void* from, std::size_t bytes, bool is_there, Where where);

}  // namespace emulator
