#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/paged_support.h"

namespace cuda_rope_kv_write_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

enum class Norms { none, both, of_q, of_k };

struct Case {
  std::int64_t heads, kv_heads, head_dim, rotary_dim = 0;
  std::int32_t page_tokens = 16;
  Strides strides = {};
  Norms norms = Norms::none;
  std::int64_t gates = 0;  ///< columns after v
  bool has_frequencies = false, value_norm = false, queries_only = false;
  QueryScale query_scale = {};
  bool weightless_norm = false;

  std::int64_t width() const {
    return (heads + (queries_only ? 0 : 2 * kv_heads)) * head_dim + gates;
  }
};
const Case cases[] = {
    {.heads = 3, .kv_heads = 2, .head_dim = 64, .rotary_dim = 64, .queries_only = true},
    {.heads = 2, .kv_heads = 1, .head_dim = 24, .strides = {3, 1}, .queries_only = true},
    {.heads = 4, .kv_heads = 2, .head_dim = 64, .rotary_dim = 64},
    {.heads = 3, .kv_heads = 1, .head_dim = 128, .rotary_dim = 32, .strides = {8, 8}},
    {.heads = 6, .kv_heads = 2, .head_dim = 32, .page_tokens = 4},
    {.heads = 2,
     .kv_heads = 2,
     .head_dim = 24,
     .rotary_dim = 12,
     .page_tokens = 6,
     .strides = {3, 1}},
    {.heads = 2, .kv_heads = 1, .head_dim = 80, .rotary_dim = 80, .strides = {1, 0}},
    {.heads = 2, .kv_heads = 1, .head_dim = 64, .rotary_dim = 32, .has_frequencies = true},
    {.heads = 2, .kv_heads = 1, .head_dim = 64, .rotary_dim = 32, .query_scale = {0.7F, 6, 1}},
    {.heads = 2, .kv_heads = 1, .head_dim = 64, .query_scale = {0.7F, 6, 1, false}},
    {.heads = 3,
     .kv_heads = 1,
     .head_dim = 20,
     .page_tokens = 4,
     .strides = {1, 0},
     .query_scale = {0.3F, 4}}};
const Case normed_cases[] = {
    {.heads = 3, .kv_heads = 2, .head_dim = 64, .rotary_dim = 64, .weightless_norm = true},
    {.heads = 3,
     .kv_heads = 1,
     .head_dim = 20,
     .rotary_dim = 12,
     .page_tokens = 4,
     .strides = {1, 0},
     .gates = 3,
     .weightless_norm = true},
    {.heads = 4, .kv_heads = 2, .head_dim = 64, .rotary_dim = 64, .value_norm = true},
    {.heads = 2,
     .kv_heads = 1,
     .head_dim = 128,
     .rotary_dim = 128,
     .norms = Norms::both,
     .gates = 8,
     .value_norm = true},
    {.heads = 3,
     .kv_heads = 1,
     .head_dim = 20,
     .rotary_dim = 20,
     .page_tokens = 4,
     .strides = {1, 0},
     .norms = Norms::both,
     .value_norm = true},
    {.heads = 2,
     .kv_heads = 2,
     .head_dim = 512,
     .rotary_dim = 512,
     .page_tokens = 2,
     .norms = Norms::of_q,
     .gates = 16,
     .queries_only = true},
    {.heads = 4,
     .kv_heads = 1,
     .head_dim = 256,
     .rotary_dim = 64,
     .norms = Norms::both,
     .gates = 1024},
    {.heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .rotary_dim = 64,
     .strides = {8, 8},
     .norms = Norms::both},
    {.heads = 3, .kv_heads = 1, .head_dim = 128, .norms = Norms::both, .gates = 24},
    {.heads = 2,
     .kv_heads = 1,
     .head_dim = 512,
     .rotary_dim = 512,
     .page_tokens = 2,
     .norms = Norms::of_q},
    {.heads = 2, .kv_heads = 1, .head_dim = 80, .rotary_dim = 32, .norms = Norms::both},
    {.heads = 1,
     .kv_heads = 1,
     .head_dim = 176,
     .rotary_dim = 96,
     .page_tokens = 4,
     .strides = {3, 1},
     .norms = Norms::both,
     .gates = 5},
    {.heads = 2,
     .kv_heads = 2,
     .head_dim = 512,
     .rotary_dim = 20,
     .page_tokens = 2,
     .norms = Norms::both},
    {.heads = 5,
     .kv_heads = 2,
     .head_dim = 24,
     .rotary_dim = 12,
     .page_tokens = 6,
     .strides = {1, 0},
     .norms = Norms::of_k}};
