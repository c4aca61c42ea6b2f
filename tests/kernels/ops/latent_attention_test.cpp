#include "kernels/ops/latent_attention.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "tests/kernels/support.h"

namespace ops_latent_attention_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr DType f32 = DType::f32, b16 = DType::bf16, f8 = DType::f8_e4m3;

struct Shape {
  std::int64_t heads, turned, plain, latent;
};
const Shape shapes[] = {{5, 8, 16, 24}, {3, 0, 10, 37}, {8, 64, 128, 512}, {1, 6, 4, 19}};

/// Two sequences of 41 and 5 tokens, whose pages alternate.
struct World {
  static constexpr std::int64_t page_tokens = 6, tokens = 46;

  World(const Shape& shape, DType dtype, DType kv)
      : s(shape),
        rows(random_tensor(dtype, {tokens, s.turned + s.latent}, 1, 1.0F, {3, 1})),
        turned(random_tensor(dtype, {tokens, s.heads * (s.turned + s.plain)}, 2, 1.0F, {1, 0})),
        latent(random_tensor(dtype, {tokens, s.heads * s.latent}, 3, 0.5F, {5, 2})),
        gate(random_tensor(dtype, {tokens, s.heads}, 4, 2.0F, {2, 1})),
        y(dtype, {tokens, s.heads * s.latent}, {7, 1}),
        pages(kv, {9, page_tokens * (s.turned + s.latent)}, {4, 0}) {}

  /// Of sequence 0 tokens from `first` on, and of sequence 1 all, or either alone.
  void run(Queue& queue, std::int64_t first, std::int64_t count, bool is_second) const {
    const auto at = static_cast<std::int32_t>(first);
    const std::int64_t begin = is_second ? 41 : first;
    const Table spans{0, static_cast<std::int32_t>(count)}, positions{is_second ? 0 : at},
        begins{0, is_second ? 1 : 7}, table = is_second ? Table{3} : Table{1, 8, 0, 4, 2, 7, 6};
    latent_write(queue, {.rows = rows.view().rows(begin, count),
                         .kv = {.arena = pages,
                                .span_begin = spans,
                                .position = positions,
                                .page_begin = begins,
                                .pages = table,
                                .page_tokens = page_tokens}});
    latent_attention(queue, attention(begin, count, spans, positions, begins, table));
  }

  LatentAttention attention(std::int64_t begin, std::int64_t count, const Table& spans,
                            const Table& positions, const Table& begins, const Table& table) const {
    return {.turned = turned.view().rows(begin, count),
            .latent = latent.view().rows(begin, count),
            .kv = {.arena = pages,
                   .span_begin = spans,
                   .position = positions,
                   .page_begin = begins,
                   .pages = table,
                   .page_tokens = page_tokens},
            .y = y.view().rows(begin, count),
            .shape = {.heads = static_cast<std::int32_t>(s.heads),
                      .turned_width = static_cast<std::int32_t>(s.turned),
                      .latent_width = static_cast<std::int32_t>(s.latent),
                      .scale = 0.3F},
            .gate = has_gate() ? gate.view().rows(begin, count) : Tensor()};
  }

  /// Both sequences in one call.
  void run_all(Queue& queue) const {
    const Table spans{0, 41, 46}, positions{0, 0}, begins{0, 7, 8}, table{1, 8, 0, 4, 2, 7, 6, 3};
    latent_write(queue, {.rows = rows,
                         .kv = {.arena = pages,
                                .span_begin = spans,
                                .position = positions,
                                .page_begin = begins,
                                .pages = table,
                                .page_tokens = page_tokens}});
    latent_attention(queue, attention(0, tokens, spans, positions, begins, table));
  }

  bool has_gate() const { return s.heads != 5; }

  /// A row's number as pages have it.
  double kept(std::int64_t token, std::int64_t i) const {
    TestTensor one(pages.view().dtype, {1, 1});
    one.set(0, rows.get(token * (s.turned + s.latent) + i));
    return one.get(0);
  }

  Shape s;
  TestTensor rows, turned, latent, gate, y, pages;
};

