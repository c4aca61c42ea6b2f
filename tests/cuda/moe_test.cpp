#include <limits>
#include <memory>
#include <optional>
#include <span>

#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/cuda/staging.h"
#include "tests/cuda/support.h"
#include "tests/kernels/linear/coded_weights.h"
#include "tests/kernels/ops/moe_case.h"

namespace cuda_moe_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

enum class Experts { any, one, spread };  ///< which ones the router's bias prefers

struct Case {
  MoeCase block;
  DType dtype = DType::bf16, weights = DType::bf16;
  Experts preferred = Experts::any;
  Strides strides = {};
  std::optional<CodedFormat> format = {};  ///< of all weights but the router and the gate
  std::optional<CodedFormat> down_format = {}, shared_format = {};  ///< the latter: none, format
};

using Score = Routing::Score;
constexpr DType f32 = DType::f32, bf16_type = DType::bf16;
const Routing normal = {.score = Score::softmax, .renormalize = true},
              sigmoid = {.score = Score::sigmoid, .renormalize = true, .scale = 2.5F},
              grouped = {.score = Score::sigmoid,
                         .renormalize = true,
                         .renormalize_epsilon = 1e-20F,
                         .groups = 5,
                         .active_groups = 3},
              narrow = {.score = Score::sigmoid, .groups = 4, .active_groups = 1};