const std::vector<TestSpan> spans = {{5, 3}, {0, 1}, {30, 9}, {1000003, 2}};

/// Not in the order that powers of theta have.
const std::vector<double> some_frequencies = [] {
  std::vector<double> frequencies(16, 0.25);
  frequencies[3] = 1.0;
  frequencies[15] = 1e-4;
  return frequencies;
}();

template <typename Tables>
RopeKvWrite op_of(const Case& c, const Tensor& qkv, const Tensor& arena, const Tables& tables,
                  const Tensor& q_norm = {}, const Tensor& k_norm = {}) {
  const bool norms_q = c.norms == Norms::both || c.norms == Norms::of_q;
  const bool norms_k = c.norms == Norms::both || c.norms == Norms::of_k;
  return {.qkv = qkv,
          .position_of_row = tables.position_of_row,
          .kv = {.arena = arena,
                 .span_begin = tables.span_begin,
                 .position = tables.position,
                 .page_begin = tables.page_begin,
                 .pages = tables.pages,
                 .page_tokens = c.page_tokens},
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .frequencies = c.has_frequencies ? some_frequencies : rope_frequencies(c.rotary_dim),
          .q_norm = norms_q ? q_norm : Tensor(),
          .k_norm = norms_k ? k_norm : Tensor(),
          .norm_eps = 1e-3F,
          .norm_one_plus = c.gates != 0,
          .value_norm = c.value_norm,
          .queries_only = c.queries_only,
          .weightless_norm = c.weightless_norm,
          .query_scale = c.query_scale};
}

/// A table for position 1000003 would be long: that span's pages begin where its tokens do.
PagedTables tables_of(const Case& c) {
  std::vector<TestSpan> near = spans;
  near.back().position %= c.page_tokens;
  PagedTables tables(near, c.page_tokens, 3);
  return tables;
}

TestTensor empty_arena(const Case& c, DType dtype, std::int64_t pages) {
  TestTensor arena(dtype, {pages, 2 * c.kv_heads * c.head_dim * c.page_tokens}, {16, 8});
  for (std::int64_t i = 0; i < arena.size(); ++i) arena.set(i, NAN);
  return arena;
}

void check_same(const TestTensor& answer, const TestTensor& expected, double bound) {
  for (std::int64_t i = 0; i < answer.size(); ++i) {
    const double a = answer.get(i), e = expected.get(i);
    REQUIRE(std::isnan(a) == std::isnan(e));
    if (!std::isnan(a)) REQUIRE(std::fabs(a - e) <= bound * (std::fabs(e) + 0.5));
  }
  CHECK(answer.guards_intact());
}

