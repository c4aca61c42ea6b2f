#pragma once

#include <algorithm>
#include <functional>

#include "tests/cuda/recurrent_support.h"
#include "tests/kernels/ops/chain_case.h"
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

  DeltaCase with(const ChainedSpans& spans) const {
    DeltaCase other = *this;
    other.begins = spans.begins;
    other.read = spans.read;
    other.write = spans.write;
    return other;
  }
  ChainedSpans spans() const { return {begins, read, write}; }
};
inline constexpr std::int64_t delta_slots = 10;

inline DeltaInputs DeltaCase::inputs(std::int64_t spare_tokens) const {
  return DeltaInputs(dtype, {begins.back() + spare_tokens, key_heads, value_heads, rows, columns},
                     delta_slots, state, strides);
}

/// The plain loop; y and state of `in` become its answer.
inline void run_plain(const DeltaCase& c, DeltaInputs& in) {
  Queue plain = test_queue(Isa::plain);
  in.run(plain, Table(c.begins), Table(c.read), Table(c.write));
}

using DeltaRoute = std::function<void(cuda::Stream&, const DeltaRule&)>;

/// A route's answer, with some spans behind the real ones that have neither tokens nor slots.
inline RecurrentAnswer run_route(const DeltaRoute& route, const DeltaCase& c, const DeltaInputs& in,
                                 bool replayed = false, std::size_t spare_spans = 2) {
  cuda::Stream stream;
  const DeviceTensor x(in.x), ba(in.ba), a_log(in.a_log), dt_bias(in.dt_bias), state(in.state),
      y(in.y);
  const DeviceTable begins(padded(c.begins, c.begins.back(), spare_spans)),
      read(padded(c.read, -1, spare_spans)), write(padded(c.write, -1, spare_spans));
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
  run_or_replay(stream, replayed, [&] { route(stream, op); });
  CHECK(x.fetch().everything() == in.x.everything());
  CHECK(ba.fetch().everything() == in.ba.everything());
  return {y.fetch(), state.fetch()};
}

/// A route's answer in a call for every span.
inline RecurrentAnswer run_apart(const DeltaRoute& route, const DeltaCase& c,
                                 const DeltaInputs& in) {
  cuda::Stream stream;
  const DeviceTensor x(in.x), ba(in.ba), a_log(in.a_log), dt_bias(in.dt_bias), state(in.state),
      y(in.y);
  c.spans().each([&](const Table& begin, const Table& from, const Table& to, std::int32_t first) {
    const DeviceTable begins(begin.values()), read(from.values()), write(to.values());
    const std::int32_t tokens = begin.values()[1];
    const Tensor both = Tensor(ba).rows(first, tokens);
    route(stream, {.x = Tensor(x).rows(first, tokens),
                   .b = both.columns(0, c.value_heads),
                   .a = both.columns(c.value_heads, c.value_heads),
                   .a_log = a_log,
                   .dt_bias = dt_bias,
                   .state = state,
                   .span_begin = begins,
                   .read_slot = read,
                   .write_slot = write,
                   .y = Tensor(y).rows(first, tokens),
                   .key_heads = c.key_heads});
    stream.wait();
  });
  return {y.fetch(), state.fetch()};
}

/// Only the named slots and the spans' rows have changed.
inline void check_untouched(const DeltaCase& c, const DeltaInputs& before,
                            const RecurrentAnswer& after) {
  CHECK(after.y.guards_intact());
  check_slots(c.write, before.state, after.state);
  const std::vector<std::byte> old = before.y.packed(), now = after.y.packed();
  const auto row_bytes = static_cast<std::ptrdiff_t>(old.size()) / before.s.tokens;
  CHECK(std::equal(old.begin() + c.begins.back() * row_bytes, old.end(),
                   now.begin() + c.begins.back() * row_bytes));
}

/// A chain's one call leaves the bytes of a call for each of its spans; `apart` answers those.
inline void check_chain(const DeltaRoute& route, const DeltaRoute& apart, const DeltaCase& c,
                        bool replayed = false, std::size_t spare_spans = 2) {
  CAPTURE(c.rows);
  CAPTURE(c.columns);
  const DeltaInputs in = c.inputs(2);
  const RecurrentAnswer chain = run_route(route, c, in, replayed, spare_spans),
                        pieces = run_apart(apart, c, in);
  CHECK(same_rows(chain.y, pieces.y, c.begins.back()));
  CHECK(chain.state.everything() == pieces.state.everything());
  check_untouched(c, in, chain);
}

}  // namespace hyb::kernels::testing