const Case few_tokens[] = {
    {.block = {.tokens = 1,
               .hidden = 136,
               .experts = 40,
               .active = 3,
               .intermediate = 48,
               .shared = 24,
               .routing = sigmoid,
               .has_bias = true}},
    {.block = {.tokens = 3,
               .hidden = 64,
               .experts = 6,
               .active = 6,
               .intermediate = 8,
               .activation = plain_relu2,
               .routing = sigmoid,
               .has_bias = true},
     .strides = {8, 0}},
    {.block = {.tokens = 9,
               .hidden = 72,
               .experts = 20,
               .active = 2,
               .intermediate = 280,
               .shared = 264,
               .routing = sigmoid,
               .has_bias = true},
     .preferred = Experts::spread},
    {.block = {.tokens = 16,
               .hidden = 200,
               .experts = 5,
               .active = 2,
               .intermediate = 40,
               .shared = 24,
               .activation = plain_relu2,
               .routing = sigmoid,
               .has_bias = true},
     .preferred = Experts::one,
     .strides = {16, 8}},
    {.block = {.tokens = 2,
               .hidden = 72,
               .experts = 48,
               .active = 10,
               .intermediate = 16,
               .shared = 56,
               .routing = normal,
               .has_shared_gate = true}},
    {.block = {.tokens = 5,
               .hidden = 136,
               .experts = 16,
               .active = 6,
               .intermediate = 40,
               .shared = 72,
               .activation = plain_relu2,
               .routing = sigmoid,
               .has_bias = true,
               .router_is_f32 = true,
               .scale = 0.5F}},
    {.block = {.tokens = 13,
               .hidden = 576,
               .experts = 17,
               .active = 2,
               .intermediate = 24,
               .shared = 40,
               .has_shared_gate = true,
               .router_is_f32 = true,
               .shared_gate_is_f32 = true}},
    {.block = {.tokens = 16,
               .hidden = 64,
               .experts = 40,
               .active = 22,
               .intermediate = 24,
               .shared = 88,
               .activation = plain_relu2,
               .routing = grouped,
               .has_bias = true,
               .latent = 24,
               .scale = 0.8F}},
    {.block = {.tokens = 11,
               .hidden = 64,
               .experts = 8,
               .active = 2,
               .intermediate = 16,
               .shared = 264,
               .routing = narrow,
               .has_shared_gate = true,
               .latent = 272}},
    {.block = {.tokens = 1,
               .hidden = 40,
               .experts = 8,
               .active = 3,
               .intermediate = 24,
               .activation = plain_relu2,
               .latent = 16}},
    {.block = {.tokens = 3,
               .hidden = 64,
               .experts = 6,
               .active = 2,
               .intermediate = 24,
               .shared = 16,
               .activation = gated_relu2,
               .routing = sigmoid}},
    {.block = {.tokens = 3,
               .hidden = 64,
               .experts = 6,
               .active = 2,
               .intermediate = 24,
               .shared = 16,
               .activation = plain_silu,
               .routing = sigmoid}},
    {.block = {.tokens = 3,
               .hidden = 64,
               .experts = 6,
               .active = 2,
               .intermediate = 24,
               .shared = 16,
               .activation = gated_gelu,
               .routing = sigmoid}},
    {.block = {.tokens = 4,
               .hidden = 64,
               .experts = 8,
               .active = 4,
               .intermediate = 280,
               .activation = clamped_swiglu,
               .has_biases = true}},
    {.block = {.tokens = 11,
               .hidden = 72,
               .experts = 8,
               .active = 2,
               .intermediate = 24,
               .shared = 16,
               .activation = plain_gelu,
               .routing = sigmoid,
               .router_is_f32 = true,
               .latent = 40,
               .has_biases = true}},
    {.block = {.tokens = 2,
               .hidden = 72,
               .experts = 40,
               .active = 6,
               .intermediate = 248,
               .activation = plain_relu2,
               .routing = sigmoid}},  // more groups of rows than blocks
    {.block = {.tokens = 2,
               .hidden = 2128,
               .experts = 4,
               .active = 2,
               .intermediate = 24,
               .shared = 40,
               .routing = sigmoid,
               .scale = 0.5F}},  // y in blocks of four warps
    {.block = {.tokens = 3,
               .hidden = 64,
               .experts = 6,
               .active = 1,
               .intermediate = 24,
               .shared = 16,
               .routing = {.score = Score::sigmoid},
               .weighs_input = true}},
};
const Case many_tokens[] = {
    {.block = {.tokens = 37,
               .hidden = 72,
               .experts = 10,
               .active = 2,
               .intermediate = 40,
               .shared = 24,
               .routing = sigmoid,
               .has_bias = true},
     .preferred = Experts::one,
     .strides = {8, 8}},
    {.block = {.tokens = 60,
               .hidden = 40,
               .experts = 3,
               .active = 3,
               .intermediate = 72,
               .activation = plain_relu2,
               .routing = sigmoid}},
    {.block = {.tokens = 70,
               .hidden = 40,
               .experts = 1,
               .active = 1,
               .intermediate = 24,
               .shared = 8,
               .routing = sigmoid}},
    {.block = {.tokens = 140,
               .hidden = 32,
               .experts = 1,
               .active = 1,
               .intermediate = 24,
               .routing = sigmoid}},
    {.block = {.tokens = 35,
               .hidden = 136,
               .experts = 20,
               .active = 3,
               .intermediate = 16,
               .shared = 24,
               .routing = normal,
               .has_shared_gate = true,
               .router_is_f32 = true}},
    {.block = {.tokens = 40,
               .hidden = 64,
               .experts = 40,
               .active = 22,
               .intermediate = 24,
               .shared = 88,
               .activation = plain_relu2,
               .routing = grouped,
               .has_bias = true,
               .latent = 24,
               .scale = 0.8F}},
    {.block = {.tokens = 6,
               .hidden = 64,
               .experts = 8,
               .active = 2,
               .intermediate = 16,
               .shared = 40,
               .routing = narrow,
               .has_shared_gate = true,
               .router_is_f32 = true,
               .latent = 48}},  // a router of f32, a gate of bf16
    {.block = {.tokens = 20,
               .hidden = 64,
               .experts = 12,
               .active = 3,
               .intermediate = 24,
               .shared = 16,
               .routing = narrow,
               .has_shared_gate = true,
               .latent = 40}},
    {.block = {.tokens = 40,
               .hidden = 64,
               .experts = 6,
               .active = 2,
               .intermediate = 24,
               .shared = 16,
               .activation = gated_relu2,
               .routing = sigmoid}},
    {.block = {.tokens = 40,
               .hidden = 64,
               .experts = 6,
               .active = 2,
               .intermediate = 24,
               .shared = 16,
               .activation = plain_silu,
               .routing = sigmoid}},
    {.block = {.tokens = 40,
               .hidden = 64,
               .experts = 6,
               .active = 2,
               .intermediate = 24,
               .shared = 16,
               .activation = plain_gelu,
               .routing = sigmoid}},
    {.block = {.tokens = 40,
               .hidden = 64,
               .experts = 6,
               .active = 4,
               .intermediate = 24,
               .activation = clamped_swiglu,
               .has_biases = true}},
    {.block = {.tokens = 40,
               .hidden = 64,
               .experts = 6,
               .active = 2,
               .intermediate = 24,
               .activation = plain_gelu,
               .router_is_f32 = true,
               .has_biases = true}},
    {.block = {.tokens = 40,
               .hidden = 72,
               .experts = 6,
               .active = 1,
               .intermediate = 24,
               .shared = 16,
               .routing = {.score = Score::sigmoid},
               .weighs_input = true}},
};
const Case any_size[] = {
    {.block = {.tokens = 5,
               .hidden = 30,
               .experts = 7,
               .active = 2,
               .intermediate = 9,
               .shared = 11,
               .routing = sigmoid},
     .strides = {1, 1}},
    {.block = {.tokens = 20,
               .hidden = 24,
               .experts = 4,
               .active = 2,
               .intermediate = 16,
               .shared = 8,
               .activation = plain_relu2,
               .routing = sigmoid,
               .has_bias = true},
     .dtype = f32,
     .weights = f32,
     .preferred = Experts::spread},
    {.block = {.tokens = 2,
               .hidden = 33,
               .experts = 5,
               .active = 5,
               .intermediate = 10,
               .routing = sigmoid,
               .has_bias = true},
     .dtype = f32,
     .preferred = Experts::one,
     .strides = {3, 1}},
    {.block = {.tokens = 3,
               .hidden = 40,
               .experts = 5,
               .active = 2,
               .intermediate = 9,
               .shared = 7,
               .routing = normal,
               .has_shared_gate = true},
     .dtype = f32,
     .weights = DType::f16},
    {.block = {.tokens = 3,
               .hidden = 30,
               .experts = 8,
               .active = 2,
               .intermediate = 11,
               .shared = 7,
               .routing = narrow,
               .has_shared_gate = true,
               .router_is_f32 = true,
               .latent = 13,
               .scale = 0.5F}},
    {.block = {.tokens = 4,
               .hidden = 40,
               .experts = 8,
               .active = 2,
               .intermediate = 12,
               .shared = 7,
               .activation = plain_relu2,
               .routing = normal,
               .has_shared_gate = true,
               .latent = 9},
     .dtype = f32,
     .weights = f32,
     .strides = {1, 0}},
    {.block = {.tokens = 3,
               .hidden = 33,
               .experts = 6,
               .active = 2,
               .intermediate = 9,
               .shared = 16,
               .activation = gated_relu2,
               .routing = sigmoid}},
    {.block = {.tokens = 3,
               .hidden = 33,
               .experts = 6,
               .active = 2,
               .intermediate = 9,
               .shared = 16,
               .activation = plain_silu,
               .routing = sigmoid}},
    {.block = {.tokens = 3,
               .hidden = 33,
               .experts = 6,
               .active = 4,
               .intermediate = 9,
               .activation = clamped_swiglu,
               .has_biases = true}},
    {.block = {.tokens = 3,
               .hidden = 33,
               .experts = 6,
               .active = 1,
               .intermediate = 9,
               .shared = 16,
               .routing = {.score = Score::sigmoid},
               .weighs_input = true},
     .dtype = f32},
};

