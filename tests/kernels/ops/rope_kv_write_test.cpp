#include <doctest/doctest.h>

#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope_kv_write.h"
#include "tests/kernels/ops/attention_support.h"
#include "tests/kernels/support.h"

namespace ops_rope_kv_write_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

TEST_SUITE("kernels/ops/rope") {
  TEST_CASE("turns each pair by its angle and leaves the rest, on every route") {
    constexpr std::int64_t heads = 3, head_dim = 20, rotary_dim = 12;
    const Table positions{0, 7, 131071, 31};
    const std::vector<double> own = {1.0, 0.5, 0.5, 1e-3, 0.25, 1e-5};
    for (const Isa isa : available_isas()) {
      for (const auto& [dtype, frequencies] : {std::pair{DType::f32, rope_frequencies(rotary_dim)},
                                               {DType::bf16, rope_frequencies(rotary_dim)},
                                               {DType::f32, std::span<const double>(own)}}) {
        Queue queue = test_queue(isa, 2);
        const auto before = random_tensor(dtype, {4, heads * head_dim}, 1, 1.0F, {5, 1});
        TestTensor x = before;
        rope(queue, {.x = x,
                     .position_of_row = positions,
                     .heads = heads,
                     .head_dim = head_dim,
                     .frequencies = frequencies});
        CHECK(x.guards_intact());
        for (std::int64_t t = 0; t < 4; ++t) {
          for (std::int64_t h = 0; h < heads; ++h) {
            const std::int64_t at = (t * heads + h) * head_dim;
            for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
              const double angle = positions.values()[static_cast<std::size_t>(t)] *
                                   frequencies[static_cast<std::size_t>(i)];
              const double low = before.get(at + i), high = before.get(at + i + rotary_dim / 2);
              const double bound =
                  (dtype == DType::bf16 ? 0.004 : 3e-7) * (std::fabs(low) + std::fabs(high));
              REQUIRE(std::fabs(x.get(at + i) - (low * std::cos(angle) - high * std::sin(angle))) <=
                      bound);
              REQUIRE(std::fabs(x.get(at + i + rotary_dim / 2) -
                                (high * std::cos(angle) + low * std::sin(angle))) <= bound);
            }
            for (std::int64_t i = rotary_dim; i < head_dim; ++i) {
              REQUIRE(x.get(at + i) == before.get(at + i));
            }
          }
        }
      }
    }
  }

  TEST_CASE("a row's answer depends on its position only") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 3), one = test_queue(isa, 1);
      const auto before = random_tensor(DType::bf16, {50, 4 * 64}, 2);
      std::vector<std::int32_t> positions(50);
      std::iota(positions.begin(), positions.end(), 900);
      TestTensor whole = before, rows = before;
      Rope op;
      op.heads = 4;
      op.head_dim = 64;
      op.frequencies = rope_frequencies(64, 1e6);
      const Table all(positions);
      op.x = whole;
      op.position_of_row = all;
      rope(queue, op);
      for (std::int64_t t = 0; t < 50; ++t) {
        const Table position{positions[static_cast<std::size_t>(t)]};
        op.x = rows.view().rows(t, 1);
        op.position_of_row = position;
        rope(one, op);
      }
      CHECK(same_bytes(whole, rows));
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const TestTensor x(DType::f32, {1, 16});
    const Table position{0};
    const auto turn = [&](std::int64_t rotary_dim) {
      rope(queue, {.x = x,
                   .position_of_row = position,
                   .heads = 2,
                   .head_dim = 8,
                   .frequencies = rope_frequencies(rotary_dim)});
    };
    CHECK_THROWS_WITH_AS(turn(10), "rope: pairs are within head_dim, got 5", Error);
    CHECK_THROWS_WITH_AS(turn(0), "rope: there are 1 to 256 pairs, got 0", Error);
  }
}

constexpr AttentionShape shape{.heads = 4, .kv_heads = 2, .head_dim = 24};

