#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/ops/conv.h"
#include "tests/cuda/recurrent_support.h"
#include "tests/kernels/ops/conv_case.h"

namespace hyb::kernels::testing::conv_test {

namespace {

void run(cuda::Stream& stream, const CausalConv& op) { cuda::causal_conv(stream, op); }
void run(cuda::Stream& stream, const GatedConv& op) { cuda::gated_conv(stream, op); }

/// Spans of one call; every named slot is below conv_slots.
struct ConvCase {
  std::int64_t channels = 8, taps = 4;
  DType dtype = b16;
  ChainedSpans spans = {};  ///< the real ones
  Strides strides = {};
  bool bias = true;
};
constexpr std::int64_t conv_slots = 6;

/// With room for tokens that no span has.
template <typename Op>
ConvInputs<Op> inputs_of(const ConvCase& c, std::int64_t spare_tokens) {
  const ConvShape shape = {c.spans.begins.back() + spare_tokens, c.channels, c.taps, c.bias};
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
  in.run(plain, Table(c.spans.begins), Table(c.spans.read), Table(c.spans.write));

  cuda::Stream stream;
  const DeviceTable begins(padded(c.spans.begins, c.spans.begins.back())),
      read(padded(c.spans.read, -1)), write(padded(c.spans.write, -1));
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
  const ConvCase c = {.channels = 24, .taps = taps, .dtype = dtype, .spans = {{0, 40}, {1}, {1}}};
  const std::vector<std::byte> whole = cut_answer<Op>(c, {0, 40});
  for (int i = 0; i < 5; ++i) CHECK(cut_answer<Op>(c, random_cuts(40, engine)) == whole);
}

/// A chain's one call leaves the bytes of a call for each of its spans, and nothing else.
template <typename Op>
void check_chain_on_card(const ChainedSpans& spans, std::int64_t channels, std::int64_t taps,
                         DType dtype, Strides strides, bool replayed) {
  CAPTURE(channels);
  CAPTURE(taps);
  constexpr std::int64_t spare_tokens = 3;
  const ConvShape shape = {spans.begins.back() + spare_tokens, channels, taps};
  const ConvInputs<Op> in(dtype, shape, spans.slots() + 1, strides, {});
  const ConvOnDevice<Op> chain(in), apart(in);
  cuda::Stream stream;
  const DeviceTable begins(padded(spans.begins, spans.begins.back())), read(padded(spans.read, -1)),
      write(padded(spans.write, -1));
  const Op op = chain.op(0, in.s.tokens, begins, read, write);
  run_or_replay(stream, replayed, [&] { run(stream, op); });
  spans.each([&](const Table& begin, const Table& from, const Table& to, std::int32_t first) {
    const DeviceTable span(begin.values()), slot(from.values()), next(to.values());
    run(stream, apart.op(first, begin.values()[1], span, slot, next));
    stream.wait();
  });
  CHECK(chain.y.fetch().everything() == apart.y.fetch().everything());
  CHECK(chain.windows.fetch().everything() == apart.windows.fetch().everything());
}

/// Chains of single tokens and of more, some across tiles of several tokens.
template <typename Op>
void check_chains_on_card() {
  in_every_schedule([&](const std::string& schedule) {
    CAPTURE(schedule);
    std::mt19937 engine(7);
    for (const std::int64_t taps : {2, 3, 4}) {
      check_chain_on_card<Op>(chained({0, 1, 2, 3, 4, 5, 6}, false, true), 24, taps, b16, {},
                              false);
      check_chain_on_card<Op>(random_chain(20, engine), 17, taps, f32, {3, 1}, true);
      const std::int32_t cut = 4000 + static_cast<std::int32_t>(engine() % 20);
      check_chain_on_card<Op>(
          chained({0, 1, 3, cut, cut + 1, cut + 2, cut + 4, 4900, 4901}, false, engine() % 2 == 0),
          8, taps, b16, {}, false);
    }
  });
  // Every place of a short chain in the tiles.
  for (std::int32_t first = 4500; first < 4506; ++first) {
    check_chain_on_card<Op>(
        {{0, first, first + 1, first + 2, first + 3, first + 9}, {0, 1, 1, 2, 3}, {0, 1, 2, 3, 4}},
        8, 4, b16, {}, false);
  }
}

const ConvCase cases[] = {
    {.channels = 1040, .spans = {{0, 9, 10, 12, 19}, {0, -1, 2, 5}, {0, 3, 2, 4}}},
    {.channels = 24,
     .dtype = f32,
     .spans = {{0, 1, 2, 5}, {1, 3, -1}, {1, 0, 2}},
     .strides = {4, 0},
     .bias = false},
    {.channels = 17, .taps = 3, .spans = {{0, 2, 7}, {4, -1}, {4, 0}}, .strides = {3, 1}},
    {.taps = 2, .dtype = f32, .spans = {{0, 3, 4}, {-1, 2}, {1, 2}}, .strides = {0, 1}},
    {.channels = 16, .taps = 3, .spans = {{0, 1}, {3}, {5}}, .strides = {8, 8}},
    {.channels = 40, .spans = {{0, 2, 6, 9, 10}, {1, 4, 3, 5}, {4, -1, -1, 5}}},  // drafts
    {.spans = {{0, 1, 2, 4, 4500, 5000}, {0, -1, 1, 3, 5}, {0, 2, 1, 3, 5}}},     // tiles
};

double bound(const ConvCase& c) { return c.dtype == b16 ? 0x1p-8 : 2e-6; }

TEST_SUITE("cuda/causal_conv") {
  TEST_CASE("is the plain loop's answer; windows to the bit; unused spans touch nothing") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const ConvCase& c : cases) {
        check_case<CausalConv>(c, false, bound(c));
        if (c.spans.begins.back() < 100) check_case<CausalConv>(c, true, bound(c));
      }
    });
  }

  TEST_CASE("cuts change no bit") {
    check_cuts_on_card<CausalConv>(4, f32);
    check_cuts_on_card<CausalConv>(4, b16);
  }

  TEST_CASE("a chain of spans leaves the bytes of a call for each of them") {
    check_chains_on_card<CausalConv>();
  }
}