/// Experts in codes, in shapes that fill neither chunks nor tiles.
Case coded_case(const CodedFormat& format, std::int64_t tokens) {
  return {.block = {.tokens = tokens,
                    .hidden = format.width(136),
                    .experts = 6,
                    .active = 2,
                    .intermediate = format.width(72),
                    .shared = format.width(40),
                    .routing = normal,
                    .has_shared_gate = true},
          .format = format,
          .down_format = format};
}
Case latent_case(const CodedFormat& format, std::int64_t tokens) {
  return {.block = {.tokens = tokens,
                    .hidden = format.width(72),
                    .experts = 20,
                    .active = 5,
                    .intermediate = format.width(136),
                    .shared = format.width(88),
                    .activation = plain_relu2,
                    .routing = grouped,
                    .has_bias = true,
                    .router_is_f32 = true,
                    .latent = format.width(280),
                    .scale = 0.8F},
          .format = format,
          .down_format = format};
}

const MoeMatrix none(DType::bf16, 0, 0, 0, 0);

/// A weight in rows on the device, and as it was published; or both in codes.
struct OnDevice {
  OnDevice(const MoeMatrix& matrix, const std::optional<CodedFormat>& format)
      : OnDevice(format ? none : matrix) {
    if (!format || !matrix.is_there()) return;
    Queue here = test_queue(Isa::plain), card(Device::cuda, {.threads = 1, .isa = {}});
    const WeightSource& shape = matrix.source;
    const auto pack = [&](Queue& on) {
      return CodedMatrix(on, *format, shape.experts, shape.rows, shape.columns, matrix.seed).weight;
    };
    host = pack(here);
    device = pack(card);
    card.stream().wait();
  }
  explicit OnDevice(const MoeMatrix& matrix) : bytes(cuda::make_device(matrix.bytes.size())) {
    if (!matrix.is_there()) return;
    copy_to_card(bytes.get(), matrix.bytes);
    host = Weight::view(matrix.source);
    const WeightSource& source = matrix.source;
    device = Weight::view({matrix.dtype,
                           source.experts,
                           source.rows,
                           source.columns,
                           {bytes.get(), matrix.bytes.size()}});
  }
  const Weight* on(Device where) const {
    const Weight& weight = where == Device::cuda ? device : host;
    return weight.rows() > 0 ? &weight : nullptr;
  }
  cuda::DeviceBytes bytes;
  Weight host, device;
};

