#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/linear/gguf_rows.h"
#include "tests/cuda/support.h"
#include "tests/kernels/linear/coded_weights.h"

namespace cuda_linear_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Case {
  std::int64_t tokens, outputs, inner;
  DType x = DType::bf16, weight = DType::bf16, y = DType::bf16;
  bool add = false;
  Strides strides = {};
};
constexpr DType f32 = DType::f32, bf = DType::bf16;
const Case cases[] = {
    // every route of bf16 and the edges between them
    {.tokens = 1, .outputs = 40, .inner = 1608, .add = true},  // a row of W is shared by 4 warps
    {.tokens = 1, .outputs = 9, .inner = 6200, .y = f32},      // and by 8
    {.tokens = 2,
     .outputs = 603,
     .inner = 24,
     .y = f32,
     .add = true,
     .strides = {8, 0}},  // many groups of rows for a warp
    {.tokens = 3, .outputs = 70, .inner = 264, .add = true, .strides = {8, 8}},
    {.tokens = 4, .outputs = 301, .inner = 520},
    {.tokens = 5, .outputs = 6, .inner = 808, .y = f32, .add = true},
    {.tokens = 4,
     .outputs = 10,
     .inner = 6200,
     .strides = {16, 0}},  // x does not fit into shared memory
    {.tokens = 8, .outputs = 10, .inner = 3104, .strides = {16, 0}},
    {.tokens = 8, .outputs = 33, .inner = 256, .add = true},
    {.tokens = 9, .outputs = 33, .inner = 512, .y = f32, .add = true, .strides = {8, 0}},
    {.tokens = 10, .outputs = 530, .inner = 40},               // a warp has 16 rows of W to itself
    {.tokens = 33, .outputs = 270, .inner = 72, .add = true},  // two share them
    {.tokens = 16, .outputs = 20, .inner = 200},
    {.tokens = 17, .outputs = 70, .inner = 96, .add = true},
    {.tokens = 64, .outputs = 40, .inner = 136, .add = true, .strides = {8, 8}},
    {.tokens = 65, .outputs = 30, .inner = 72, .y = f32, .add = true},
    {.tokens = 70, .outputs = 150, .inner = 96},
    {.tokens = 130, .outputs = 40, .inner = 200, .y = f32, .add = true, .strides = {8, 0}},
    {.tokens = 1, .outputs = 5, .inner = 8, .y = f32},
    // what vectors cannot read, and other types
    {.tokens = 5, .outputs = 33, .inner = 30, .strides = {3, 1}},
    {.tokens = 2, .outputs = 9, .inner = 64, .strides = {1, 0}},
    {.tokens = 4, .outputs = 19, .inner = 70, .x = f32, .weight = f32, .y = f32, .add = true},
    {.tokens = 2, .outputs = 9, .inner = 65, .weight = DType::f16, .y = f32},
    {.tokens = 5,
     .outputs = 19,
     .inner = 70,
     .x = f32,
     .weight = DType::f16,
     .y = f32,
     .add = true},
    {.tokens = 70, .outputs = 9, .inner = 64, .x = f32, .weight = DType::f16, .y = f32},
    {.tokens = 3, .outputs = 8, .inner = 40, .x = f32, .y = f32, .strides = {1, 1}},
};

std::vector<std::byte> weight_bytes(const Case& c) {
  if (c.weight != DType::f16) return random_tensor(c.weight, {c.outputs, c.inner}, 7).packed();
  std::mt19937 random(7);
  std::vector<std::byte> bytes(static_cast<std::size_t>(c.outputs * c.inner) * 2);
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto half = static_cast<std::uint16_t>((random() & 0x83ffU) | (13 + random() % 3) << 10);
    std::memcpy(&bytes[i], &half, 2);
  }
  return bytes;
}

