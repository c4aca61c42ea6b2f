#include <cstdlib>
#include <new>

#include "tests/perf/allocations.h"

namespace {

std::int64_t count = 0;

}  // namespace

// Replaces the library's for the whole program, so that a measurement can count them.
void* operator new(std::size_t bytes) {
  ++count;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace hyb::perf {

std::int64_t allocations() { return count; }

}  // namespace hyb::perf