struct Block {
  explicit Block(const Case& the_case)
      : c(the_case),
        numbers(c.block, c.dtype, c.weights),
        router(numbers.router),
        gate_up(numbers.gate_up, c.format),
        down(numbers.down, c.down_format),
        shared_gate_up(numbers.shared_gate_up, c.shared_format ? c.shared_format : c.format),
        shared_down(numbers.shared_down, c.shared_format ? c.shared_format : c.format),
        shared_gate(numbers.shared_gate),
        latent_in(numbers.latent_in, c.format),
        latent_out(numbers.latent_out, c.format),
        bias(bias_of(numbers)),
        on_bias(bias),
        on_router_bias(numbers.router_bias),
        on_gate_up_bias(numbers.gate_up_bias),
        on_down_bias(numbers.down_bias),
        on_norm(numbers.norm) {}

  TestTensor bias_of(const MoeNumbers& from) const {
    TestTensor to = from.bias;
    for (std::int64_t e = 0; e < c.block.experts && c.preferred != Experts::any; ++e) {
      const bool is_one = c.preferred == Experts::one && e == c.block.experts / 2;
      to.set(e, is_one ? 9.0F : c.preferred == Experts::spread && e % 3 == 1 ? 2.0F : 0.0F);
    }
    return to;
  }

  /// The op but for its rows and its workspace.
  FusedMoe op(Device where) const {
    const bool is_here = where == Device::cpu;
    const auto bias_of_block = [&](const TestTensor& here, const DeviceTensor& there) {
      return !c.block.has_biases ? Tensor() : is_here ? Tensor(here) : Tensor(there);
    };
    return {.x = {},
            .norm = {.weight = is_here ? Tensor(numbers.norm) : Tensor(on_norm),
                     .eps = 1e-5F,
                     .one_plus = c.block.active == 2},
            .router = router.on(where),
            .gate_up = gate_up.on(where),
            .down = down.on(where),
            .shared_gate_up = shared_gate_up.on(where),
            .shared_down = shared_down.on(where),
            .bias = !c.block.has_bias ? Tensor()
                    : is_here         ? Tensor(bias)
                                      : Tensor(on_bias),
            .routing = c.block.routing,
            .active = c.block.active,
            .activation = c.block.activation,
            .y = {},
            .scale = c.block.scale,
            .shared_gate = shared_gate.on(where),
            .latent_in = latent_in.on(where),
            .latent_out = latent_out.on(where),
            .router_bias = bias_of_block(numbers.router_bias, on_router_bias),
            .gate_up_bias = bias_of_block(numbers.gate_up_bias, on_gate_up_bias),
            .down_bias = bias_of_block(numbers.down_bias, on_down_bias)};
  }

  MoeShape shape() const {
    MoeShape shape = c.block.shape(c.dtype);
    shape.router_dtype = numbers.router.dtype;
    return shape;
  }

  TestTensor rows(std::uint32_t seed) const {
    return random_tensor(c.dtype, {c.block.tokens, c.block.hidden}, seed, 1.0F, c.strides);
  }

