#include "kernels/ops/kv_write.h"

#include <doctest/doctest.h>

#include "tests/kernels/ops/attention_support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

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
    CHECK_THROWS_WITH_AS(f.write(queue, 0, 20), "kv_write: pages are within pages_of_layer, got 4",
                         Error);
    f.table.resize(1);
    CHECK_THROWS_WITH_AS(f.write(queue, 0, 20),
                         "kv_write: a page table reaches its span's end, got 20", Error);
    AttentionFixture other(DType::bf16, shape, 20, 1, DType::i32);
    CHECK_THROWS_WITH_AS(other.write(queue, 0, 20),
                         "kv_write: pages_of_layer is f32, bf16 or F8_E4M3, got 7", Error);
  }
}

}  // namespace
