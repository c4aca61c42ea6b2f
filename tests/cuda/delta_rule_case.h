#pragma once

#include <algorithm>
#include <functional>

#include "tests/cuda/support.h"
#include "tests/kernels/ops/delta_rule_case.h"

namespace hyb::kernels::testing {

/// Spans of one call of delta_rule; every named slot is below delta_slots.
struct DeltaCase {
  std::int64_t key_heads, value_heads, rows, columns;
  DType dtype, state;
  std::vector<std::int32_t> begins, read, write;
  Strides strides;

  /// With room for tokens that no span has.
  DeltaInputs inputs(std::int64_t spare_tokens = 0) const;
};
inline constexpr std::int64_t delta_slots = 6;

inline DeltaInputs DeltaCase::inputs(std::int64_t spare_tokens) const {
  return DeltaInputs(dtype, {begins.back() + spare_tokens, key_heads, value_heads, rows, columns},
                     delta_slots, state, strides);
}

/// The plain loop; y and state of `in` become its answer.
inline void run_plain(const DeltaCase& c, DeltaInputs& in) {
  Queue plain = test_queue(Isa::plain);
  in.run(plain, Table(c.begins), Table(c.read), Table(c.write));
}

struct DeltaAnswer {
  TestTensor y, state;
};
using DeltaRoute = std::function<void(cuda::Stream&, const DeltaRule&)>;

/// A route's answer, with some spans behind the real ones that have neither tokens nor slots.
inline DeltaAnswer run_route(const DeltaRoute& route, const DeltaCase& c, const DeltaInputs& in,
                             bool replayed = false, std::size_t spare_spans = 2) {
  const auto padded = [&](std::vector<std::int32_t> table, std::int32_t value) {
    table.insert(table.end(), spare_spans, value);
    return table;
  };
  cuda::Stream stream;
  const DeviceTensor x(in.x), ba(in.ba), a_log(in.a_log), dt_bias(in.dt_bias), state(in.state),
      y(in.y);
  const DeviceTable begins(padded(c.begins, c.begins.back())), read(padded(c.read, -1)),
      write(padded(c.write, -1));
  const DeltaRule op = {.x = x,
                        .b = Tensor(ba).columns(0, c.value_heads),
                        .a = Tensor(ba).columns(c.value_heads, c.value_heads),
                        .a_log = a_log,
                        .dt_bias = dt_bias,
                        .state = state,
                        .span_begin = begins,
                        .read_slot = read,
                        .write_slot = write,
                        .y = y,
                        .key_heads = c.key_heads};
  if (replayed) {
    const cuda::Graph graph(stream, [&] { route(stream, op); });
    graph.replay(stream);
  } else {
    route(stream, op);
  }
  stream.wait();
  CHECK(x.fetch().everything() == in.x.everything());
  CHECK(ba.fetch().everything() == in.ba.everything());
  return {y.fetch(), state.fetch()};
}

/// Only the named slots and the spans' rows have changed.
inline void check_untouched(const DeltaCase& c, const DeltaInputs& before,
                            const DeltaAnswer& after) {
  CHECK(after.state.guards_intact());
  CHECK(after.y.guards_intact());
  const auto same = [](const TestTensor& a, const TestTensor& b, std::int64_t begin,
                       std::int64_t end) {
    const std::vector<std::byte> x = a.packed(), y = b.packed();
    const auto bytes = static_cast<std::ptrdiff_t>(x.size()) / a.size();
    return std::equal(x.begin() + begin * bytes, x.begin() + end * bytes,
                      y.begin() + begin * bytes);
  };
  const std::int64_t size = before.s.slot_size();
  for (std::int32_t slot = 0; slot < delta_slots; ++slot) {
    if (std::find(c.write.begin(), c.write.end(), slot) != c.write.end()) continue;
    CHECK(same(after.state, before.state, slot * size, (slot + 1) * size));
  }
  CHECK(same(after.y, before.y, c.begins.back() * before.s.inner(), after.y.size()));
}

}  // namespace hyb::kernels::testing