TEST_SUITE("kernels/ops/kv_write") {
  TEST_CASE("cutting a sequence anywhere leaves the same bytes, on every route and thread count") {
    std::mt19937 engine(4);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Queue plain = test_queue(Isa::plain);
      AttentionFixture whole(dtype, shape, 75);
      whole.write(plain, 0, 75);
      CHECK(whole.arena.guards_intact());
      for (const Isa isa : available_isas()) {
        for (int round = 0; round < 6; ++round) {
          Queue queue = test_queue(isa, 1 + round % 3);
          AttentionFixture cut(dtype, shape, 75);
          const auto cuts = random_cuts(75, engine);
          for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            cut.write(queue, cuts[i], cuts[i + 1] - cuts[i]);
          }
          CHECK(cut.arena.everything() == whole.arena.everything());
        }
      }
    }
  }

  TEST_CASE("every key and value has its own place; no other place is written") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Queue queue = test_queue(best_isa(), 2);
      AttentionFixture f(dtype, shape, 21);
      f.write(queue, 0, 21);
      std::vector<float> written, sources = f.k.values();
      const auto values = f.v.values();
      sources.insert(sources.end(), values.begin(), values.end());
      for (std::int64_t i = 0; i < f.arena.size(); ++i) {
        if (!std::isnan(f.arena.get(i))) written.push_back(f.arena.get(i));
      }
      std::sort(written.begin(), written.end());
      std::sort(sources.begin(), sources.end());
      CHECK(written == sources);
      CHECK(f.arena.guards_intact());
    }
  }

  TEST_CASE("what is written is the nearest number that a page can hold") {
    Queue queue = test_queue(best_isa(), 2);
    AttentionFixture wide(DType::f32, shape, 21);
    for (std::int64_t i = 0; i < wide.k.size(); ++i) {
      wide.k.set(i, wide.k.get(i) * std::ldexp(1.0F, static_cast<int>(i % 24) - 12));
    }
    wide.k.set(3, NAN);
    wide.k.set(4, -INFINITY);
    wide.write(queue, 0, 21);
    for (const DType kv : {DType::bf16, DType::f8_e4m3}) {
      AttentionFixture f(DType::f32, shape, 21, 1, kv);
      f.k = wide.k;
      f.write(queue, 0, 21);
      CHECK(same_bytes(f.arena, pages_as(wide.arena, DType::f32, kv, shape)));
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    AttentionFixture f(DType::bf16, shape, 20);
    f.table[1] = 4;
    CHECK_THROWS_WITH_AS(f.write(queue, 0, 20), "kv_write: pages are within the arena, got 4",
                         Error);
    f.table.resize(1);
    CHECK_THROWS_WITH_AS(f.write(queue, 0, 20),
                         "kv_write: a page table reaches its span's end, got 20", Error);
    AttentionFixture other(DType::bf16, shape, 20, 1, DType::i32);
    CHECK_THROWS_WITH_AS(other.write(queue, 0, 20),
                         "kv_write: arena is f32, bf16 or F8_E4M3, got 7", Error);
  }
}

constexpr std::int64_t heads = 4, kv_heads = 2, head_dim = 24, tokens = 9, page_tokens = 4;
constexpr std::int64_t q_width = heads * head_dim, kv_width = kv_heads * head_dim;

/// One span that begins in the middle of a page.
struct Fixture {
  Table span_begin{0, tokens}, position{3}, page_begin{0, 3}, pages{5, 0, 2};
  Table position_of_row{3, 4, 5, 6, 7, 8, 9, 10, 11};

  TestTensor arena(DType dtype) const {
    TestTensor all(dtype, {6, 2 * kv_width * page_tokens}, {32, 1});
    for (std::int64_t i = 0; i < all.size(); ++i) all.set(i, NAN);
    return all;
  }
  RopeKvWrite op(const Tensor& qkv, const Tensor& arena, std::int64_t rotary_dim) const {
    return {.qkv = qkv,
            .position_of_row = rotary_dim == 0 ? Tensor() : Tensor(position_of_row),
            .kv = {.arena = arena,
                   .span_begin = span_begin,
                   .position = position,
                   .page_begin = page_begin,
                   .pages = pages,
                   .page_tokens = page_tokens},
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .frequencies = rope_frequencies(rotary_dim, 500.0)};
  }
};

