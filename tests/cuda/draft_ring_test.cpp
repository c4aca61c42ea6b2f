#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"
#include "tests/kernels/ops/draft_ring_case.h"

namespace cuda_draft_ring_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Calls body(case, inputs) for all of them, in every schedule.
template <typename Body>
void in_every_case(Body&& body) {
  in_every_schedule([&](const std::string& schedule) {
    CAPTURE(schedule);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const RingCase& c : ring_cases()) {
        CAPTURE(c.columns);
        RingInputs in(c, dtype);
        body(c, in);
      }
    }
  });
}

}  // namespace

TEST_SUITE("cuda/draft_ring") {
  TEST_CASE("extend_rows has the plain loop's bytes, replayed from a graph, with a ring or ones") {
    Queue plain = test_queue(Isa::plain);
    for (const bool has_ring : {true, false}) {
      in_every_case([&](const RingCase& c, RingInputs& in) {
        cuda::Stream stream;
        const DeviceTensor x(in.x), ring(in.ring), y(in.y);
        const DeviceTable from(extended_from());
        const Tensor none;
        const cuda::Graph graph(stream, [&] {
          cuda::extend_rows(stream, {.x = x,
                                     .ring = has_ring ? Tensor(ring) : none,
                                     .from = from,
                                     .y = y,
                                     .ring_column = c.ring_column});
        });
        graph.replay(stream);
        stream.wait();
        extend_rows(plain, {.x = in.x,
                            .ring = has_ring ? Tensor(in.ring) : none,
                            .from = Table(extended_from()),
                            .y = in.y,
                            .ring_column = c.ring_column});
        CHECK(y.fetch().everything() == in.y.everything());
        CHECK(ring.fetch().everything() == in.ring.everything());
      });
    }
  }

  TEST_CASE("keep_rows has the plain loop's bytes, replayed from a graph, with a gate or without") {
    Queue plain = test_queue(Isa::plain);
    for (const bool has_gate : {true, false}) {
      in_every_case([&](const RingCase& c, RingInputs& in) {
        cuda::Stream stream;
        const DeviceTensor x(in.x), gate(in.gate), ring(in.ring);
        const DeviceTable to(kept_to());
        const Tensor none;
        const cuda::Graph graph(stream, [&] {
          cuda::keep_rows(stream, {.x = x,
                                   .gate = has_gate ? Tensor(gate) : none,
                                   .to = to,
                                   .ring = ring,
                                   .ring_column = c.ring_column});
        });
        graph.replay(stream);
        stream.wait();
        keep_rows(plain, {.x = in.x,
                          .gate = has_gate ? Tensor(in.gate) : none,
                          .to = Table(kept_to()),
                          .ring = in.ring,
                          .ring_column = c.ring_column});
        CHECK(ring.fetch().everything() == in.ring.everything());
      });
    }
  }
}

}  // namespace cuda_draft_ring_test