  TestTensor by_plain_loops(const TestTensor& x) const {
    return by_plain_loops(x, shared_gate.on(Device::cpu));
  }
  /// With another gate of the shared expert.
  TestTensor by_plain_loops(const TestTensor& x, const Weight* gate) const {
    Queue plain = test_queue(Isa::plain);
    TestTensor y = x;
    std::vector<std::byte> room(moe_workspace_bytes(Device::cpu, shape()));
    FusedMoe on_host = op(Device::cpu);
    on_host.x = on_host.y = y;
    on_host.shared_gate = gate;
    on_host.workspace = {room.data(), DType::u8, {std::ssize(room)}};
    fused_moe(plain, on_host);
    return y;
  }

  Case c;
  MoeNumbers numbers;
  OnDevice router, gate_up, down, shared_gate_up, shared_down, shared_gate, latent_in, latent_out;
  TestTensor bias;
  DeviceTensor on_bias, on_router_bias, on_gate_up_bias, on_down_bias, on_norm;
};

/// Its workspace, of just the right size, with guards after it.
struct Room {
  static constexpr std::size_t guard_bytes = 64;
  explicit Room(std::size_t size) : bytes(size), on_device(cuda::make_device(size + guard_bytes)) {
    fill_card(on_device.get(), 0, size);
    fill_card(on_device.get() + size, 0x5a, guard_bytes);
  }
  Tensor view() const { return {on_device.get(), DType::u8, {static_cast<std::int64_t>(bytes)}}; }
  bool guards_intact() const {
    std::vector<std::byte> guards(guard_bytes);
    cuda::check(
        cudaMemcpy(guards.data(), on_device.get() + bytes, guard_bytes, cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    return guards == std::vector<std::byte>(guard_bytes, std::byte{0x5a});
  }
  std::size_t bytes;
  cuda::DeviceBytes on_device;
};

/// Within some roundings of what the block adds to the residual stream.
void check_close(const Case& c, const TestTensor& x, const TestTensor& expected,
                 const TestTensor& answer) {
  double largest = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::fabs(double{expected.get(i)} - x.get(i)));
  }
  const double rounding = c.dtype == bf16_type ? 0x1p-7 : 0x1p-19;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double error = std::fabs(double{answer.get(i)} - expected.get(i));
    REQUIRE(error <= rounding * (std::fabs(expected.get(i)) + largest));
  }
  CHECK(answer.guards_intact());
}

/// What the plain loops say to two inputs.
struct Expected {
  explicit Expected(const Case& c)
      : block(c),
        first(block.rows(7)),
        second(block.rows(8)),
        to_first(block.by_plain_loops(first)),
        to_second(block.by_plain_loops(second)) {}
  Block block;
  TestTensor first, second, to_first, to_second;
};

void check_case(const Expected& expected, bool batch_invariant = false) {
  const Case& c = expected.block.c;
  CAPTURE(c.block.tokens);
  CAPTURE(c.block.hidden);
  CAPTURE(c.block.experts);
  const Room room(cuda::moe_workspace_bytes(expected.block.shape()));
  DeviceTensor y(expected.first);
  cuda::Stream stream;
  stream.set_batch_invariant(batch_invariant);
  FusedMoe op = expected.block.op(Device::cuda);
  op.x = op.y = y;
  op.workspace = room.view();
  const cuda::Graph graph(stream, [&] { cuda::fused_moe(stream, op); });
  const auto answer_to = [&](const TestTensor& x) {
    y.set(x);
    graph.replay(stream);
    stream.wait();
    return y.fetch();
  };
  const TestTensor answer = answer_to(expected.first);
  check_close(c, expected.first, expected.to_first, answer);
  check_close(c, expected.second, expected.to_second, answer_to(expected.second));
  CHECK(answer_to(expected.first).everything() == answer.everything());
  // Once more without a graph, by fewer rows: room and semaphores are clean again.
  op.x = op.y = Tensor(y).rows(0, 1);
  cuda::fused_moe(stream, op);
  stream.wait();
  CHECK(y.fetch().guards_intact());
  CHECK(room.guards_intact());
}

