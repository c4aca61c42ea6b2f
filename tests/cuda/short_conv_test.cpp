#include "kernels/ops/short_conv.h"

#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr std::int64_t slots = 6;

struct Case {
  std::int64_t channels, taps;
  DType dtype;
  Strides strides;
  std::vector<std::int32_t> begins;  ///< the real spans
  std::vector<std::int32_t> read, write;
  bool bias = true;
};
const Case cases[] = {
    {1040, 3, DType::bf16, {}, {0, 9, 10, 12, 19}, {0, -1, 2, 5}, {0, 3, 2, 4}, false},
    {1024, 3, DType::bf16, {}, {0, 1, 2, 3}, {0, -1, 2}, {0, 3, 5}, false},  // decode
    {24, 4, DType::f32, {4, 0}, {0, 1, 2, 5}, {1, 3, -1}, {1, 0, 2}},
    {17, 3, DType::bf16, {3, 1}, {0, 2, 7}, {4, -1}, {4, 0}},
    {8, 2, DType::f32, {0, 1}, {0, 3, 4}, {-1, 2}, {1, 2}},
    {16, 4, DType::bf16, {8, 8}, {0, 1}, {3}, {5}},
    {8, 3, DType::bf16, {}, {0, 1, 2, 4, 3000, 3300}, {0, -1, 1, 3, 5}, {0, 2, 1, 3, 5}},  // tiles
};

/// All tensors of a call, with room for spans and tokens that are not in use.
struct Inputs {
  Inputs(const Case& c, std::int64_t spare_tokens)
      : tokens(c.begins.back()),
        x(random_tensor(c.dtype, {tokens + spare_tokens, 3 * c.channels}, 1, 1.0F, c.strides)),
        weight(random_tensor(DType::f32, {c.channels, c.taps}, 2)),
        bias(random_tensor(DType::f32, {c.channels}, 3)),
        windows(random_tensor(c.dtype, {slots, c.channels, c.taps - 1}, 4, 1.0F, c.strides)),
        y(c.dtype, {tokens + spare_tokens, c.channels}, c.strides) {}

  std::int64_t tokens;
  TestTensor x, weight, bias, windows, y;
};

/// Behind the real spans two that have no tokens and no slots.
std::vector<std::int32_t> padded(std::vector<std::int32_t> table, std::int32_t value) {
  table.insert(table.end(), 2, value);
  return table;
}

void check_case(const Case& c, bool replayed) {
  CAPTURE(c.channels);
  constexpr std::int64_t spare_tokens = 3;
  Inputs in(c, spare_tokens);
  const DeviceTensor x(in.x), weight(in.weight), bias(in.bias), windows(in.windows), y(in.y);
  Queue plain = test_queue(Isa::plain);
  const Table begins(c.begins), read(c.read), write(c.write);
  short_conv(plain, {.x = in.x.view().rows(0, in.tokens),
                     .weight = in.weight,
                     .bias = c.bias ? Tensor(in.bias) : Tensor(),
                     .windows = in.windows,
                     .span_begin = begins,
                     .read_slot = read,
                     .write_slot = write,
                     .y = in.y.view().rows(0, in.tokens)});

  cuda::Stream stream;
  const DeviceTable on_begins(padded(c.begins, c.begins.back())), on_read(padded(c.read, -1)),
      on_write(padded(c.write, -1));
  const ShortConv op = {.x = x,
                        .weight = weight,
                        .bias = c.bias ? Tensor(bias) : Tensor(),
                        .windows = windows,
                        .span_begin = on_begins,
                        .read_slot = on_read,
                        .write_slot = on_write,
                        .y = y};
  if (replayed) {
    const cuda::Graph graph(stream, [&] { cuda::short_conv(stream, op); });
    graph.replay(stream);
    stream.wait();
  } else {
    cuda::short_conv(stream, op);
    stream.wait();
  }
  const TestTensor answer = y.fetch();
  // In bf16 the sum may end on two sides of a rounding, and so may its product.
  CHECK(largest_error(answer, in.y, 0.5) <= (c.dtype == DType::bf16 ? 0x1.02p-7 : 2e-6));
  CHECK(answer.guards_intact());
  CHECK(windows.fetch().everything() == in.windows.everything());
  CHECK(x.fetch().everything() == in.x.everything());
}

/// The answer of one sequence in slot 1 cut at `begins`, a call for each piece.
std::vector<std::byte> cut_answer(const Case& c, const std::vector<std::int32_t>& begins) {
  const Inputs in(c, 0);
  const DeviceTensor x(in.x), weight(in.weight), bias(in.bias), windows(in.windows), y(in.y);
  const DeviceTable slot({1});
  cuda::Stream stream;
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    const std::int32_t first = begins[i], tokens = begins[i + 1] - first;
    const DeviceTable span({0, tokens});
    cuda::short_conv(stream, {.x = Tensor(x).rows(first, tokens),
                              .weight = weight,
                              .bias = bias,
                              .windows = windows,
                              .span_begin = span,
                              .read_slot = slot,
                              .write_slot = slot,
                              .y = Tensor(y).rows(first, tokens)});
    stream.wait();
  }
  std::vector<std::byte> all = y.fetch().packed();
  const std::vector<std::byte> left = windows.fetch().packed();
  all.insert(all.end(), left.begin(), left.end());
  return all;
}

TEST_SUITE("cuda/short_conv") {
  TEST_CASE("is the plain loop's answer; windows to the bit; unused spans touch nothing") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : cases) {
        check_case(c, false);
        if (c.begins.back() < 100) check_case(c, true);
      }
    });
  }

  TEST_CASE("cuts change no bit") {
    std::mt19937 engine(7);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Case c = {24, dtype == DType::f32 ? 4 : 3, dtype, {}, {0, 40}, {1}, {1}};
      const std::vector<std::byte> whole = cut_answer(c, {0, 40});
      for (int i = 0; i < 5; ++i) CHECK(cut_answer(c, random_cuts(40, engine)) == whole);
    }
  }
}

}  // namespace