void check_case(const Case& c, DType dtype, DType kv_dtype) {
  CAPTURE(c.head_dim);
  constexpr std::int64_t padding = 3;
  const std::int64_t width = c.width();
  PagedTables tables = tables_of(c), padded = tables.padded(2, padding);
  // Angles may come from elsewhere than places: here from far away.
  tables.position_of_row.back() = padded.position_of_row.end()[-1 - padding] = 1000004;
  const auto tokens = tables.tokens;
  const TestTensor qkv = random_tensor(dtype, {tokens + padding, width}, 1, 1.0F, c.strides);
  const TestTensor q_norm = random_tensor(DType::f32, {c.head_dim}, 2);
  const TestTensor k_norm = random_tensor(DType::f32, {c.head_dim}, 3);
  TestTensor expected = qkv, pages = empty_arena(c, kv_dtype, tables.pages_max);
  const TestTensor on_device = device_pages(pages, kv_dtype, c.kv_heads, c.head_dim, c.page_tokens);
  Queue plain = test_queue(Isa::plain);
  rope_kv_write(plain, op_of(c, expected.view().rows(0, tokens), pages, PagedTensors<Table>(tables),
                             q_norm, k_norm));

  cuda::Stream stream;
  const DeviceTensor on_qkv(qkv), on_arena(on_device), on_q_norm(q_norm), on_k_norm(k_norm);
  const PagedTensors<DeviceTable> on_tables(padded);
  const cuda::Graph graph(stream, [&] {
    cuda::rope_kv_write(stream, op_of(c, on_qkv, on_arena, on_tables, on_q_norm, on_k_norm));
  });
  graph.replay(stream);
  stream.wait();
  const bool is_coarse = dtype == DType::bf16 || kv_dtype == DType::bf16;
  const TestTensor answer = on_qkv.fetch();
  // A normed head may end on two sides of a rounding before it is rotated.
  const double once = is_coarse ? 0.0079 : 4e-6;
  const bool is_normed = c.norms != Norms::none || c.value_norm || c.weightless_norm;
  const bool is_turned = c.rotary_dim != 0, is_scaled = c.query_scale.beta != 0.0F;
  const double bound = is_normed ? 2 * once : once * (is_turned + is_scaled);
  // What is on two sides of a rounding may become neighbours of three bits of mantissa.
  check_same(on_arena.fetch(), device_pages(pages, kv_dtype, c.kv_heads, c.head_dim, c.page_tokens),
             kv_dtype == DType::f8_e4m3 && bound != 0.0 ? 0.126 : bound);
  for (std::int64_t t = 0; t < tokens + padding; ++t) {
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t at = t * width + i;
      if (i >= c.heads * c.head_dim || t >= tokens) {
        REQUIRE(answer.get(at) == qkv.get(at));  // neither k, v nor padding rows
      } else {
        const double e = expected.get(at);
        REQUIRE(std::fabs(answer.get(at) - e) <= bound * (std::fabs(e) + 0.5));
      }
    }
  }
  CHECK(answer.guards_intact());
}