void check_cases(std::span<const Case> cases) {
  std::vector<std::unique_ptr<Expected>> all;
  for (const Case& c : cases) all.push_back(std::make_unique<Expected>(c));
  in_every_schedule([&](const std::string& schedule) {
    CAPTURE(schedule);
    for (const auto& expected : all) check_case(*expected);
  });
}

/// The answer to the last `count` rows of x, and the rows before them as they were.
TestTensor answer_to_last(cuda::Stream& stream, const Block& block, const TestTensor& x,
                          std::int64_t count, const Room& room) {
  DeviceTensor y(x);
  FusedMoe op = block.op(Device::cuda);
  op.x = op.y = Tensor(y).rows(block.c.block.tokens - count, count);
  op.workspace = room.view();
  cuda::fused_moe(stream, op);
  stream.wait();
  return y.fetch();
}

/// A row alone, among others, and in another order: the same bits.
void check_invariance(const Case& c) {
  CAPTURE(c.block.tokens);
  CAPTURE(c.block.experts);
  const Block block(c);
  const Room room(cuda::moe_workspace_bytes(block.shape()));
  const TestTensor x = block.rows(9);
  cuda::Stream stream;
  stream.set_batch_invariant(true);
  const TestTensor together = answer_to_last(stream, block, x, c.block.tokens, room);
  for (const std::int64_t count : {1, 3, 5, 8, 17, 64}) {
    if (count > c.block.tokens) break;
    const TestTensor alone = answer_to_last(stream, block, x, count, room);
    const std::int64_t begin = (c.block.tokens - count) * c.block.hidden;
    for (std::int64_t i = begin; i < x.size(); ++i) REQUIRE(alone.get(i) == together.get(i));
  }
}

/// Rows of no token may hold anything: the others' answers stay good.
void check_padding(const Case& c) {
  CAPTURE(c.block.tokens);
  const Block block(c);
  const Room room(cuda::moe_workspace_bytes(block.shape()));
  const TestTensor whole = block.rows(10);
  TestTensor x = whole;
  const std::int64_t real = (c.block.tokens - 2) * c.block.hidden;
  for (std::int64_t i = real; i < x.size(); ++i) x.set(i, i % 2 == 0 ? NAN : INFINITY);
  cuda::Stream stream;
  TestTensor answer = answer_to_last(stream, block, x, c.block.tokens, room);
  CHECK(room.guards_intact());
  const TestTensor expected = block.by_plain_loops(whole);
  for (std::int64_t i = real; i < x.size(); ++i) answer.set(i, expected.get(i));
  check_close(c, whole, expected, answer);
}

/// The shared expert's gate may have codes, as published ones may.
void check_coded_gate(const Case& c, WeightCode code) {
  CAPTURE(kernels::testing::name_of(code));
  const Block block(c);
  const Room room(cuda::moe_workspace_bytes(block.shape()));
  const TestTensor x = block.rows(12);
  Queue plain = test_queue(Isa::plain), card(Device::cuda, {.threads = 1, .isa = {}});
  const CodedMatrix host(plain, code, 1, 1, c.block.hidden, 13),
      device(card, code, 1, 1, c.block.hidden, 13);
  card.stream().wait();
  cuda::Stream stream;
  const DeviceTensor y(x);
  FusedMoe op = block.op(Device::cuda);
  op.x = op.y = y;
  op.workspace = room.view();
  op.shared_gate = &device.weight;
  cuda::fused_moe(stream, op);
  stream.wait();
  check_close(c, x, block.by_plain_loops(x, &host.weight), y.fetch());
}