/// Of one token and head, in doubles.
std::vector<double> expected(const World& w, std::int64_t token, std::int64_t head) {
  const std::int64_t first = token < 41 ? 0 : 41;
  std::vector<double> weights, y(static_cast<std::size_t>(w.s.latent), 0.0);
  double sum = 0;
  for (std::int64_t key = first; key <= token; ++key) {
    double score = 0;
    for (std::int64_t i = 0; i < w.s.turned; ++i) {
      const std::int64_t at = (token * w.s.heads + head) * (w.s.turned + w.s.plain) + i;
      score += w.turned.get(at) * w.kept(key, i);
    }
    for (std::int64_t i = 0; i < w.s.latent; ++i) {
      const std::int64_t at = (token * w.s.heads + head) * w.s.latent + i;
      score += w.latent.get(at) * w.kept(key, w.s.turned + i);
    }
    weights.push_back(std::exp(0.3 * score));
    sum += weights.back();
  }
  const double factor =
      w.has_gate() ? 1 / (1 + std::exp(-w.gate.get(token * w.s.heads + head))) : 1.0;
  for (std::int64_t i = 0; i < w.s.latent; ++i) {
    for (std::size_t k = 0; k < weights.size(); ++k) {
      y[static_cast<std::size_t>(i)] +=
          weights[k] * factor / sum * w.kept(first + static_cast<std::int64_t>(k), w.s.turned + i);
    }
  }
  return y;
}

TEST_SUITE("kernels/ops/latent_attention") {
  TEST_CASE("is the softmax over the rows of pages, on every route") {
    for (const Isa isa : available_isas()) {
      for (const Shape& shape : shapes) {
        for (const auto& [dtype, kv] :
             {std::pair(f32, f32), std::pair(b16, b16), std::pair(f32, b16), std::pair(b16, f8)}) {
          CAPTURE(name_of(isa));
          CAPTURE(shape.latent);
          if (shape.latent == 512 && kv == f32) continue;
          const World w(shape, dtype, kv);
          Queue queue = test_queue(isa, 2);
          w.run_all(queue);
          CHECK(w.y.guards_intact());
          CHECK(w.pages.guards_intact());
          for (const std::int64_t token : {0, 1, 16, 33, 40, 41, 45}) {
            const std::int64_t head = token % shape.heads;
            const std::vector<double> wanted = expected(w, token, head);
            for (std::int64_t i = 0; i < shape.latent; ++i) {
              const double error =
                  std::fabs(w.y.get((token * shape.heads + head) * shape.latent + i) -
                            wanted[static_cast<std::size_t>(i)]);
              REQUIRE(error <= (dtype == b16 ? 0.02 : 2e-5));
            }
          }
        }
      }
    }
  }

  TEST_CASE("cuts, threads and other sequences change no bit") {
    std::mt19937 engine(3);
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {f32, b16}) {
        for (const Shape& shape : {shapes[0], shapes[1]}) {
          const World whole(shape, dtype, dtype);
          Queue one = test_queue(isa, 1);
          whole.run_all(one);
          for (int round = 0; round < 3; ++round) {
            const World cut(shape, dtype, dtype);
            Queue queue = test_queue(isa, 1 + round);
            cut.run(queue, 0, 5, true);
            for (std::int64_t first = 0; first < 41;) {
              const std::int64_t some = 1 + static_cast<std::int64_t>(engine() % 9);
              const std::int64_t count = std::min<std::int64_t>(41 - first, some);
              cut.run(queue, first, count, false);
              first += count;
            }
            CHECK(same_bytes(cut.y, whole.y));
            CHECK(cut.pages.everything() == whole.pages.everything());
          }
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const World w(shapes[0], f32, f32);
    const Table spans{0, 41, 46}, positions{0, 0}, begins{0, 7, 8}, table{1, 8, 0, 4, 2, 7, 6, 3};
    LatentAttention op = w.attention(0, World::tokens, spans, positions, begins, table);
    op.shape.turned_width = 200;
    CHECK_THROWS_WITH_AS(latent_attention(queue, op),
                         "latent_attention: turned is within its stride, got 200", Error);
    op = w.attention(0, World::tokens, spans, positions, begins, table);
    op.y = op.latent;
    CHECK_THROWS_WITH_AS(latent_attention(queue, op), "latent_attention: y is not latent, got 0",
                         Error);
    const Table unknown{1, 9, 0, 4, 2, 7, 6, 3};
    op = w.attention(0, World::tokens, spans, positions, begins, unknown);
    CHECK_THROWS_AS(latent_attention(queue, op), Error);
  }
}

}  // namespace
}  // namespace ops_latent_attention_test
