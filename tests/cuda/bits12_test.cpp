#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/routes.h"
#include "kernels/cuda/staging.h"
#include "kernels/floats.h"
#include "kernels/weight.h"
#include "tests/cuda/support.h"
#include "tests/kernels/ops/moe_case.h"

namespace cuda_bits12_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr DType f32 = DType::f32, bf = DType::bf16;

std::uint16_t trained(std::mt19937& engine) {
  return to_bf16(std::normal_distribution<float>(0.0F, 0.02F)(engine)).bits;
}

const std::uint16_t odd_bits[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x7f80, 0xff80, 0x7fc0,
                                  0xffc1, 0x7f81, 0x7f7f, 0x0080, 0xfeff, 0xffff};

/// Bits of weight (row, column), which never make more of a matrix of 300 rows a patch than pays.
struct Kind {
  const char* name;
  std::function<std::uint16_t(std::mt19937&, std::int64_t, std::int64_t)> bits;
};

const Kind kinds[] = {
    {"trained", [](std::mt19937& engine, std::int64_t, std::int64_t) { return trained(engine); }},
    {"odd ones among trained ones",
     [](std::mt19937& engine, std::int64_t, std::int64_t) {
       const bool is_odd = engine() % 600 == 0;
       return is_odd ? odd_bits[engine() % std::size(odd_bits)] : trained(engine);
     }},
    {"two rows whose odd and even columns are patches",
     [](std::mt19937& engine, std::int64_t row, std::int64_t column) {
       const bool is_patch = row % 300 == 7 + column % 2 * 13;
       return is_patch ? static_cast<std::uint16_t>(0x7f80U | engine()) : trained(engine);
     }},
    {"rows of one value, of zeros, of infinities, of denormals",
     [](std::mt19937& engine, std::int64_t row, std::int64_t) -> std::uint16_t {
       const auto sign = static_cast<std::uint16_t>(engine() & 0x8000U);
       if (row % 5 == 0) return 0xbf81;
       if (row % 5 == 1) return sign;
       if (row % 5 == 2) return static_cast<std::uint16_t>(sign | 0x7f80U);
       if (row % 5 == 3) return static_cast<std::uint16_t>(engine() & 0x807fU);
       return trained(engine);
     }},
    {"each row's own 16 exponents, all 256 of them",
     [](std::mt19937& engine, std::int64_t row, std::int64_t) {
       const unsigned exponent = static_cast<unsigned>(row) % 16 * 16 + engine() % 16;
       return static_cast<std::uint16_t>((engine() & 0x807fU) | exponent << 7);
     }},
};

struct Matrix {
  Matrix(const Kind& kind, std::int64_t experts, std::int64_t rows, std::int64_t columns,
         unsigned seed = 7)
      : bits(static_cast<std::size_t>(experts * rows * columns)),
        source(bf, experts, rows, columns, std::as_bytes(std::span(bits))) {
    std::mt19937 engine(seed);
    for (std::int64_t i = 0; i < std::ssize(bits); ++i) {
      bits[static_cast<std::size_t>(i)] = kind.bits(engine, i / columns, i % columns);
    }
  }

  std::vector<std::uint16_t> bits;
  WeightSource source;
};

/// A matrix on the emulator or card, plain and in 12 bits.
struct Pair {
  explicit Pair(const WeightSource& source)
      : card(Device::cuda, {.threads = 2, .isa = {}}),
        plain(Weight::pack(card, source, bf)),
        narrow(Weight::pack(card, source, bf, Quantize::bits12)) {
    card.stream().wait();
    CHECK(plain.code() == WeightCode::plain);
    CHECK(narrow.code() == WeightCode::bits12);
  }
  Queue card;
  Weight plain, narrow;
};

/// y = 0.7 * W * x of the weight's, added to what y is.
TestTensor product(const Weight& weight, std::int64_t tokens, DType type, bool batch_invariant) {
  const DeviceTensor x(random_tensor(bf, {tokens, weight.columns()}, 5, 1.0F, {8, 0})),
      y(random_tensor(type, {tokens, weight.rows()}, 6, 1.0F, {5, 1}));
  cuda::Stream stream;
  stream.set_batch_invariant(batch_invariant);
  cuda::linear(stream, {.x = x, .weight = &weight, .y = y, .scale = 0.7F, .add = true});
  stream.wait();
  return y.fetch();
}

/// The same bytes, but that a NaN may be any: a card makes one NaN of all, the emulator's additions
/// keep the bits of one of their operands.
bool same_numbers(const TestTensor& a, const TestTensor& b) {
  const auto bits = [](const TestTensor& tensor, std::int64_t i) {
    const float value = tensor.get(i);
    return std::isnan(value) ? 0x7fffffffU : std::bit_cast<std::uint32_t>(value);
  };
  for (std::int64_t i = 0; i < a.size(); ++i) {
    if (bits(a, i) != bits(b, i)) return false;
  }
  return a.size() == b.size() && a.guards_intact() && b.guards_intact();
}