const ConvCase short_cases[] = {
    {.channels = 1040,
     .taps = 3,
     .spans = {{0, 9, 10, 12, 19}, {0, -1, 2, 5}, {0, 3, 2, 4}},
     .bias = false},
    {.channels = 1024,
     .taps = 3,
     .spans = {{0, 1, 2, 3}, {0, -1, 2}, {0, 3, 5}},
     .bias = false},  // decode
    {.channels = 24,
     .dtype = f32,
     .spans = {{0, 1, 2, 5}, {1, 3, -1}, {1, 0, 2}},
     .strides = {4, 0}},
    {.channels = 17, .taps = 3, .spans = {{0, 2, 7}, {4, -1}, {4, 0}}, .strides = {3, 1}},
    {.taps = 2, .dtype = f32, .spans = {{0, 3, 4}, {-1, 2}, {1, 2}}, .strides = {0, 1}},
    {.channels = 16, .spans = {{0, 1}, {3}, {5}}, .strides = {8, 8}},
    {.channels = 1040, .taps = 7, .spans = {{0, 9, 10, 13, 19}, {0, -1, 2, 5}, {0, 3, 2, 4}}},
    {.channels = 17, .taps = 7, .dtype = f32, .spans = {{0, 2, 12}, {4, -1}, {4, 0}}},
    {.channels = 40,
     .taps = 3,
     .spans = {{0, 2, 6, 9, 10}, {1, 4, 3, 5}, {4, -1, -1, 5}}},                          // drafts
    {.taps = 3, .spans = {{0, 1, 2, 4, 3000, 3300}, {0, -1, 1, 3, 5}, {0, 2, 1, 3, 5}}},  // tiles
};

/// In bf16 the sum may end on two sides of a rounding, and so may its product.
double short_bound(const ConvCase& c) { return c.dtype == b16 ? 0x1.02p-7 : 2e-6; }

TEST_SUITE("cuda/short_conv") {
  TEST_CASE("is the plain loop's answer; windows to the bit; unused spans touch nothing") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const ConvCase& c : short_cases) {
        check_case<GatedConv>(c, false, short_bound(c));
        if (c.spans.begins.back() < 100) check_case<GatedConv>(c, true, short_bound(c));
      }
    });
  }

  TEST_CASE("cuts change no bit") {
    check_cuts_on_card<GatedConv>(4, f32);
    check_cuts_on_card<GatedConv>(3, b16);
    check_cuts_on_card<GatedConv>(7, b16);
  }

  TEST_CASE("a chain of spans leaves the bytes of a call for each of them") {
    check_chains_on_card<GatedConv>();
  }
}

}  // namespace

}  // namespace hyb::kernels::testing::conv_test
