#pragma once

#include "kernels/cuda/routes.h"
#include "tests/cuda/recurrent_support.h"
#include "tests/kernels/ops/conv_case.h"

namespace hyb::kernels::testing {

inline void run(cuda::Stream& stream, const CausalConv& op) { cuda::causal_conv(stream, op); }
inline void run(cuda::Stream& stream, const ShortConv& op) { cuda::short_conv(stream, op); }

/// Spans of one call; every named slot is below conv_slots.
struct ConvCase {
  std::int64_t channels, taps;
  DType dtype;
  Strides strides;
  std::vector<std::int32_t> begins;  ///< the real spans
  std::vector<std::int32_t> read, write;
  bool bias = true;
};
inline constexpr std::int64_t conv_slots = 6;

/// With room for tokens that no span has.
template <typename Op>
ConvInputs<Op> inputs_of(const ConvCase& c, std::int64_t spare_tokens) {
  const ConvShape shape = {c.begins.back() + spare_tokens, c.channels, c.taps, c.bias};
  return ConvInputs<Op>(c.dtype, shape, conv_slots, c.strides, {});
}

/// Their copies on the device.
template <typename Op>
struct ConvOnDevice {
  explicit ConvOnDevice(const ConvInputs<Op>& in)
      : has_bias(in.s.has_bias),
        x(in.x),
        weight(in.weight),
        bias(in.bias),
        windows(in.windows),
        y(in.y) {}

  /// For `tokens` tokens from `first` on.
  Op op(std::int64_t first, std::int64_t tokens, const DeviceTable& begins, const DeviceTable& read,
        const DeviceTable& write) const {
    return {.x = Tensor(x).rows(first, tokens),
            .weight = weight,
            .bias = has_bias ? Tensor(bias) : Tensor(),
            .windows = windows,
            .span_begin = begins,
            .read_slot = read,
            .write_slot = write,
            .y = Tensor(y).rows(first, tokens)};
  }

  bool has_bias;
  DeviceTensor x, weight, bias, windows, y;
};

/// The plain loop's answer within `bound`, and its windows to the bit; nothing else is written.
template <typename Op>
void check_case(const ConvCase& c, bool replayed, double bound) {
  CAPTURE(c.channels);
  constexpr std::int64_t spare_tokens = 3;
  const ConvInputs<Op> in = inputs_of<Op>(c, spare_tokens);
  const ConvOnDevice<Op> device(in);
  Queue plain = test_queue(Isa::plain);
  in.run(plain, Table(c.begins), Table(c.read), Table(c.write));

  cuda::Stream stream;
  const DeviceTable begins(padded(c.begins, c.begins.back())), read(padded(c.read, -1)),
      write(padded(c.write, -1));
  const Op op = device.op(0, in.s.tokens, begins, read, write);
  run_or_replay(stream, replayed, [&] { run(stream, op); });
  const TestTensor answer = device.y.fetch();
  CHECK(largest_error(answer, in.y, 0.5) <= bound);
  CHECK(answer.guards_intact());
  CHECK(device.windows.fetch().everything() == in.windows.everything());
  CHECK(device.x.fetch().everything() == in.x.everything());
}

/// The answer of one sequence in slot 1 cut at `begins`, a call for each piece.
template <typename Op>
std::vector<std::byte> cut_answer(const ConvCase& c, const std::vector<std::int32_t>& begins) {
  const ConvOnDevice<Op> device(inputs_of<Op>(c, 0));
  const DeviceTable slot({1});
  cuda::Stream stream;
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    const std::int32_t first = begins[i], tokens = begins[i + 1] - first;
    const DeviceTable span({0, tokens});
    run(stream, device.op(first, tokens, span, slot, slot));
    stream.wait();
  }
  std::vector<std::byte> all = device.y.fetch().packed();
  const std::vector<std::byte> left = device.windows.fetch().packed();
  all.insert(all.end(), left.begin(), left.end());
  return all;
}

/// Cuts of one sequence of 40 tokens change no bit.
template <typename Op>
void check_cuts_on_card(std::int64_t taps, DType dtype) {
  std::mt19937 engine(7);
  const ConvCase c = {24, taps, dtype, {}, {0, 40}, {1}, {1}};
  const std::vector<std::byte> whole = cut_answer<Op>(c, {0, 40});
  for (int i = 0; i < 5; ++i) CHECK(cut_answer<Op>(c, random_cuts(40, engine)) == whole);
}

}  // namespace hyb::kernels::testing