/// Against the exact sum, by the contract's bound and one rounding of y. What is added has a bias.
void check_close(const Case& c, const TestTensor& x, const Weight& weight, const TestTensor& before,
                 const TestTensor& bias, const TestTensor& answer, float scale) {
  std::vector<float> row(static_cast<std::size_t>(c.inner));
  for (std::int64_t n = 0; n < c.outputs; ++n) {
    weight.read_row(0, n, row);
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      double sum = c.add ? bias.get(n) : 0.0, size = std::fabs(sum);
      for (std::int64_t k = 0; k < c.inner; ++k) {
        const double product = double{x.get(t * c.inner + k)} * row[static_cast<std::size_t>(k)];
        sum += product;
        size += std::fabs(product);
      }
      const double exact = (c.add ? before.get(t * c.outputs + n) : 0.0) + scale * sum;
      const double rounding = c.y == DType::bf16 ? 0x1p-8 : 0x1p-23;
      const double bound = static_cast<double>(c.inner + 4) * 0x1p-23 * std::fabs(scale) * size +
                           rounding * std::fabs(exact) + 1e-30;
      REQUIRE(std::fabs(answer.get(t * c.outputs + n) - exact) <= bound);
    }
  }
}

void check_case(const Case& c) {
  CAPTURE(c.tokens);
  CAPTURE(c.inner);
  constexpr float scale = 0.7F;
  const auto x = random_tensor(c.x, {c.tokens, c.inner}, 5, 1.0F, c.strides);
  const auto before = random_tensor(c.y, {c.tokens, c.outputs}, 6, 1.0F, {5, 1});
  const auto bias = random_tensor(f32, {c.outputs}, 8);
  const TestWeight weight(c.weight, c.outputs, c.inner, weight_bytes(c));

  cuda::Stream stream;
  const DeviceTensor on_x(x), on_y(before), replayed(before), on_bias(bias);
  Linear op = {.x = on_x,
               .weight = &weight.device,
               .y = on_y,
               .scale = scale,
               .add = c.add,
               .bias = c.add ? Tensor(on_bias) : Tensor()};
  cuda::linear(stream, op);
  op.y = replayed;
  const cuda::Graph graph(stream, [&] { cuda::linear(stream, op); });
  graph.replay(stream);
  stream.wait();
  const TestTensor answer = on_y.fetch();
  check_close(c, x, weight.host, before, bias, answer, scale);
  CHECK(answer.guards_intact());
  CHECK(on_x.fetch().everything() == x.everything());
  CHECK(same_bytes(replayed.fetch(), answer));
}

/// Rows begin .. begin+count-1 of y, where the op had only these.
TestTensor part(const Tensor& x, const Weight& weight, const TestTensor& y, std::int64_t begin,
                std::int64_t count, bool batch_invariant) {
  cuda::Stream stream;
  stream.set_batch_invariant(batch_invariant);
  const DeviceTensor on_y(y);
  cuda::linear(
      stream, {.x = x.rows(begin, count), .weight = &weight, .y = Tensor(on_y).rows(begin, count)});
  stream.wait();
  return on_y.fetch();
}

/// A row's bits are the same in every op of `counts` rows.
void check_rows(const Case& c, std::initializer_list<std::int64_t> counts, bool batch_invariant) {
  const auto x = random_tensor(c.x, {c.tokens, c.inner}, 5);
  const TestWeight weight(c.weight, c.outputs, c.inner, weight_bytes(c));
  const DeviceTensor on_x(x);
  const TestTensor y(c.y, {c.tokens, c.outputs});
  const TestTensor all = part(on_x, weight.device, y, 0, c.tokens, batch_invariant);
  for (const std::int64_t count : counts) {
    CAPTURE(count);
    const std::int64_t begin = c.tokens - count;
    const TestTensor some = part(on_x, weight.device, y, begin, count, batch_invariant);
    for (std::int64_t i = begin * c.outputs; i < c.tokens * c.outputs; ++i) {
      REQUIRE(some.get(i) == all.get(i));
    }
  }
}