TEST_SUITE("kernels/ops/rope_kv_write") {
  TEST_CASE("is rope on q and on k, then kv_write, byte for byte") {
    const Fixture f;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const DType kv_dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
        for (const std::int64_t rotary_dim : {0, 10, 24}) {
          Queue queue = test_queue(best_isa(), 2);
          TestTensor qkv = random_tensor(dtype, {tokens, q_width + 2 * kv_width}, 1, 1.0F, {5, 1});
          TestTensor q(dtype, {tokens, q_width}), k(dtype, {tokens, kv_width}),
              v(dtype, {tokens, kv_width});
          for (std::int64_t i = 0; i < qkv.size(); ++i) {
            const std::int64_t t = i / (q_width + 2 * kv_width), at = i % (q_width + 2 * kv_width);
            if (at < q_width) {
              q.set(t * q_width + at, qkv.get(i));
            } else if (at < q_width + kv_width) {
              k.set(t * kv_width + at - q_width, qkv.get(i));
            } else {
              v.set(t * kv_width + at - q_width - kv_width, qkv.get(i));
            }
          }
          if (rotary_dim != 0) {
            const auto frequencies = rope_frequencies(rotary_dim, 500.0);
            rope(queue, {q, f.position_of_row, heads, head_dim, frequencies});
            rope(queue, {k, f.position_of_row, kv_heads, head_dim, frequencies});
          }
          TestTensor expected = f.arena(kv_dtype), arena = f.arena(kv_dtype);
          kv_write(queue, {k, v, f.op(qkv, expected, 0).kv, kv_heads, head_dim});

          rope_kv_write(queue, f.op(qkv, arena, rotary_dim));
          CHECK(arena.everything() == expected.everything());
          CHECK(qkv.guards_intact());
          for (std::int64_t i = 0; i < q.size(); ++i) {
            const std::int64_t t = i / q_width, at = i % q_width;
            REQUIRE(qkv.get(t * (q_width + 2 * kv_width) + at) == q.get(i));
          }
        }
      }
    }
  }

  TEST_CASE("with weights for it is rms_norm of the heads before, and leaves columns after v") {
    const Fixture f;
    constexpr std::int64_t width = q_width + 2 * kv_width, gates = 11;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t rotary_dim : {0, 10, 24}) {
        for (const int which : {1, 2, 3, 7, 8}) {  // q, k, both, v too, q and k without weights
          CAPTURE(rotary_dim);
          CAPTURE(which);
          Queue queue = test_queue(best_isa(), 2);
          const auto q_norm = random_tensor(DType::f32, {head_dim}, 2);
          const auto k_norm = random_tensor(DType::f32, {head_dim}, 3);
          TestTensor qkv = random_tensor(dtype, {tokens, width + gates}, 1, 3.0F, {5, 1});
          TestTensor expected_qkv = qkv;
          const auto norm = [&](std::int64_t first, std::int64_t heads_normed, const Tensor& w) {
            const Tensor x = expected_qkv.view().columns(first, heads_normed * head_dim);
            rms_norm(queue, {x, w, x, 1e-3F, which == 2, heads_normed});
          };
          if (which & 4) norm(q_width + kv_width, kv_heads, {});
          if (which & 1) norm(0, heads, q_norm);
          if (which & 2) norm(q_width, kv_heads, k_norm);
          if (which & 8) norm(0, heads + kv_heads, {});
          TestTensor expected = f.arena(DType::bf16), arena = expected;
          rope_kv_write(queue, f.op(expected_qkv.view().columns(0, width), expected, rotary_dim));

          RopeKvWrite op = f.op(qkv, arena, rotary_dim);
          if (which & 1) op.q_norm = q_norm;
          if (which & 2) op.k_norm = k_norm;
          op.norm_eps = 1e-3F;
          op.norm_one_plus = which == 2;
          op.value_norm = (which & 4) != 0;
          op.weightless_norm = (which & 8) != 0;
          rope_kv_write(queue, op);
          CHECK(arena.everything() == expected.everything());
          CHECK(qkv.guards_intact());
          for (std::int64_t i = 0; i < qkv.size(); ++i) {
            const std::int64_t at = i % (width + gates);
            if (at >= q_width && at < q_width + kv_width) continue;
            REQUIRE(qkv.get(i) == expected_qkv.get(i));
          }
        }
      }
    }
  }

  TEST_CASE("the factor on queries: by the position, after all else, and on nothing else") {
    const QueryScale scale = {.beta = 0.5F, .period = 4, .offset = 1};
    CHECK(scale.at(0) == 1.0F);
    CHECK(scale.at(2) == 1.0F);
    CHECK(scale.at(3) == doctest::Approx(1.0 + 0.5 * std::log(2.0)));
    CHECK(scale.at(10) == doctest::Approx(1.0 + 0.5 * std::log(3.0)));
    CHECK(QueryScale().at(1000) == 1.0F);
    const Fixture f;
    constexpr std::int64_t width = q_width + 2 * kv_width;
    for (const auto& [dtype, is_rounded] :
         {std::pair{DType::f32, true}, {DType::bf16, true}, {DType::bf16, false}}) {
      for (const std::int64_t rotary_dim : {0, 24}) {
        Queue queue = test_queue(best_isa(), 2);
        TestTensor qkv = random_tensor(dtype, {tokens, width}, 1), expected = qkv;
        TestTensor arena = f.arena(dtype), expected_arena = arena;
        rope_kv_write(queue, f.op(expected, expected_arena, rotary_dim));
        RopeKvWrite op = f.op(qkv, arena, rotary_dim);
        op.position_of_row = f.position_of_row;
        op.query_scale = scale;
        op.query_scale.is_rounded = is_rounded;
        rope_kv_write(queue, op);
        CHECK(arena.everything() == expected_arena.everything());
        TestTensor factor(is_rounded ? dtype : DType::f32, {1}), product(dtype, {1});
        for (std::int64_t i = 0; i < qkv.size(); ++i) {
          factor.set(0, scale.at(3 + i / width));
          product.set(0, expected.get(i) * (i % width < q_width ? factor.get(0) : 1.0F));
          REQUIRE(qkv.get(i) == product.get(0));
        }
      }
    }
  }

  TEST_CASE("the factor on what is turned of queries, in one rounding, and on nothing else") {
    constexpr float factor = 1.3F;
    constexpr std::int64_t width = q_width + 2 * kv_width, rotary_dim = 8;
    const Fixture f;
    Queue queue = test_queue(best_isa(), 2);
    TestTensor exact = random_tensor(DType::f32, {tokens, width}, 1),
               plain(DType::bf16, {tokens, width});
    for (std::int64_t i = 0; i < plain.size(); ++i) plain.set(i, exact.get(i));
    for (std::int64_t i = 0; i < plain.size(); ++i) exact.set(i, plain.get(i));
    TestTensor scaled = plain, exact_arena = f.arena(DType::f32);
    TestTensor arena = f.arena(DType::bf16), scaled_arena = arena;
    rope_kv_write(queue, f.op(exact, exact_arena, rotary_dim));
    rope_kv_write(queue, f.op(plain, arena, rotary_dim));
    RopeKvWrite op = f.op(scaled, scaled_arena, rotary_dim);
    op.query_scale.rotated = factor;
    rope_kv_write(queue, op);
    CHECK(scaled_arena.everything() == arena.everything());
    for (std::int64_t i = 0; i < plain.size(); ++i) {
      const bool is_turned = i % width < q_width && i % width % head_dim < rotary_dim;
      if (!is_turned) {
        REQUIRE(scaled.get(i) == plain.get(i));
        continue;
      }
      const double wanted = double{exact.get(i)} * factor;
      REQUIRE(std::fabs(scaled.get(i) - wanted) <= 0.00391 * std::fabs(wanted) + 1e-6);
    }
  }

  TEST_CASE("queries alone are what they are among keys and values, and nothing is written") {
    const Fixture f;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Queue queue = test_queue(best_isa(), 2);
      const auto q_norm = random_tensor(DType::f32, {head_dim}, 2);
      TestTensor whole = random_tensor(dtype, {tokens, q_width + 2 * kv_width}, 1);
      TestTensor queries(dtype, {tokens, q_width + 5}, {3, 1});
      for (std::int64_t i = 0; i < queries.size(); ++i) {
        const std::int64_t t = i / (q_width + 5), at = i % (q_width + 5);
        queries.set(i, whole.get(t * (q_width + 2 * kv_width) + at));
      }
      TestTensor arena = f.arena(dtype);
      const TestTensor before = arena;
      RopeKvWrite op = f.op(queries, arena, 24);
      op.q_norm = q_norm;
      op.queries_only = true;
      rope_kv_write(queue, op);
      CHECK(arena.everything() == before.everything());
      CHECK(queries.guards_intact());
      op = f.op(whole, arena, 24);
      op.q_norm = q_norm;
      rope_kv_write(queue, op);
      for (std::int64_t i = 0; i < queries.size(); ++i) {
        const std::int64_t t = i / (q_width + 5), at = i % (q_width + 5);
        if (at < q_width) {
          REQUIRE(queries.get(i) == whole.get(t * (q_width + 2 * kv_width) + at));
        }
      }
      op.queries_only = true;
      op.k_norm = q_norm;
      CHECK_THROWS_WITH_AS(rope_kv_write(queue, op),
                           "rope_kv_write: queries alone have no norms of keys and values, got 0",
                           Error);
    }
  }

  TEST_CASE("names the broken rule") {
    const Fixture f;
    Queue queue = test_queue(Isa::plain);
    const TestTensor narrow(DType::f32, {tokens, q_width + kv_width});
    CHECK_THROWS_WITH_AS(rope_kv_write(queue, f.op(narrow, f.arena(DType::f32), 0)),
                         "rope_kv_write: qkv needs 192 in dimension 1, got 144", Error);
    const TestTensor qkv(DType::f32, {tokens, q_width + 2 * kv_width});
    CHECK_THROWS_WITH_AS(rope_kv_write(queue, f.op(qkv, f.arena(DType::f32), 26)),
                         "rope_kv_write: pairs are within head_dim, got 13", Error);
    RopeKvWrite op = f.op(qkv, f.arena(DType::f32), 0);
    const TestTensor norm(DType::f32, {head_dim + 1});
    op.k_norm = norm;
    CHECK_THROWS_WITH_AS(rope_kv_write(queue, op),
                         "rope_kv_write: k_norm needs 24 in dimension 0, got 25", Error);
  }
}

}  // namespace

}  // namespace ops_rope_kv_write_test