void check_products(const Pair& weights, std::initializer_list<std::int64_t> rows) {
  for (const std::int64_t tokens : rows) {
    CAPTURE(tokens);
    for (const bool batch_invariant : {false, true}) {
      CAPTURE(batch_invariant);
      const DType type = tokens % 2 == 0 ? bf : f32;
      CHECK(same_numbers(product(weights.plain, tokens, type, batch_invariant),
                         product(weights.narrow, tokens, type, batch_invariant)));
    }
  }
}

/// A block of experts on x, whose weights but the router and the gate are packed by `quantize`.
TestTensor experts_answer(const MoeNumbers& numbers, Quantize quantize, bool batch_invariant) {
  Queue card(Device::cuda, {.threads = 1, .isa = {}});
  const auto pack = [&](const MoeMatrix& matrix, Quantize as) {
    if (!matrix.is_there()) return Weight();
    Weight weight = Weight::pack(card, matrix.source, matrix.dtype, as);
    if (as == Quantize::bits12) CHECK(weight.code() == WeightCode::bits12);
    return weight;
  };
  const auto is_there = [](const Weight& weight) { return weight.rows() > 0 ? &weight : nullptr; };
  const Weight router = pack(numbers.router, Quantize::none),
               shared_gate = pack(numbers.shared_gate, Quantize::none),
               gate_up = pack(numbers.gate_up, quantize), down = pack(numbers.down, quantize),
               shared_gate_up = pack(numbers.shared_gate_up, quantize),
               shared_down = pack(numbers.shared_down, quantize),
               latent_in = pack(numbers.latent_in, quantize),
               latent_out = pack(numbers.latent_out, quantize);
  card.stream().wait();
  const std::size_t bytes = cuda::moe_workspace_bytes(numbers.c.shape(bf));
  const cuda::DeviceBytes room = cuda::make_device(bytes);
  fill_card(room.get(), 0, bytes);
  const DeviceTensor x(numbers.x), norm(numbers.norm);
  cuda::Stream stream;
  stream.set_batch_invariant(batch_invariant);
  cuda::fused_moe(stream, {.x = x,
                           .norm = {.weight = norm, .eps = 1e-5F},
                           .router = &router,
                           .gate_up = &gate_up,
                           .down = &down,
                           .shared_gate_up = is_there(shared_gate_up),
                           .shared_down = is_there(shared_down),
                           .routing = numbers.c.routing,
                           .active = numbers.c.active,
                           .activation = numbers.c.activation,
                           .y = x,
                           .workspace = {room.get(), DType::u8, {static_cast<std::int64_t>(bytes)}},
                           .shared_gate = is_there(shared_gate),
                           .latent_in = is_there(latent_in),
                           .latent_out = is_there(latent_out)});
  stream.wait();
  return x.fetch();
}

/// Weights that a block's sums stay numbers with, some of which are patches.
void draw_weights(MoeMatrix& matrix) {
  std::mt19937 engine(matrix.seed);
  for (std::size_t i = 0; i + 1 < matrix.bytes.size() && matrix.is_there(); i += 2) {
    const unsigned exponent = 100 + engine() % 8 * 3;  // 5 of the 8 have a code
    const std::uint16_t bits =
        engine() % 400 == 0 ? static_cast<std::uint16_t>((engine() & 0x807fU) | exponent << 7)
                            : trained(engine);
    std::memcpy(&matrix.bytes[i], &bits, 2);
  }
}

void check_experts(const MoeCase& block, std::initializer_list<std::int64_t> rows) {
  for (const std::int64_t tokens : rows) {
    CAPTURE(tokens);
    MoeCase c = block;
    c.tokens = tokens;
    MoeNumbers numbers(c, bf);
    for (MoeMatrix* const matrix :
         {&numbers.gate_up, &numbers.down, &numbers.shared_gate_up, &numbers.shared_down,
          &numbers.latent_in, &numbers.latent_out}) {
      draw_weights(*matrix);
    }
    for (const bool batch_invariant : {false, true}) {
      CAPTURE(batch_invariant);
      CHECK(same_bytes(experts_answer(numbers, Quantize::none, batch_invariant),
                       experts_answer(numbers, Quantize::bits12, batch_invariant)));
    }
  }
}

}  // namespace