TEST_SUITE("cuda/linear") {
  TEST_CASE("is the definition within its bound, at once and from a graph") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : cases) check_case(c);
    });
  }

  TEST_CASE("f16 gives the bits that f32 rows with the same numbers give") {
    for (const std::int64_t tokens : {1, 9, 70}) {
      const Case c = {tokens, 18, 67, f32, DType::f16, f32, false, {}};
      const auto bytes = weight_bytes(c);
      std::vector<float> wide;
      for (std::int64_t i = 0; i < c.outputs * c.inner; ++i) {
        wide.push_back(published_value(bytes.data(), DType::f16, i));
      }
      const auto wide_bytes = std::as_bytes(std::span(wide));
      const TestWeight narrow(DType::f16, c.outputs, c.inner, bytes);
      const TestWeight same(f32, c.outputs, c.inner, {wide_bytes.begin(), wide_bytes.end()});
      const DeviceTensor x(random_tensor(f32, {tokens, c.inner}, 5));
      const DeviceTensor y(TestTensor(f32, {tokens, c.outputs})),
          expected(TestTensor(f32, {tokens, c.outputs}));
      cuda::Stream stream;
      cuda::linear(stream, {.x = x, .weight = &narrow.device, .y = y});
      cuda::linear(stream, {.x = x, .weight = &same.device, .y = expected});
      stream.wait();
      CHECK(same_bytes(y.fetch(), expected.fetch()));
    }
  }

  TEST_CASE("what is next to the columns of x is not read") {
    for (const std::int64_t tokens : {1, 4, 5, 8, 9, 40, 70}) {
      for (const std::int64_t inner : {40, 6152}) {
        const Case c = {tokens, 18, inner, bf, bf, f32, false, {}};
        auto x = random_tensor(bf, {tokens, inner + 8}, 5);
        for (std::int64_t i = 0; i < 8 * tokens; ++i) {
          x.set(i / 8 * (inner + 8) + inner + i % 8, NAN);
        }
        const TestWeight weight(bf, c.outputs, inner, weight_bytes(c));
        const DeviceTensor on_x(x), on_y(TestTensor(f32, {tokens, c.outputs}));
        cuda::Stream stream;
        cuda::linear(stream,
                     {.x = Tensor(on_x).columns(0, inner), .weight = &weight.device, .y = on_y});
        stream.wait();
        for (const float value : on_y.fetch().values()) REQUIRE(std::isfinite(value));
      }
    }
  }

  TEST_CASE("a row's bits do not depend on the other rows of a route") {
    check_rows({4, 70, 808, bf, bf, f32, false, {}}, {1, 2, 3}, false);
    check_rows({64, 70, 40, bf, bf, f32, false, {}}, {5, 8, 9, 40}, false);
    check_rows({64, 50, 408, bf, bf, f32, false, {}}, {9, 16, 17, 33}, false);
    check_rows({200, 20, 136, bf, bf, f32, false, {}}, {65, 130}, false);
    check_rows({5, 20, 37, bf, bf, f32, false, {}}, {1, 2}, false);
  }

  TEST_CASE("batch-invariant, a row's bits do not even depend on how many there are") {
    check_rows({130, 70, 264, bf, bf, f32, false, {}}, {1, 2, 8, 9, 64, 65, 129}, true);
    check_rows({20, 40, 1064, bf, bf, f32, false, {}}, {1, 16, 17}, true);
    check_rows({5, 20, 37, f32, bf, f32, false, {}}, {1, 2}, true);
  }
}

struct CodedCase {
  CodedFormat format;
  std::int64_t tokens, outputs, inner;
  DType y = DType::bf16;
  bool add = false;
  Strides strides = {};
};

constexpr CodedFormat fp8 = {WeightCode::fp8, 1, block_of_all}, blocks = {WeightCode::fp8},
                      q8 = {WeightCode::q8}, q4 = {WeightCode::q4}, mxfp4 = {WeightCode::mxfp4};
const CodedCase coded_cases[] = {
    {.format = q4, .tokens = 1, .outputs = 40, .inner = 1608, .add = true},
    {.format = q8, .tokens = 1, .outputs = 40, .inner = 648, .y = f32, .add = true},
    {.format = blocks, .tokens = 1, .outputs = 9, .inner = 1304, .y = f32},
    {.format = fp8, .tokens = 3, .outputs = 20, .inner = 1104, .add = true, .strides = {8, 0}},
    {.format = q4, .tokens = 5, .outputs = 301, .inner = 264},
    {.format = q8, .tokens = 8, .outputs = 70, .inner = 128, .strides = {8, 8}},
    {.format = q4, .tokens = 9, .outputs = 33, .inner = 40, .y = f32},
    {.format = blocks, .tokens = 16, .outputs = 50, .inner = 136, .add = true},
    {.format = q8, .tokens = 30, .outputs = 19, .inner = 200, .y = f32, .add = true},
    {.format = q4, .tokens = 33, .outputs = 17, .inner = 136},
    {.format = blocks, .tokens = 64, .outputs = 20, .inner = 264},
    {.format = q4, .tokens = 130, .outputs = 24, .inner = 72, .add = true, .strides = {16, 0}},
    {.format = q8, .tokens = 65, .outputs = 16, .inner = 96, .y = f32},
    {.format = mxfp4, .tokens = 1, .outputs = 40, .inner = 1608, .add = true},
    {.format = mxfp4, .tokens = 5, .outputs = 301, .inner = 264},
    {.format = mxfp4, .tokens = 33, .outputs = 17, .inner = 200, .y = f32},
    {.format = mxfp4, .tokens = 130, .outputs = 24, .inner = 72, .strides = {16, 0}},
    {.format = mxfp4, .tokens = 2, .outputs = 9, .inner = 157, .add = true},
    // what vectors cannot read
    {.format = q4, .tokens = 2, .outputs = 9, .inner = 157, .add = true},
    {.format = q8, .tokens = 3, .outputs = 5, .inner = 68, .y = f32, .strides = {3, 1}},
    {.format = blocks, .tokens = 2, .outputs = 7, .inner = 133},
    {.format = fp8, .tokens = 1, .outputs = 3, .inner = 1},
};