TEST_SUITE("cuda/moe") {
  TEST_CASE("few tokens: the plain loops' block, replayed, however tokens meet experts") {
    check_cases(few_tokens);
  }
  TEST_CASE("many tokens: the plain loops' block, replayed, however tokens meet experts") {
    check_cases(many_tokens);
  }
  TEST_CASE("any size and type: the plain loops' block, replayed") { check_cases(any_size); }

  TEST_CASE("a router reads rows of its own, experts have factors, and an answer replaces y") {
    for (const auto& [tokens, dtype] : {std::pair{3, bf16_type}, {40, bf16_type}, {5, f32}}) {
      CAPTURE(tokens);
      const Case c = {.block = {.tokens = tokens,
                                .hidden = 72,
                                .experts = 6,
                                .active = 2,
                                .intermediate = 24,
                                .activation = gated_gelu,
                                .routing = normal},
                      .dtype = dtype,
                      .weights = dtype};
      const Block block(c);
      const TestTensor x = block.rows(21), router_x = block.rows(22);
      const TestTensor scale = random_tensor(DType::f32, {6}, 23);
      TestTensor y = x;
      for (std::int64_t i = 0; i < y.size(); ++i) y.set(i, NAN);
      const DeviceTensor on_x(x), on_router_x(router_x), on_scale(scale), on_y(y);
      Queue plain = test_queue(Isa::plain);
      std::vector<std::byte> bytes(moe_workspace_bytes(Device::cpu, block.shape()));
      const Room room(cuda::moe_workspace_bytes(block.shape()));
      cuda::Stream stream;
      FusedMoe here = block.op(Device::cpu), there = block.op(Device::cuda);
      here.x = x;
      here.y = y;
      here.router_x = router_x;
      here.expert_scale = scale;
      here.workspace = {bytes.data(), DType::u8, {std::ssize(bytes)}};
      here.add = there.add = false;
      there.x = on_x;
      there.y = on_y;
      there.router_x = on_router_x;
      there.expert_scale = on_scale;
      there.workspace = room.view();
      fused_moe(plain, here);
      cuda::fused_moe(stream, there);
      stream.wait();
      const TestTensor answer = on_y.fetch();
      CHECK(answer.guards_intact());
      CHECK(room.guards_intact());
      CHECK(largest_error(answer, y, 0.1) <= (dtype == f32 ? 3e-5 : 0.06));
    }
  }

  TEST_CASE("a function that no kernel knows is refused, not run as another") {
    for (const Case& c : {few_tokens[0], many_tokens[0], any_size[0]}) {
      const Block block(c);
      const Room room(cuda::moe_workspace_bytes(block.shape()));
      const DeviceTensor y(block.rows(9));
      cuda::Stream stream;
      FusedMoe op = block.op(Device::cuda);
      op.x = op.y = y;
      op.workspace = room.view();
      op.activation = unknown_activation;
      CHECK_THROWS_WITH_AS(cuda::fused_moe(stream, op),
                           "fused_moe: the activation's function exists, got 99", Error);
    }
  }

  TEST_CASE("experts in codes: the plain loops' block for every format and number of rows") {
    for (const CodedFormat& format : formats_on_cards()) {
      for (const std::int64_t tokens : row_counts(format)) {
        const Expected expected(coded_case(format, tokens));
        check_case(expected);
        if (tokens == 3) check_case(expected, true);
      }
      for (const auto n : few_row_counts(format)) check_case(Expected(latent_case(format, n)));
    }
  }

  TEST_CASE("experts in codes of several kinds, under several schedules") {
    Case c = coded_case({WeightCode::q8}, 9);
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      check_case(Expected(c));
    });
    check_case(Expected(latent_case({WeightCode::q4}, 37)));
    c.down_format = CodedFormat{WeightCode::q4};
    check_case(Expected(c));
    c = coded_case(blocks_of(GgufType::iq4_nl), 3);
    c.shared_format = blocks_of(GgufType::q4_1);
    check_case(Expected(c));
  }

  TEST_CASE("experts in codes, batch-invariant: a row's answer is its own") {
    for (const CodedFormat& format : all_formats) check_invariance(coded_case(format, 300));
  }

  TEST_CASE("a shared expert's gate in codes") {
    for (const WeightCode code : all_codes)
      for (const Case& c : {few_tokens[4], many_tokens[7]}) check_coded_gate(c, code);
  }

  TEST_CASE("batch-invariant: a row's answer is its own") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : {few_tokens[0], few_tokens[5], few_tokens[8], many_tokens[0]}) {
        check_invariance(c);
      }
    });
  }

  TEST_CASE("rows after the last token may hold anything") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : {few_tokens[4], few_tokens[8], many_tokens[7]}) check_padding(c);
    });
  }
}

using Score = Routing::Score;

