#include "kernels/probe.h"

#include <doctest/doctest.h>

#include "tests/kernels/support.h"

namespace probe_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

TEST_SUITE("kernels/probe") {
  TEST_CASE("figures are those of a machine of this century, on every route") {
    for (const Isa isa : available_isas()) {
      CAPTURE(kernels::testing::name_of(isa));
      Queue queue = test_queue(isa, 1);
      ReadProbe probe(queue, std::size_t{32} << 20);
      const double bytes = probe.bytes_per_s();
      CHECK(bytes > 1e7);
      CHECK(bytes < 1e13);
      for (const DType type : {DType::f32, DType::bf16}) {
        // A core does at most some 256 operations per cycle: more means that the loop was optimized
        // away.
        const double operations = flops_per_s(queue, type);
        CHECK(operations > 1e7);
        CHECK(operations < 256 * 7e9);
      }
    }
  }
}

}  // namespace probe_test