/// A weight here and on the emulator or card, with the same numbers.
struct Pair {
  explicit Pair(const CodedCase& c)
      : here(Device::cpu, {.threads = 1, .isa = {}}),
        card(Device::cuda, {.threads = 1, .isa = {}}),
        host(here, c.format, 1, c.outputs, c.inner, 7),
        device(card, c.format, 1, c.outputs, c.inner, 7) {
    card.stream().wait();
  }
  Queue here, card;
  CodedMatrix host, device;
};

void check_close(const CodedCase& c, const TestTensor& x, const CodedMatrix& matrix,
                 const TestTensor& before, const TestTensor& answer, float scale) {
  const std::vector<float> weight = matrix.values(), sizes = matrix.sizes();
  for (std::int64_t n = 0; n < c.outputs; ++n) {
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      double sum = 0, size = 0;
      for (std::int64_t k = 0; k < c.inner; ++k) {
        const auto at = static_cast<std::size_t>(n * c.inner + k);
        sum += double{x.get(t * c.inner + k)} * double{weight[at]};
        size += std::fabs(double{x.get(t * c.inner + k)}) * double{sizes[at]};
      }
      const double exact = (c.add ? before.get(t * c.outputs + n) : 0.0) + scale * sum;
      const double rounding = c.y == DType::bf16 ? 0x1p-8 : 0x1p-23;
      const double bound = static_cast<double>(c.inner + 5) * 0x1p-23 * std::fabs(scale) * size +
                           rounding * std::fabs(exact) + 1e-30;
      REQUIRE(std::fabs(answer.get(t * c.outputs + n) - exact) <= bound);
    }
  }
}

void check_case(const CodedCase& c, bool batch_invariant = false) {
  CAPTURE(kernels::testing::name_of(c.format.code));
  CAPTURE(static_cast<int>(c.format.type));
  CAPTURE(c.format.row_block);
  CAPTURE(c.tokens);
  CAPTURE(c.inner);
  CAPTURE(batch_invariant);
  constexpr float scale = 0.7F;
  const auto x = random_tensor(bf, {c.tokens, c.inner}, 5, 1.0F, c.strides);
  const auto before = random_tensor(c.y, {c.tokens, c.outputs}, 6, 1.0F, {5, 1});
  Pair weight(c);
  cuda::Stream stream;
  stream.set_batch_invariant(batch_invariant);
  const DeviceTensor on_x(x), on_y(before), replayed(before);
  Linear op = {.x = on_x, .weight = &weight.device.weight, .y = on_y, .scale = scale, .add = c.add};
  cuda::linear(stream, op);
  op.y = replayed;
  const cuda::Graph graph(stream, [&] { cuda::linear(stream, op); });
  graph.replay(stream);
  stream.wait();
  const TestTensor answer = on_y.fetch();
  check_close(c, x, weight.host, before, answer, scale);
  CHECK(answer.guards_intact());
  CHECK(on_x.fetch().everything() == x.everything());
  CHECK(same_bytes(replayed.fetch(), answer));
}

/// y of the first `count` rows.
TestTensor first_rows(const Pair& weight, const Tensor& x, const CodedCase& c, std::int64_t count) {
  cuda::Stream stream;
  stream.set_batch_invariant(true);
  const DeviceTensor on_y(TestTensor(c.y, {count, c.outputs}));
  cuda::linear(stream, {.x = x.rows(0, count), .weight = &weight.device.weight, .y = on_y});
  stream.wait();
  return on_y.fetch();
}

}  // namespace