struct RouteCase {
  std::int64_t tokens, experts, active;
  Routing routing = {};
  DType logits = DType::f32;
  bool bias = false;
};
const RouteCase route_cases[] = {
    {.tokens = 5, .experts = 64, .active = 6},
    {.tokens = 3,
     .experts = 97,
     .active = 10,
     .routing = {.score = Score::softmax, .renormalize = true}},
    {.tokens = 2,
     .experts = 128,
     .active = 6,
     .routing = {.score = Score::sigmoid,
                 .renormalize = true,
                 .renormalize_epsilon = 1e-20F,
                 .scale = 2.5F},
     .bias = true},
    {.tokens = 9,
     .experts = 8,
     .active = 8,
     .routing = {.score = Score::softmax, .scale = 0.5F},
     .logits = DType::bf16,
     .bias = true},
    {.tokens = 1, .experts = 1, .active = 1},
    {.tokens = 2, .experts = 33, .active = 33, .logits = DType::bf16},
    {.tokens = 1,
     .experts = 4096,
     .active = 40,
     .routing = {.score = Score::sigmoid},
     .bias = true},
    {.tokens = 6,
     .experts = 512,
     .active = 22,
     .routing = {.score = Score::sigmoid, .renormalize = true, .groups = 8, .active_groups = 4},
     .bias = true},
    {.tokens = 7, .experts = 64, .active = 2, .routing = {.groups = 32, .active_groups = 1}},
    {.tokens = 5,
     .experts = 96,
     .active = 64,
     .routing = {.score = Score::softmax, .groups = 3, .active_groups = 2},
     .logits = DType::bf16,
     .bias = true},
};

/// Few distinct values, so that experts are often as good as each other, and a token each with NaN,
/// infinities and zeros of both signs.
TestTensor logits_of(const RouteCase& c) {
  TestTensor logits(c.logits, {c.tokens, c.experts}, {3, 1});
  std::mt19937 random(3);
  const bool is_sparse = c.routing.score == Score::softmax_of_selected;
  for (std::int64_t i = 0; i < logits.size(); ++i) {
    const auto step = static_cast<float>(random() % (is_sparse ? 9 : 1000));
    logits.set(i, step / 250.0F - 2.0F);
  }
  const float odd[] = {NAN, -INFINITY, INFINITY, -0.0F, 0.0F};
  for (std::int64_t t = 1; t < c.tokens; ++t) {
    for (std::int64_t i = 0; i < 3; ++i) {
      logits.set(t * c.experts + (7 * i + t) % c.experts, odd[(t + i * (t > 2)) % 5]);
    }
  }
  return logits;
}

void check_case(const RouteCase& c) {
  CAPTURE(c.experts);
  const TestTensor logits = logits_of(c);
  auto bias = random_tensor(DType::f32, {c.experts}, 4, 0.25F);
  for (std::int64_t e = 0; e < c.experts; ++e) bias.set(e, std::round(bias.get(e) * 32) / 32);
  TestTensor chosen(DType::i32, {c.tokens, c.active}, {2, 1});
  TestTensor weights(DType::f32, {c.tokens, c.active}, {1, 2});
  const DeviceTensor on_logits(logits), on_bias(bias), on_chosen(chosen), on_weights(weights);
  Queue plain = test_queue(Isa::plain);
  moe_route(plain, {.logits = logits,
                    .bias = c.bias ? Tensor(bias) : Tensor(),
                    .chosen = chosen,
                    .weights = weights,
                    .routing = c.routing});

  cuda::Stream stream;
  const cuda::Graph graph(stream, [&] {
    cuda::moe_route(stream, {.logits = on_logits,
                             .bias = c.bias ? Tensor(on_bias) : Tensor(),
                             .chosen = on_chosen,
                             .weights = on_weights,
                             .routing = c.routing});
  });
  for (int replay = 0; replay < 2; ++replay) graph.replay(stream);
  stream.wait();
  CHECK(on_chosen.fetch().everything() == chosen.everything());
  const TestTensor answer = on_weights.fetch();
  CHECK(answer.guards_intact());
  const double bound = static_cast<double>(c.experts + 16) * 0x1p-22;
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    const double is = answer.get(i), expected = weights.get(i);
    REQUIRE(std::isnan(is) == std::isnan(expected));
    if (!std::isnan(is)) REQUIRE(std::fabs(is - expected) <= bound * std::fabs(expected));
  }
}

TEST_SUITE("cuda/moe_route") {
  TEST_CASE("chooses as the plain loop does, ties and lost numbers too, and weighs within bounds") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const RouteCase& c : route_cases) check_case(c);
    });
  }
}

}  // namespace

}  // namespace cuda_moe_test
