#include "kernels/queue.h"

#include <doctest/doctest.h>

#include <string>

#include "core/base/error.h"

namespace queue_test {

using namespace hyb;
using namespace hyb::kernels;

namespace {

ErrorKind kind_of(const auto& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.kind();
  }
  FAIL("no error");
  return ErrorKind::runtime;
}

}  // namespace

TEST_SUITE("kernels/queue") {
  TEST_CASE("what this build or machine lacks is a usage error") {
    if (!has_cuda) CHECK(kind_of([] { Queue queue(Device::cuda); }) == ErrorKind::usage);
    CHECK(kind_of([] { Queue queue(Device::cpu, {.threads = -1, .isa = {}}); }) ==
          ErrorKind::usage);
    CHECK(kind_of([] { Queue queue(Device::cpu, {.threads = 100000, .isa = {}}); }) ==
          ErrorKind::usage);
    if (best_isa() != Isa::avx512) {
      CHECK(kind_of([] { Queue queue(Device::cpu, {.threads = 1, .isa = Isa::avx512}); }) ==
            ErrorKind::usage);
    }
  }

  TEST_CASE("without options it takes the best instruction set and every usable CPU") {
    Queue queue(Device::cpu);
    CHECK(queue.isa() == best_isa());
    CHECK(queue.threads() == usable_cpus().count);
    CHECK(Queue(Device::cpu, {.threads = 1, .isa = Isa::plain}).isa() == Isa::plain);
  }
}

}  // namespace queue_test
