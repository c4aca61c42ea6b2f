#include <algorithm>
#include <numeric>
#include <optional>

#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/transfer.h"
#include "tests/cuda/support.h"
#include "tests/kernels/linear/coded_weights.h"

namespace cuda_input_order_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr DType f32 = DType::f32, bf = DType::bf16;
constexpr std::int64_t tokens_max = 70;

/// A matrix whose groups are no runs of columns, and the same one with its columns sorted.
struct Matrices {
  Matrices(Queue& card, const CodedFormat& format, std::int64_t rows, std::int64_t columns,
           unsigned seed)
      : shuffled(format.codes, format.scales, format.has_zeros, format.column_block, 1, rows,
                 columns, seed),
        sorted(shuffled) {
    shuffled.shuffle(seed);
    order.resize(static_cast<std::size_t>(columns));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](std::int32_t k) { return shuffled.group_of[at(k)]; });
    std::ranges::fill(sorted.codes, std::byte{});
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t k = 0; k < columns; ++k) {
        const std::int64_t from = n * columns + order[at(k)], to = n * columns + k;
        if (format.codes == DType::i8) {
          sorted.codes[at(to)] = shuffled.codes[at(from)];
        } else {
          const std::uint8_t code = mxfp4_code(shuffled.codes.data(), from);
          sorted.codes[at(to / 2)] |= static_cast<std::byte>(code << (to % 2 * 4));
        }
      }
    }
    WeightStrip& strip = sorted.source.strips.front();
    strip.bytes = sorted.codes.data();
    ordered = Weight::pack(card, shuffled.source, bf);
    plain = Weight::pack(card, sorted.source, bf);
    card.stream().wait();
    REQUIRE(ordered.code() == WeightCode::groups);
    REQUIRE(plain.order(0).empty());
    CHECK(ordered.owned_bytes() == plain.owned_bytes() + at(columns) * sizeof(std::int32_t));
  }

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  /// Rows as the sorted matrix wants them.
  TestTensor in_order(const TestTensor& x) const {
    TestTensor y(bf, {x.view().dim(0), x.view().dim(1)});
    for (std::int64_t i = 0; i < x.view().size(); ++i) {
      const std::int64_t columns = x.view().dim(1);
      y.set(i, x.get(i / columns * columns + order[at(i % columns)]));
    }
    return y;
  }

  GroupedMatrix shuffled, sorted;
  std::vector<std::int32_t> order;
  Weight ordered, plain;
};

/// Streams that run beside each other, each with rows of its own.
struct Lane {
  Lane(const Matrices& matrices, std::int64_t tokens, bool batch_invariant, unsigned seed)
      : before(random_tensor(f32, {tokens, matrices.ordered.rows()}, seed)),
        rows(random_tensor(bf, {tokens, matrices.ordered.columns()}, seed + 1, 1.0F, {3, 1})),
        x(rows),
        gathered(matrices.in_order(rows)),
        y(before),
        replayed(before),
        expected(before) {
    stream.set_batch_invariant(batch_invariant);
    stream.reserve_ordered(Matrices::at(tokens_max * matrices.ordered.columns()) * size_of(bf));
  }
  cuda::Stream stream;
  TestTensor before, rows;
  DeviceTensor x, gathered, y, replayed, expected;
  std::optional<cuda::Graph> graph = {};
};

void check(const Matrices& matrices, std::int64_t tokens, bool batch_invariant) {
  CAPTURE(tokens);
  CAPTURE(batch_invariant);
  Lane lanes[] = {{matrices, tokens, batch_invariant, 5}, {matrices, tokens, batch_invariant, 8}};
  const auto op_of = [&](const Lane& lane, const Tensor& y) -> Linear {
    return {.x = lane.x, .weight = &matrices.ordered, .y = y, .scale = 0.7F, .add = true};
  };
  for (Lane& lane : lanes) cuda::linear(lane.stream, op_of(lane, lane.y));
  for (Lane& lane : lanes) {
    lane.graph.emplace(lane.stream, [&] { cuda::linear(lane.stream, op_of(lane, lane.replayed)); });
  }
  for (Lane& lane : lanes) lane.graph->replay(lane.stream);
  for (Lane& lane : lanes) {
    cuda::linear(lane.stream, {.x = lane.gathered,
                               .weight = &matrices.plain,
                               .y = lane.expected,
                               .scale = 0.7F,
                               .add = true});
  }
  for (Lane& lane : lanes) {
    lane.stream.wait();
    const TestTensor expected = lane.expected.fetch();
    CHECK(!same_bytes(expected, lane.before));
    CHECK(same_bytes(lane.y.fetch(), expected));
    CHECK(same_bytes(lane.replayed.fetch(), expected));
    CHECK(lane.x.fetch().everything() == lane.rows.everything());
  }
}