TEST_SUITE("cuda/coded") {
  TEST_CASE("is the product with the numbers of the CPU's weight, at once and from a graph") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const CodedCase& c : coded_cases) check_case(c);
    });
  }

  TEST_CASE("every format and number of rows") {
    for (const CodedFormat& format : all_formats) {
      for (const std::int64_t tokens : {1, 3, 8, 17, 64, 300}) {
        for (const bool batch_invariant : {false, true}) {
          check_case({format, tokens, 71, tokens < 64 ? 392 : 200}, batch_invariant);
        }
      }
    }
  }
  TEST_CASE("tiles of each size") {
    check_case({q4, 300, 2817, 40});
    check_case({blocks, 129, 1100, 136});
    check_case({blocks_of(GgufType::q5_1), 300, 2817, 32});
    check_case({blocks_of(GgufType::q6_k), 300, 2817, 256});
  }

  TEST_CASE("blocks of GGUF files: every type and number of rows") {
    for (const CodedFormat& format : block_formats) {
      for (const std::int64_t tokens : {1, 3, 8, 17, 64, 300}) {
        for (const bool batch_invariant : {false, true}) {
          const std::int64_t outputs = tokens < 64 ? 71 : 20;
          check_case({format, tokens, outputs, format.width(tokens < 64 ? 416 : 200), f32},
                     batch_invariant);
        }
      }
    }
  }

  TEST_CASE("published groups: every kind and number of rows") {
    for (const CodedFormat& format : group_formats) {
      CAPTURE(format.column_block);
      for (const std::int64_t tokens : {1, 3, 17, 64, 300}) {
        for (const bool batch_invariant : {false, true}) {
          const std::int64_t outputs = tokens < 64 ? 71 : 20;
          check_case({format, tokens, outputs, format.width(tokens < 64 ? 416 : 200), f32},
                     batch_invariant);
        }
      }
    }
  }

  TEST_CASE(
      "what a card keeps of groups takes their bytes; other groups are as if they were bf16") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    const auto bits = [&](const CodedFormat& format) {
      const CodedMatrix matrix(card, format, 2, 64, 1024, 3);
      CHECK(matrix.weight.code() == WeightCode::groups);
      return static_cast<double>(matrix.weight.owned_bytes()) * 8 / (128 * 1024);
    };
    CHECK(bits(groups_of(DType::u8, DType::bf16, false, 32)) == 4.5);
    CHECK(bits(groups_of(DType::u8, DType::f16, true, 32)) == 5);
    CHECK(bits(groups_of(DType::u8, DType::bf16, false, 128)) == 4.25);
    CHECK(bits(groups_of(DType::u8, DType::f16, true, 128)) == 4.5);
    CHECK(bits(groups_of(DType::i8, DType::bf16, false, 1024)) == 8.5);
    CHECK(bits(groups_of(DType::u8, DType::f8_e4m3, false, 16)) == 4.53125);
    for (const CodedFormat& other :
         {groups_of(DType::u8, DType::f32, false, 32), groups_of(DType::u8, DType::bf16, false, 16),
          groups_of(DType::i8, DType::bf16, true, 32)}) {
      CHECK(CodedMatrix(card, other, 1, 64, 64, 3).weight.code() == WeightCode::plain);
    }
  }

  TEST_CASE("rows of several types: the bits of each") {
    constexpr std::int64_t inner = 256, rows = 24;
    const PublishedMatrix first(GgufType::q4_k, 1, rows, inner, 3),
        second(GgufType::q6_k, 1, rows, inner, 4), third(GgufType::q2_k, 1, rows, inner, 5);
    WeightSource all(1, 3 * rows, inner);
    for (const PublishedMatrix* const part : {&first, &second, &third}) {
      all.append(part->source, 0, rows);
    }
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    const Weight weight = Weight::pack(card, all, bf);
    REQUIRE(weight.parts().size() == 3);
    CHECK(weight.parts()[1].code() == WeightCode::blocks);
    CHECK(weight.parts()[2].code() == WeightCode::plain);  // no card keeps it
    const std::int64_t bytes = (144 * 74 / 72 + 212) * rows + inner * 2 * rows;
    CHECK(static_cast<std::int64_t>(weight.owned_bytes()) == bytes);
    for (const std::int64_t tokens : {3, 9}) {
      const DeviceTensor x(random_tensor(bf, {tokens, inner}, 6)),
          bias(random_tensor(f32, {3 * rows}, 7)), norm(random_tensor(f32, {inner}, 8)),
          normed(TestTensor(bf, {tokens, inner})), room(TestTensor(bf, {tokens, 3 * rows}));
      const TestTensor before = random_tensor(bf, {tokens, 3 * rows}, 9);
      const DeviceTensor y(before), expected(before), active(TestTensor(bf, {tokens, 36})),
          of_product(TestTensor(bf, {tokens, 36}));
      cuda::Stream stream;
      const InputNorm with = {.weight = norm, .eps = 1e-5F};
      const Project op = {.x = x,
                          .norm = with,
                          .weight = &weight,
                          .y = y,
                          .normed = normed,
                          .scale = 0.5F,
                          .add = true,
                          .bias = bias};
      cuda::project(stream, op);
      for (std::int64_t i = 0; i < 3; ++i) {
        const Weight& part = weight.parts()[static_cast<std::size_t>(i)];
        cuda::linear(stream, {.x = normed,
                              .weight = &part,
                              .y = Tensor(expected).columns(i * rows, rows),
                              .scale = 0.5F,
                              .add = true,
                              .bias = Tensor(Tensor(bias).as<float>() + i * rows, f32, {rows})});
      }
      cuda::project(stream, {.x = x,
                             .norm = with,
                             .weight = &weight,
                             .y = active,
                             .activation = all_activations[0],
                             .normed = normed,
                             .product = room});
      cuda::gated_activation(stream,
                             {.x = room, .y = of_product, .activation = all_activations[0]});
      stream.wait();
      CHECK(same_bytes(y.fetch(), expected.fetch()));
      CHECK(same_bytes(active.fetch(), of_product.fetch()));
    }
  }

  TEST_CASE("on a card blocks take at most 3 % more than in the file") {
    for (const CodedFormat& format : block_formats) {
      CAPTURE(static_cast<int>(format.type));
      const GgufBlock& block = block_of(format.type);
      const double of_file = 64.0 * 1024 / block.elements * block.bytes;
      const auto bytes = static_cast<double>(GgufRowsShape{format.type, 64, 1024}.expert_bytes());
      CHECK(bytes >= of_file);
      CHECK(bytes <= 1.03 * of_file);
    }
  }

  TEST_CASE("batch-invariant, a row's bits do not depend on how many there are") {
    for (const CodedFormat& format : formats_on_cards()) {
      const CodedCase c = {format, 300, 840, format.width(264), f32, false, {}};
      const Pair weight(c);
      const auto x = random_tensor(bf, {c.tokens, c.inner}, 5);
      const DeviceTensor on_x(x);
      const TestTensor all = first_rows(weight, on_x, c, c.tokens);
      for (const std::int64_t count : {1, 3, 8, 17, 64, 65}) {
        CAPTURE(count);
        const TestTensor some = first_rows(weight, on_x, c, count);
        for (std::int64_t i = 0; i < count * c.outputs; ++i) REQUIRE(some.get(i) == all.get(i));
      }
    }
  }

  TEST_CASE("project with an activation: the bits of linear and the activation") {
    for (const WeightCode code : all_codes) {
      for (const Activation activation : all_activations) {
        for (const std::int64_t inner : {136, 67}) {
          const CodedCase c = {{code}, 5, 44, inner, bf, false, {}};
          const Pair weight(c);
          const auto x = random_tensor(bf, {c.tokens, inner}, 5);
          const std::int64_t columns = activation.gated ? 22 : 44;
          const DeviceTensor on_x(x), product(TestTensor(bf, {5, 44})),
              room(TestTensor(bf, {5, 44})), y(TestTensor(bf, {5, columns})),
              expected(TestTensor(bf, {5, columns}));
          cuda::Stream stream;
          const Weight* const w = &weight.device.weight;
          const DeviceTensor bias(random_tensor(f32, {44}, 8));
          cuda::project(stream, {.x = on_x,
                                 .weight = w,
                                 .y = y,
                                 .activation = activation,
                                 .product = room,
                                 .bias = bias});
          cuda::linear(stream, {.x = on_x, .weight = w, .y = product, .bias = bias});
          cuda::gated_activation(stream, {.x = product, .y = expected, .activation = activation});
          stream.wait();
          CHECK(same_bytes(y.fetch(), expected.fetch()));
        }
      }
    }
  }

  TEST_CASE("embed reads rows of codes; a token outside of the vocabulary is NaN") {
    for (const WeightCode code : all_codes) {
      for (const DType type : {f32, bf}) {
        const Pair weight({{code}, 1, 40, 150, bf, false, {}});
        const std::vector<std::int32_t> tokens = {39, 0, 7, 40, -1};
        const DeviceTable on_tokens(tokens);
        const DeviceTensor y(TestTensor(type, {5, 150}, {3, 1}));
        cuda::Stream stream;
        cuda::embed(stream,
                    {.weight = &weight.device.weight, .tokens = on_tokens, .y = y, .scale = 2.0F});
        stream.wait();
        const TestTensor answer = y.fetch();
        const std::vector<float> values = weight.host.values();
        for (std::int64_t i = 0; i < 5 * 150; ++i) {
          const std::int32_t token = tokens[static_cast<std::size_t>(i / 150)];
          if (i >= 3 * 150) {
            REQUIRE(std::isnan(answer.get(i)));
            continue;
          }
          const float value = 2.0F * values[static_cast<std::size_t>(token * 150 + i % 150)];
          REQUIRE(answer.get(i) == (type == f32 ? value : to_float(to_bf16(value))));
        }
        CHECK(answer.guards_intact());
      }
    }
  }

  TEST_CASE("embed gives the numbers of blocks and groups, bit for bit") {
    std::vector<CodedFormat> formats(std::begin(block_formats), std::end(block_formats));
    formats.insert(formats.end(), std::begin(group_formats), std::end(group_formats));
    for (const CodedFormat& format : formats) {
      CAPTURE(static_cast<int>(format.type));
      const std::int64_t width = format.width(544);
      const Pair weight({format, 1, 9, width, f32, false, {}});
      const DeviceTable tokens(std::vector<std::int32_t>{8, 0, 7});
      const DeviceTensor y(TestTensor(f32, {3, width}));
      cuda::Stream stream;
      cuda::embed(stream, {.weight = &weight.device.weight, .tokens = tokens, .y = y});
      stream.wait();
      const std::vector<float> answer = y.fetch().values(), all = weight.host.values();
      std::int64_t wrong = 0, row = 0;
      for (const std::int64_t token : {8, 0, 7}) {
        const auto at = [&](std::int64_t r) { return static_cast<std::size_t>(r * width); };
        for (std::size_t k = 0; k < static_cast<std::size_t>(width); ++k) {
          wrong += answer[at(row) + k] != all[at(token) + k];
        }
        ++row;
      }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("codes take bf16 rows only") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    const PublishedMatrix published(DType::f8_e4m3, 1, 8, 128, 1, 128, 15);
    const Weight weight = Weight::pack(card, published.source, DType::bf16);
    const DeviceTensor x(random_tensor(f32, {2, 128}, 3)), y(TestTensor(f32, {2, 8}));
    CHECK_THROWS_AS(linear(card, {.x = x, .weight = &weight, .y = y}), Error);
  }

  TEST_CASE("a NaN scale or code is NaN in its column only") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    PublishedMatrix published(DType::f8_e4m3, 1, 20, 136, 1, 136, 15);
    published.scales[4] = NAN;
    published.bytes[5 * 136 + 135] = std::byte{0x7f};
    published.bytes[6 * 136] = std::byte{0xff};
    const Weight weight = Weight::pack(card, published.source, DType::bf16);
    card.stream().wait();
    for (const std::int64_t tokens : {2, 20, 70}) {
      for (const bool batch_invariant : {false, true}) {
        const DeviceTensor x(random_tensor(bf, {tokens, 136}, 3)), y(TestTensor(f32, {tokens, 20}));
        cuda::Stream stream;
        stream.set_batch_invariant(batch_invariant);
        cuda::linear(stream, {.x = x, .weight = &weight, .y = y});
        stream.wait();
        const TestTensor answer = y.fetch();
        for (std::int64_t i = 0; i < tokens * 20; ++i) {
          CHECK(std::isnan(answer.get(i)) == (i % 20 >= 4 && i % 20 <= 6));
        }
      }
    }
  }
}

}  // namespace cuda_linear_test
