#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"
#include "tests/kernels/ops/shift_rows_case.h"

namespace cuda_shift_rows_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

TEST_SUITE("cuda/shift_rows") {
  TEST_CASE("has the plain loop's bytes, replayed from a graph, with spans without tokens") {
    Queue plain = test_queue(Isa::plain);
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const ShiftCase& c : shift_cases()) {
          CAPTURE(c.columns);
          ShiftInputs in(c, dtype);
          cuda::Stream stream;
          const DeviceTensor x(in.x), kept(in.kept), y(in.y);
          std::vector<std::int32_t> begin = shift_begin(), read = shift_read(),
                                    write = shift_write();
          begin.push_back(begin.back());
          read.push_back(-1);
          write.push_back(-1);
          const DeviceTable device_begin(begin), device_read(read), device_write(write);
          const cuda::Graph graph(stream, [&] {
            cuda::shift_rows(stream, {.x = x,
                                      .kept = kept,
                                      .span_begin = device_begin,
                                      .read_slot = device_read,
                                      .write_slot = device_write,
                                      .y = y});
          });
          graph.replay(stream);
          stream.wait();
          shift_rows(plain, {.x = in.x,
                             .kept = in.kept,
                             .span_begin = Table(shift_begin()),
                             .read_slot = Table(shift_read()),
                             .write_slot = Table(shift_write()),
                             .y = in.y});
          CHECK(y.fetch().everything() == in.y.everything());
          CHECK(kept.fetch().everything() == in.kept.everything());
        }
      }
    });
  }
}

}  // namespace cuda_shift_rows_test