constexpr CodedFormat usual = groups_of(DType::u8, DType::f16, true, 128);

}  // namespace

TEST_SUITE("cuda/input_order") {
  TEST_CASE("1 to 70 rows on two streams, at once and from graphs: the bits of sorted columns") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    const Matrices matrices(card, usual, 20, 256, 3);
    for (std::int64_t tokens = 1; tokens <= tokens_max; ++tokens) {
      check(matrices, tokens, tokens % 2 == 0);
    }
  }

  TEST_CASE("every kind of groups, under every schedule") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    for (const CodedFormat& format : group_formats) {
      CAPTURE(format.column_block);
      const Matrices matrices(card, format, 71, format.width(1120), 4);
      in_every_schedule([&](const std::string& schedule) {
        CAPTURE(schedule);
        for (const std::int64_t tokens : {1, 9, 70}) {
          for (const bool batch_invariant : {false, true}) check(matrices, tokens, batch_invariant);
        }
      });
    }
  }

  TEST_CASE("a norm before it is not taken into its own load of x, and an activation comes after") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    const Matrices matrices(card, usual, 24, 256, 3);
    for (const std::int64_t tokens : {1, 4, 30}) {
      const DeviceTensor x(random_tensor(bf, {tokens, 256}, 6)), norm(random_tensor(f32, {256}, 8)),
          normed(TestTensor(bf, {tokens, 256})), expected_normed(TestTensor(bf, {tokens, 256})),
          room(TestTensor(bf, {tokens, 24})), product(TestTensor(bf, {tokens, 24})),
          y(TestTensor(bf, {tokens, 12})), expected(TestTensor(bf, {tokens, 12}));
      cuda::Stream stream;
      const Project op = {.x = x,
                          .norm = {.weight = norm, .eps = 1e-5F},
                          .weight = &matrices.ordered,
                          .y = y,
                          .activation = all_activations[0],
                          .keep_normed = true,
                          .normed = normed,
                          .product = room};
      CHECK_THROWS_AS(cuda::project(stream, op), Error);  // there is no room for ordered rows
      stream.reserve_ordered(tokens_max * 256 * size_of(bf));
      cuda::project(stream, op);
      cuda::rms_norm(stream, {.x = x, .weight = norm, .y = expected_normed, .eps = 1e-5F});
      stream.wait();
      CHECK(same_bytes(normed.fetch(), expected_normed.fetch()));
      const DeviceTensor gathered(matrices.in_order(expected_normed.fetch()));
      cuda::linear(stream, {.x = gathered, .weight = &matrices.plain, .y = product});
      cuda::gated_activation(stream,
                             {.x = product, .y = expected, .activation = all_activations[0]});
      stream.wait();
      CHECK(same_bytes(y.fetch(), expected.fetch()));
    }
  }

  TEST_CASE("rows in several orders are parts, those in one order share it") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    const Matrices a(card, usual, 24, 256, 3), b(card, usual, 24, 256, 4);
    WeightSource all(1, 72, 256);
    for (const Matrices* each : {&a, &a, &b}) all.append(each->shuffled.source, 0, 24);
    const Weight weight = Weight::pack(card, all, bf);
    REQUIRE(weight.parts().size() == 2);
    CHECK(weight.parts()[0].rows() == 48);
    const DeviceTensor x(random_tensor(bf, {9, 256}, 6)), y(TestTensor(f32, {9, 72})),
        expected(TestTensor(f32, {9, 72}));
    card.reserve_ordered(tokens_max * 256 * size_of(bf));
    linear(card, {.x = x, .weight = &weight, .y = y});
    for (std::int64_t i = 0; i < 3; ++i) {
      linear(card, {.x = x,
                    .weight = i < 2 ? &a.ordered : &b.ordered,
                    .y = Tensor(expected).columns(i * 24, 24)});
    }
    card.stream().wait();
    CHECK(same_bytes(y.fetch(), expected.fetch()));
  }

  TEST_CASE("experts, single rows and rows in two orders of one expert are as if they were bf16") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    for (const auto& [experts, rows] : {std::pair{2, 32}, {1, 1}}) {
      GroupedMatrix matrix(DType::u8, DType::bf16, false, 32, experts, rows, 64, 3);
      CHECK(Weight::pack(card, matrix.source, bf).code() == WeightCode::groups);
      matrix.shuffle(1);
      CHECK(Weight::pack(card, matrix.source, bf).code() == WeightCode::plain);
    }
  }

  TEST_CASE("a shared expert beside experts, of few tokens and of many: the plain loops' block") {
    constexpr std::int64_t experts = 4, hidden = 256, inner = 128;
    const PublishedMatrix router(bf, 1, experts, hidden, 1, hidden, 3),
        gate_up(bf, experts, 2 * inner, hidden, 1, hidden, 4),
        down(bf, experts, hidden, inner, 1, inner, 5);
    GroupedMatrix shared_gate_up(DType::u8, DType::f16, true, 128, 1, 2 * inner, hidden, 6),
        shared_down(DType::u8, DType::f16, true, 32, 1, hidden, inner, 7);
    shared_gate_up.shuffle(8);
    shared_down.shuffle(9);
    const auto run = [&](Queue& queue, const Tensor& y, const Tensor& norm) {
      const auto pack = [&](const auto& matrix) { return Weight::pack(queue, matrix.source, bf); };
      const Weight to_logits = pack(router), up = pack(gate_up), back = pack(down),
                   shared_up = pack(shared_gate_up), shared_back = pack(shared_down);
      CHECK(!shared_up.order(0).empty());
      CHECK(!shared_back.order(0).empty());
      FusedMoe op = {.x = y,
                     .norm = {.weight = norm},
                     .router = &to_logits,
                     .gate_up = &up,
                     .down = &back,
                     .shared_gate_up = &shared_up,
                     .shared_down = &shared_back,
                     .active = 2,
                     .activation = gated_silu,
                     .y = y};
      const Buffer room(queue.device(), moe_workspace_bytes(queue.device(), shape_of(op)));
      op.workspace = room.tensor(0, DType::u8, {static_cast<std::int64_t>(room.bytes())});
      fused_moe(queue, op);
      wait(queue);
    };
    for (const std::int64_t tokens : {2, 40}) {
      CAPTURE(tokens);
      Queue here = test_queue(Isa::plain), card(Device::cuda, {.threads = 1, .isa = {}});
      card.reserve_ordered(Matrices::at(tokens * hidden) * size_of(bf));
      const TestTensor x = random_tensor(bf, {tokens, hidden}, 10),
                       norm = random_tensor(f32, {hidden}, 11);
      const TestTensor expected = x;
      const DeviceTensor y(x), on_norm(norm);
      run(here, expected, norm);
      run(card, y, on_norm);
      const TestTensor answer = y.fetch();
      double largest = 0;
      for (std::int64_t i = 0; i < x.size(); ++i) {
        largest = std::max(largest, std::fabs(double{expected.get(i)} - x.get(i)));
      }
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const double error = std::fabs(double{answer.get(i)} - expected.get(i));
        REQUIRE(error <= 0x1p-7 * (std::fabs(expected.get(i)) + largest));
      }
    }
  }

  TEST_CASE("embed gives the numbers of columns in an order, bit for bit") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    const Matrices matrices(card, usual, 9, 256, 3);
    const DeviceTable tokens(std::vector<std::int32_t>{8, 0, 7});
    const DeviceTensor y(TestTensor(f32, {3, 256})), sorted(TestTensor(f32, {3, 256}));
    cuda::Stream stream;
    cuda::embed(stream, {.weight = &matrices.ordered, .tokens = tokens, .y = y});
    cuda::embed(stream, {.weight = &matrices.plain, .tokens = tokens, .y = sorted});
    stream.wait();
    const TestTensor answer = y.fetch(), expected = sorted.fetch();
    for (std::int64_t i = 0; i < 3 * 256; ++i) {
      const std::int32_t column = matrices.order[Matrices::at(i % 256)];
      REQUIRE(answer.get(i / 256 * 256 + column) == expected.get(i));
    }
  }
}

}  // namespace cuda_input_order_test