TEST_SUITE("cuda/bits12") {
  TEST_CASE("every product has the bits that the route of bf16 gives, whatever the weights are") {
    for (const Kind& kind : kinds) {
      const std::string name = kind.name;
      CAPTURE(name);
      const Matrix matrix(kind, 1, 300, 184);
      const Pair weights(matrix.source);
      check_products(weights, {1, 2, 4, 7, 17, 64, 300});
    }
  }

  TEST_CASE("for every number of rows, where rows of W end anywhere in a step, by any schedule") {
    for (const std::int64_t inner : {56, 584}) {
      CAPTURE(inner);
      const Matrix matrix(kinds[1], 1, 41, inner);
      check_products(Pair(matrix.source),
                     {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17});
    }
    const Matrix matrix(kinds[1], 1, 41, 1064);
    const Pair weights(matrix.source);
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      check_products(weights, {1, 3, 8, 17});
    });
  }

  TEST_CASE("tiles of each size, warps that share a row, and several groups of rows for one") {
    const Matrix wide(kinds[1], 1, 2817, 120), many(kinds[1], 1, 9000, 64),
        is_long(kinds[1], 1, 20, 6200);
    check_products(Pair(wide.source), {300});
    check_products(Pair(many.source), {1, 3});
    check_products(Pair(is_long.source), {1, 4, 7, 40, 66});
  }

  TEST_CASE("projects with a norm and an activation") {
    const Matrix matrix(kinds[1], 1, 84, 200);
    const Pair weights(matrix.source);
    for (const std::int64_t tokens : {1, 2, 4, 6, 20, 80}) {
      for (const Activation activation : all_activations) {
        const std::int64_t columns = activation.gated ? 42 : 84;
        const DeviceTensor x(random_tensor(bf, {tokens, 200}, 5)),
            norm(random_tensor(f32, {200}, 3)), normed(TestTensor(bf, {tokens, 200})),
            room(TestTensor(bf, {tokens, 84})), y(TestTensor(bf, {tokens, columns})),
            expected(TestTensor(bf, {tokens, columns}));
        cuda::Stream stream;
        Project op = {.x = x,
                      .norm = {.weight = norm, .eps = 1e-5F},
                      .weight = &weights.plain,
                      .y = expected,
                      .activation = activation,
                      .normed = normed,
                      .product = room};
        cuda::project(stream, op);
        op.weight = &weights.narrow;
        op.y = y;
        cuda::project(stream, op);
        stream.wait();
        CHECK(same_bytes(y.fetch(), expected.fetch()));
      }
    }
  }

  TEST_CASE("rows that vectors cannot read, embeddings, and each expert of several") {
    const Matrix odd(kinds[1], 1, 40, 157);
    const Pair weights(odd.source);
    check_products(weights, {1, 20});
    const DeviceTable tokens({39, 0, 7, 40, -1});
    for (const DType type : {f32, bf}) {
      const DeviceTensor y(TestTensor(type, {5, 157}, {3, 1})),
          expected(TestTensor(type, {5, 157}, {3, 1}));
      cuda::Stream stream;
      cuda::embed(stream, {.weight = &weights.plain, .tokens = tokens, .y = expected});
      cuda::embed(stream, {.weight = &weights.narrow, .tokens = tokens, .y = y});
      stream.wait();
      CHECK(same_bytes(y.fetch(), expected.fetch()));
    }
    const Matrix experts(kinds[1], 3, 50, 184);
    const Pair several(experts.source);
    const DeviceTensor x(random_tensor(bf, {6, 184}, 5));
    for (std::int64_t e = 0; e < 3; ++e) {
      const DeviceTensor y(TestTensor(bf, {6, 50})), expected(TestTensor(bf, {6, 50}));
      cuda::Stream stream;
      cuda::linear(stream, {.x = x, .weight = &several.plain, .expert = e, .y = expected});
      cuda::linear(stream, {.x = x, .weight = &several.narrow, .expert = e, .y = y});
      stream.wait();
      CHECK(same_bytes(y.fetch(), expected.fetch()));
    }
  }

  TEST_CASE("blocks of experts have the bits of bf16 for every number of rows") {
    check_experts({.tokens = 0,
                   .hidden = 184,
                   .experts = 6,
                   .active = 2,
                   .intermediate = 120,
                   .shared = 56,
                   .has_shared_gate = true},
                  {1, 5, 16, 17, 64, 300});
    check_experts({.tokens = 0,
                   .hidden = 120,
                   .experts = 10,
                   .active = 3,
                   .intermediate = 184,
                   .shared = 104,
                   .activation = plain_relu2,
                   .latent = 280},
                  {2, 9, 40});
    check_experts({.tokens = 0, .hidden = 110, .experts = 4, .active = 2, .intermediate = 62},
                  {3, 20});  // what vectors cannot read
  }

  TEST_CASE("any bits, half zeros and rows of 48 columns stay bf16; 12 bits take three quarters") {
    Queue card(Device::cuda, {.threads = 2, .isa = {}});
    const Kind any = {"any", [](std::mt19937&engine, std::int64_t,
                                std::int64_t) { return static_cast<std::uint16_t>(engine()); }},
               zeros = {"half zeros", [](std::mt19937&engine, std::int64_t, std::int64_t) {
                          return engine() % 2 == 0 ? std::uint16_t{0} : trained(engine);
                        }};
    for (const Kind* const kind : {&any, &zeros}) {
      const Matrix matrix(*kind, 1, 64, 128);
      CHECK(Weight::pack(card, matrix.source, bf, Quantize::bits12).code() == WeightCode::plain);
    }
    const Matrix narrow(kinds[0], 1, 64, 48);
    CHECK(Weight::pack(card, narrow.source, bf, Quantize::bits12).code() == WeightCode::plain);
    const Matrix matrix(kinds[0], 2, 300, 1024);
    const Pair weights(matrix.source);
    CHECK(weights.narrow.owned_bytes() < 0.756 * weights.plain.owned_bytes());
  }
}

}  // namespace cuda_bits12_test
