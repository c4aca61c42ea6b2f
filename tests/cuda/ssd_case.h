#pragma once

#include <functional>

#include "kernels/ops/ssd.h"
#include "tests/cuda/recurrent_support.h"
#include "tests/kernels/ops/chain_case.h"

namespace hyb::kernels::testing {

/// Spans of one call of ssd; every named slot is below ssd_slots.
struct SsdCase {
  std::int64_t heads, rows, columns, groups;
  DType dtype, state;
  std::vector<std::int32_t> begins, read, write;
  Strides strides;
  float dt_max = 4.0F;

  SsdCase with(const ChainedSpans& spans) const {
    SsdCase other = *this;
    other.begins = spans.begins;
    other.read = spans.read;
    other.write = spans.write;
    return other;
  }
  ChainedSpans spans() const { return {begins, read, write}; }
};
inline constexpr std::int64_t ssd_slots = 10;

/// All tensors of a call, on the host, with room for tokens that no span has.
struct SsdInputs {
  explicit SsdInputs(const SsdCase& c, std::int64_t spare_tokens = 0)
      : tokens(c.begins.back()),
        inner(c.heads * c.rows),
        x(random_tensor(c.dtype, {tokens + spare_tokens, inner + 2 * c.groups * c.columns}, 1, 1.0F,
                        c.strides)),
        dt(random_tensor(c.dtype, {tokens + spare_tokens, c.heads}, 2, 1.0F, {2, 1})),
        a_log(random_tensor(DType::f32, {c.heads}, 3)),
        d(random_tensor(DType::f32, {c.heads}, 4)),
        dt_bias(random_tensor(DType::f32, {c.heads}, 5)),
        state(random_tensor(c.state, {ssd_slots, c.heads, c.rows, c.columns}, 6, 1.0F, c.strides)),
        y(c.dtype, {tokens + spare_tokens, inner}, c.strides) {}

  std::int64_t tokens, inner;
  TestTensor x, dt, a_log, d, dt_bias, state, y;
};

/// The plain loop; y and state of `in` become its answer.
inline void run_plain(const SsdCase& c, SsdInputs& in) {
  Queue plain = test_queue(Isa::plain);
  const Table begins(c.begins), read(c.read), write(c.write);
  ssd(plain, {.x = in.x.view().rows(0, in.tokens),
              .dt = in.dt.view().rows(0, in.tokens),
              .a_log = in.a_log,
              .d = in.d,
              .dt_bias = in.dt_bias,
              .state = in.state,
              .span_begin = begins,
              .read_slot = read,
              .write_slot = write,
              .y = in.y.view().rows(0, in.tokens),
              .groups = c.groups,
              .dt_max = c.dt_max});
}

using SsdRoute = std::function<void(cuda::Stream&, const Ssd&)>;

/// A route's answer, with two spans behind the real ones that have neither tokens nor slots.
inline RecurrentAnswer run_route(const SsdRoute& route, const SsdCase& c, const SsdInputs& in,
                                 bool replayed = false) {
  cuda::Stream stream;
  const DeviceTensor x(in.x), dt(in.dt), a_log(in.a_log), d(in.d), dt_bias(in.dt_bias),
      state(in.state), y(in.y);
  const DeviceTable begins(padded(c.begins, c.begins.back())), read(padded(c.read, -1)),
      write(padded(c.write, -1));
  const Ssd op = {.x = x,
                  .dt = dt,
                  .a_log = a_log,
                  .d = d,
                  .dt_bias = dt_bias,
                  .state = state,
                  .span_begin = begins,
                  .read_slot = read,
                  .write_slot = write,
                  .y = y,
                  .groups = c.groups,
                  .dt_max = c.dt_max};
  run_or_replay(stream, replayed, [&] { route(stream, op); });
  CHECK(x.fetch().everything() == in.x.everything());
  return {y.fetch(), state.fetch()};
}

/// A route's answer in a call for every span.
inline RecurrentAnswer run_apart(const SsdRoute& route, const SsdCase& c, const SsdInputs& in) {
  cuda::Stream stream;
  const DeviceTensor x(in.x), dt(in.dt), a_log(in.a_log), d(in.d), dt_bias(in.dt_bias),
      state(in.state), y(in.y);
  c.spans().each([&](const Table& begin, const Table& from, const Table& to, std::int32_t first) {
    const DeviceTable begins(begin.values()), read(from.values()), write(to.values());
    const std::int32_t tokens = begin.values()[1];
    route(stream, {.x = Tensor(x).rows(first, tokens),
                   .dt = Tensor(dt).rows(first, tokens),
                   .a_log = a_log,
                   .d = d,
                   .dt_bias = dt_bias,
                   .state = state,
                   .span_begin = begins,
                   .read_slot = read,
                   .write_slot = write,
                   .y = Tensor(y).rows(first, tokens),
                   .groups = c.groups,
                   .dt_max = c.dt_max});
    stream.wait();
  });
  return {y.fetch(), state.fetch()};
}

/// A chain's one call leaves the bytes of a call for each of its spans.
inline void check_chain(const SsdRoute& route, const SsdCase& c, bool replayed = false) {
  CAPTURE(c.rows);
  CAPTURE(c.columns);
  const SsdInputs in(c, 2);
  const RecurrentAnswer chain = run_route(route, c, in, replayed), apart = run_apart(route, c, in);
  CHECK(same_rows(chain.y, apart.y, c.begins.back()));
  CHECK(chain.y.guards_intact());
  CHECK(chain.state.everything() == apart.state.everything());
}

/// Only the named slots have changed.
inline void check_untouched(const SsdCase& c, const SsdInputs& before,
                            const RecurrentAnswer& after) {
  CHECK(after.y.guards_intact());
  check_slots(c.write, before.state, after.state);
}

}  // namespace hyb::kernels::testing