TEST_SUITE("cuda/rope_kv_write") {
  TEST_CASE("is the plain parts' answer; padding rows and spans write nothing") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : cases) {
        check_case(c, DType::bf16, DType::bf16);
        check_case(c, DType::f32, DType::f32);
        check_case(c, DType::f32, DType::bf16);
        check_case(c, DType::bf16, DType::f32);
        check_case(c, DType::bf16, DType::f8_e4m3);
        check_case(c, DType::f32, DType::f8_e4m3);
      }
    });
  }

  TEST_CASE("pages of no tokens, and tables that are none, are refused before the card sees them") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    TestTensor qkv(DType::bf16, {1, 48}), arena(DType::bf16, {2, 2 * 16 * 16}),
        one(DType::i32, {1}), two(DType::i32, {2});
    const RopeKvWrite good = {.qkv = qkv,
                              .position_of_row = one,
                              .kv = {.arena = arena,
                                     .span_begin = two,
                                     .position = one,
                                     .page_begin = two,
                                     .pages = one,
                                     .page_tokens = 16},
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = 16};
    CHECK_NOTHROW(check(good, Device::cuda));
    const auto is_refused = [&](auto&& change) {
      RopeKvWrite op = good;
      change(op);
      CHECK_THROWS_AS(rope_kv_write(card, op), Error);
    };
    is_refused([](RopeKvWrite& op) { op.kv.page_tokens = 0; });
    is_refused([](RopeKvWrite& op) { op.head_dim = 15; });
    is_refused([&](RopeKvWrite& op) { op.kv.pages = qkv; });
    is_refused([&](RopeKvWrite& op) { op.kv.page_begin = one; });
  }

  TEST_CASE("norms heads as the plain parts do, and leaves columns after v") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : normed_cases) {
        check_case(c, DType::bf16, DType::bf16);
        if (c.head_dim == 80) check_case(c, DType::bf16, DType::f8_e4m3);
        if (c.head_dim < 200) check_case(c, DType::f32, DType::f32);
      }
    });
  }

  TEST_CASE("pages of F8_E4M3 hold the nearest code of every bf16, and of f32 in between") {
    const Case c = {1, 8, 64, 0, 16, {}};
    constexpr std::int64_t kv = 2 * 8 * 64, tokens = (1 << 16) / kv;
    const PagedTables tables({{0, static_cast<std::int32_t>(tokens)}}, c.page_tokens, 3);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const std::int64_t offset : {0, 1}) {  // eight at a time, and one by one
        TestTensor qkv(dtype, {tokens, 64 + kv}, {0, offset});
        std::mt19937 engine(5);
        for (std::int64_t i = 0; i < tokens * kv; ++i) {
          const auto upper = static_cast<std::uint32_t>(i) << 16;
          const std::uint32_t lower = dtype == DType::f32 ? engine() & 0xffffU : 0;
          qkv.set(i / kv * (64 + kv) + 64 + i % kv, std::bit_cast<float>(upper | lower));
        }
        TestTensor pages = empty_arena(c, DType::f8_e4m3, tables.pages_max), read = qkv;
        const TestTensor empty = device_pages(pages, DType::f8_e4m3, 8, 64, c.page_tokens);
        Queue plain = test_queue(Isa::plain);
        rope_kv_write(plain, op_of(c, read, pages, PagedTensors<Table>(tables)));
        cuda::Stream stream;
        const DeviceTensor on_qkv(qkv), on_arena(empty);
        const PagedTensors<DeviceTable> on_tables(tables);
        cuda::rope_kv_write(stream, op_of(c, on_qkv, on_arena, on_tables));
        stream.wait();
        CHECK(on_arena.fetch().packed() ==
              device_pages(pages, DType::f8_e4m3, 8, 64, c.page_tokens).packed());
      }
    }
  }

  TEST_CASE("angles are exact enough at far positions") {
    constexpr std::int64_t head_dim = 64;
    const std::vector<std::int32_t> positions = {0, 1, 99999, 1000000, 16777217, 100000001};
    const auto tokens = static_cast<std::int64_t>(positions.size());
    const Case c = {1, 1, head_dim, head_dim, 16, {}};
    TestTensor qkv(DType::f32, {tokens, 3 * head_dim});
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = 0; i < head_dim / 2; ++i) qkv.set(t * 3 * head_dim + i, 1.0F);
    }
    PagedTables tables({{0, static_cast<std::int32_t>(tokens)}}, 16, 1);
    tables.position_of_row = positions;
    cuda::Stream stream;
    const DeviceTensor on_qkv(qkv), on_arena(empty_arena(c, DType::f32, tables.pages_max));
    cuda::rope_kv_write(stream, op_of(c, on_qkv, on_arena, PagedTensors<DeviceTable>(tables)));
    stream.wait();
    const TestTensor answer = on_qkv.fetch();
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = 0; i < head_dim / 2; ++i) {
        const double angle = positions[static_cast<std::size_t>(t)] *
                             std::pow(10000.0, -2.0 * static_cast<double>(i) / head_dim);
        const std::int64_t at = t * 3 * head_dim + i;
        REQUIRE(std::fabs(answer.get(at) - std::cos(angle)) <= 0x1p-21);
        REQUIRE(std::fabs(answer.get(at + head_dim / 2) - std::sin(angle)) <= 0x1p-21);
      }
    }
  }
}

}  // namespace

}  // namespace cuda_rope_kv_write_test
