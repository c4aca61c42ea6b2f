// libFuzzer over grammars: scripts/fuzz/fuzz.sh.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/constraint_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (!hyb::testing::try_constraint({reinterpret_cast<const char*>(data), size})) std::abort();
  return 0;
}
