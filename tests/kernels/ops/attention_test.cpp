#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>

#include "kernels/ops/attention.h"
#include "tests/kernels/ops/attention_support.h"

namespace ops_attention_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr AttentionShape shapes[] = {{.heads = 4, .kv_heads = 2, .head_dim = 24},
                                     {.heads = 12, .kv_heads = 4, .head_dim = 64},
                                     {.heads = 3, .kv_heads = 3, .head_dim = 128},
                                     {.heads = 8, .kv_heads = 1, .head_dim = 80},
                                     {.heads = 2, .kv_heads = 2, .head_dim = 32, .page_tokens = 6},
                                     {.heads = 7, .kv_heads = 1, .head_dim = 256},
                                     {.heads = 5, .kv_heads = 5, .head_dim = 2}};

/// None, shorter and longer than a tile of keys, a page and the sequence.
constexpr AttentionReach reaches[] = {{},
                                      {.window = 1},
                                      {.window = 16},
                                      {.window = 37},
                                      {.window = 150},
                                      {.window = 999},
                                      {.chunk = 1},
                                      {.chunk = 48},
                                      {.chunk = 70},
                                      {.chunk = 999},
                                      {.window = 37, .chunk = 64}};

/// Softmax attention of one query head in doubles.
std::vector<double> expected(const AttentionFixture& f, std::int64_t token, std::int64_t head) {
  const std::int64_t dim = f.s.head_dim, kv_head = head / (f.s.heads / f.s.kv_heads);
  std::int64_t first =
      f.reach.window == 0 ? 0 : std::max<std::int64_t>(0, token - f.reach.window + 1);
  if (f.reach.chunk != 0) first = std::max(first, token - token % f.reach.chunk);
  const double sink = f.sinks.size() == f.s.heads ? f.sinks.get(head) : -INFINITY;
  std::vector<double> weights, y(static_cast<std::size_t>(dim), 0.0);
  double largest = sink, sum = 0.0;
  for (std::int64_t p = first; p <= token; ++p) {
    double dot = 0;
    for (std::int64_t i = 0; i < dim; ++i) {
      dot += static_cast<double>(f.q.get((token * f.s.heads + head) * dim + i)) *
             f.k.get((p * f.s.kv_heads + kv_head) * dim + i);
    }
    const double score = dot * f.scale;
    weights.push_back(f.softcap == 0.0F ? score : f.softcap * std::tanh(score / f.softcap));
    largest = std::max(largest, weights.back());
  }
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  sum += std::exp(sink - largest);
  for (std::int64_t p = first; p <= token; ++p) {
    for (std::int64_t i = 0; i < dim; ++i) {
      y[static_cast<std::size_t>(i)] += weights[static_cast<std::size_t>(p - first)] / sum *
                                        f.v.get((p * f.s.kv_heads + kv_head) * dim + i);
    }
  }
  return y;
}

/// The pages of a fixture in memory of which some cannot be read.
class MappedPages {
 public:
  explicit MappedPages(const TestTensor& arena)
      : view_(arena.view()),
        page_bytes_(static_cast<std::size_t>(view_.dim(1)) * size_of(view_.dtype)) {
    REQUIRE(page_bytes_ % 4096 == 0);
    const std::size_t bytes = static_cast<std::size_t>(view_.dim(0)) * page_bytes_;
    memory_ = {static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
               bytes};
    REQUIRE(memory_.data() != MAP_FAILED);
    const std::byte* const from = static_cast<const std::byte*>(view_.data);
    const std::size_t stride = static_cast<std::size_t>(view_.row_stride) * size_of(view_.dtype);
    for (std::int64_t page = 0; page < view_.dim(0); ++page) {
      const auto i = static_cast<std::size_t>(page);
      std::memcpy(memory_.data() + i * page_bytes_, from + i * stride, page_bytes_);
    }
    view_.data = memory_.data();
    view_.row_stride = view_.dim(1);
  }
  MappedPages(const MappedPages&) = delete;
  ~MappedPages() { munmap(memory_.data(), memory_.size()); }

  const Tensor& view() const { return view_; }

  void allow(std::int32_t page, bool reads) {
    std::byte* const at = memory_.data() + static_cast<std::size_t>(page) * page_bytes_;
    REQUIRE(mprotect(at, page_bytes_, reads ? PROT_READ : PROT_NONE) == 0);
  }

 private:
  Tensor view_;
  std::size_t page_bytes_;
  std::span<std::byte> memory_;
};

TEST_SUITE("kernels/ops/attention") {
  TEST_CASE("is causal softmax attention on every route; unwritten places are never read") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const AttentionShape& shape : shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(shape.head_dim);
          Queue queue = test_queue(isa, 2);
          AttentionFixture f(dtype, shape, 85);
          f.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
          f.write(queue, 0, 85);
          const auto q = f.q.everything(), arena = f.arena.everything();
          f.attend(queue, 0, 85);
          CHECK(f.y.guards_intact());
          CHECK(f.q.everything() == q);
          CHECK(f.arena.everything() == arena);
          const double bound = dtype == DType::bf16 ? 0.012 : 4e-6;
          for (std::int64_t t = 0; t < 85; t += 4) {
            for (std::int64_t h = 0; h < shape.heads; ++h) {
              const auto want = expected(f, t, h);
              for (std::int64_t i = 0; i < shape.head_dim; ++i) {
                const double e = want[static_cast<std::size_t>(i)];
                const double got = f.y.get((t * shape.heads + h) * shape.head_dim + i);
                REQUIRE(std::fabs(got - e) <= bound * (std::fabs(e) + 0.5));
              }
            }
          }
        }
      }
    }
  }

  TEST_CASE("windows and chunks hide earlier keys, a sink takes weight, a softcap flattens") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const AttentionReach& reach : reaches) {
          for (const float softcap : {0.0F, 0.7F}) {
            CAPTURE(name_of(isa));
            CAPTURE(reach.window);
            CAPTURE(reach.chunk);
            Queue queue = test_queue(isa, 2);
            AttentionFixture f(dtype, {.heads = 6, .kv_heads = 2, .head_dim = 32}, 200);
            f.reach = reach;
            f.softcap = softcap;
            if (reach.window != 16) f.sinks = random_tensor(DType::f32, {6}, 9, 3.0F);
            f.write(queue, 0, 200);
            f.attend(queue, 0, 200);
            const double bound = dtype == DType::bf16 ? 0.012 : 4e-6;
            for (std::int64_t t = 0; t < 200; t += 3) {
              for (std::int64_t h = 0; h < 6; ++h) {
                const auto want = expected(f, t, h);
                for (std::int64_t i = 0; i < 32; ++i) {
                  const double e = want[static_cast<std::size_t>(i)];
                  const double got = f.y.get((t * 6 + h) * 32 + i);
                  REQUIRE(std::fabs(got - e) <= bound * (std::fabs(e) + 0.5));
                }
              }
            }
          }
        }
      }
    }
  }

  TEST_CASE("keys out of reach may be anything, their pages may be gone") {
    constexpr std::int64_t first = 180, count = 5, width = 6 * 32;
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const AttentionReach& reach : reaches) {
          CAPTURE(name_of(isa));
          CAPTURE(reach.window);
          CAPTURE(reach.chunk);
          Queue queue = test_queue(isa, 2);
          AttentionFixture f(dtype, {.heads = 6, .kv_heads = 2, .head_dim = 32}, first + count);
          f.reach = reach;
          f.write(queue, 0, first + count);
          f.attend(queue, first, count);
          const auto values = [&] {
            std::vector<float> found;
            for (std::int64_t i = 0; i < count * width; ++i)
              found.push_back(f.y.get(first * width + i));
            return found;
          };
          const std::vector<float> whole = values();
          const std::int64_t seen = first_key(reach, first);
          for (std::int64_t i = 0; i < seen * 2 * 32; ++i) {
            f.k.set(i, NAN);
            f.v.set(i, i % 2 == 0 ? INFINITY : NAN);
          }
          if (seen > 0) f.write(queue, 0, seen);
          f.attend(queue, first, count);
          CHECK(values() == whole);
          for (std::int64_t page = 0; page < seen / 16; ++page) {
            f.table[static_cast<std::size_t>(page)] = -1;
          }
          f.attend(queue, first, count);
          CHECK(values() == whole);
          f.table[static_cast<std::size_t>(seen / 16)] = -1;
          CHECK_THROWS_AS(f.attend(queue, first, count), Error);
        }
      }
    }
  }

  TEST_CASE("no page out of reach is read, in decode and prefill: each would end the process") {
    constexpr AttentionShape shape{.heads = 8, .kv_heads = 2, .head_dim = 64};
    constexpr std::int64_t tokens = 803;
    for (const Isa isa : available_isas()) {
      for (const DType kv : {DType::bf16, DType::f8_e4m3}) {
        Queue queue = test_queue(isa, 2);
        AttentionFixture f(DType::bf16, shape, tokens, 1, kv);
        f.write(queue, 0, tokens);
        MappedPages pages(f.arena);
        for (const AttentionReach& reach : reaches) {
          f.reach = reach;
          for (const auto& [first, count] :
               {std::pair{tokens - 1, std::int64_t{1}}, {600, 40}, {640, 3}}) {
            CAPTURE(name_of(isa));
            CAPTURE(reach.window);
            CAPTURE(reach.chunk);
            const auto answer = [&] {
              f.attend(queue, first, count);
              return f.y.everything();
            };
            f.mapped = {};
            const auto want = answer();
            for (std::int32_t page = 0; page < pages.view().dim(0); ++page) {
              pages.allow(page, false);
            }
            const std::int64_t last = first + count - 1;
            for (std::int64_t i = first_key(reach, first) / 16; i <= last / 16; ++i) {
              pages.allow(f.table[static_cast<std::size_t>(i)], true);
            }
            f.mapped = pages.view();
            CHECK(answer() == want);
          }
        }
      }
    }
  }

  TEST_CASE("a gate multiplies the rounded answer, on every route, with partials merged or not") {
    constexpr std::int64_t tokens = attention_run_keys + 40;
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t window : {0, 30}) {
          CAPTURE(name_of(isa));
          CAPTURE(window);
          const AttentionShape shape{.heads = 3, .kv_heads = 1, .head_dim = 38};
          const std::int64_t width = shape.heads * shape.head_dim;
          Queue queue = test_queue(isa, 3);
          AttentionFixture plain(dtype, shape, tokens), gated = plain;
          plain.reach = gated.reach = {.window = window};
          gated.gate = random_tensor(dtype, {tokens, width}, 8, 4.0F, {11, 3});
          const std::int64_t last = tokens * width - 5;
          gated.gate.set(last, -200.0F);
          gated.gate.set(last + 1, 200.0F);
          gated.gate.set(last + 2, NAN);
          TestTensor workspace(
              DType::f32,
              {static_cast<std::int64_t>(
                  attention_workspace_bytes(Device::cpu, 1, shape.heads, shape.head_dim, tokens) /
                  4)});
          for (AttentionFixture* const f : {&plain, &gated}) {
            f->write(queue, 0, tokens);
            f->attend(queue, 0, tokens - 1);
            f->attend(queue, tokens - 1, 1, workspace);
          }
          CHECK(gated.y.guards_intact());
          CHECK(gated.y.get(last) == 0.0F);
          CHECK(gated.y.get(last + 1) == plain.y.get(last + 1));
          CHECK(std::isnan(gated.y.get(last + 2)));
          gated.y.set(last + 2, 0.0F);
          const double bound = dtype == DType::bf16 ? 0x1.01p-8 : 0x1p-20;
          for (std::int64_t i = 0; i < tokens * width; ++i) {
            if (i == last + 2) continue;
            const double want = plain.y.get(i) / (1.0 + std::exp(-1.0 * gated.gate.get(i)));
            REQUIRE(std::fabs(gated.y.get(i) - want) <= bound * std::fabs(want) + 1e-30);
          }
        }
      }
    }
  }

  TEST_CASE("one gate per head is the same one for all its dimensions, to the bit") {
    constexpr std::int64_t tokens = attention_run_keys + 40;
    const AttentionShape shapes[] = {{.heads = 6, .kv_heads = 2, .head_dim = 38},
                                     {.heads = 1, .kv_heads = 1, .head_dim = 2}};
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const AttentionShape& shape : shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(shape.heads);
          Queue queue = test_queue(isa, 3);
          AttentionFixture per_head(dtype, shape, tokens), repeated = per_head;
          per_head.gate = random_tensor(dtype, {tokens, shape.heads}, 8, 4.0F, {3, 1});
          repeated.gate = repeated_gate(per_head.gate, shape.head_dim);
          TestTensor workspace(
              DType::f32,
              {static_cast<std::int64_t>(
                  attention_workspace_bytes(Device::cpu, 1, shape.heads, shape.head_dim, tokens) /
                  4)});
          for (AttentionFixture* const f : {&per_head, &repeated}) {
            f->write(queue, 0, tokens);
            f->attend(queue, 0, tokens - 1);
            f->attend(queue, tokens - 1, 1, workspace);
          }
          CHECK(per_head.y.guards_intact());
          CHECK(same_bytes(per_head.y, repeated.y));
        }
      }
    }
  }

  TEST_CASE("keys and values of another type than the activations, cut anywhere") {
    std::mt19937 engine(3);
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const DType kv = dtype == DType::f32 ? DType::bf16 : DType::f32;
        for (const AttentionShape& shape : shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(shape.head_dim);
          Queue queue = test_queue(isa, 2);
          AttentionFixture f(dtype, shape, 85, 1, kv);
          f.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
          f.write(queue, 0, 85);
          const auto q = f.q.everything();
          f.attend(queue, 0, 85);
          CHECK(f.y.guards_intact());
          CHECK(f.arena.guards_intact());
          CHECK(f.q.everything() == q);
          for (std::int64_t t = 0; t < 85; t += 7) {
            for (std::int64_t h = 0; h < shape.heads; ++h) {
              const auto want = expected(f, t, h);
              for (std::int64_t i = 0; i < shape.head_dim; ++i) {
                const double e = want[static_cast<std::size_t>(i)];
                const double got = f.y.get((t * shape.heads + h) * shape.head_dim + i);
                const double bound = kv == DType::bf16 ? 0.012 : 0.0041;
                REQUIRE(std::fabs(got - e) <= bound * (std::fabs(e) + 0.5));
              }
            }
          }
          AttentionFixture cut(dtype, shape, 85, 1, kv);
          cut.scale = f.scale;
          const auto cuts = random_cuts(85, engine);
          for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            cut.write(queue, cuts[i], cuts[i + 1] - cuts[i]);
            cut.attend(queue, cuts[i], cuts[i + 1] - cuts[i]);
          }
          CHECK(same_bytes(cut.y, f.y));
        }
      }
    }
  }

  TEST_CASE("the size of a page changes no bit") {
    for (const Isa isa : available_isas()) {
      for (const DType kv : {DType::f32, DType::bf16, DType::f8_e4m3}) {
        const DType own = kv == DType::f32 ? DType::f32 : DType::bf16;
        Queue queue = test_queue(isa, 2);
        AttentionFixture usual(own, {.heads = 4, .kv_heads = 2, .head_dim = 64}, 300, 1, kv);
        usual.write(queue, 0, 300);
        usual.attend(queue, 0, 300);
        for (const std::int64_t page : {32, 64, 128}) {
          AttentionShape shape = usual.s;
          shape.page_tokens = page;
          AttentionFixture f(own, shape, 300, 1, kv);
          f.write(queue, 0, 300);
          f.attend(queue, 0, 300);
          CHECK(same_bytes(f.y, usual.y));
        }
      }
    }
  }

  TEST_CASE("cutting a sequence anywhere changes nothing, on any threads, with any workspace") {
    std::mt19937 engine(9);
    constexpr std::int64_t tokens = 2 * attention_run_keys + 70;
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const AttentionShape& shape :
             {AttentionShape{.heads = 6, .kv_heads = 2, .head_dim = 64},
              AttentionShape{.heads = 1, .kv_heads = 1, .head_dim = 18}}) {
          CAPTURE(name_of(isa));
          Queue one = test_queue(isa, 1);
          AttentionFixture whole(dtype, shape, tokens);
          whole.write(one, 0, tokens);
          whole.attend(one, 0, tokens);
          TestTensor workspace(
              DType::f32,
              {static_cast<std::int64_t>(
                  attention_workspace_bytes(Device::cpu, 1, shape.heads, shape.head_dim, tokens) /
                  4)});
          for (int round = 0; round < 3; ++round) {
            Queue queue = test_queue(isa, 1 + round % 3);
            AttentionFixture cut(dtype, shape, tokens);
            // One token at a time over a part that crosses a run's end, random pieces elsewhere.
            auto cuts = random_cuts(tokens - 100, engine);
            for (std::int32_t t = tokens - 99; t <= tokens; ++t) cuts.push_back(t);
            for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
              cut.write(queue, cuts[i], cuts[i + 1] - cuts[i]);
              cut.attend(queue, cuts[i], cuts[i + 1] - cuts[i],
                         round == 0 ? Tensor{} : workspace.view());
            }
            CHECK(same_bytes(cut.y, whole.y));
            CHECK(workspace.guards_intact());
          }
        }
      }
    }
  }

  TEST_CASE("so with windows and chunks, in a workspace for the keys in reach") {
    std::mt19937 engine(10);
    constexpr std::int64_t tokens = 2 * attention_run_keys + 70;
    constexpr AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 20};
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const AttentionReach& reach : {AttentionReach{.window = 40},
                                            {.window = 530},
                                            {.chunk = 300},
                                            {.chunk = 513},
                                            {.window = 600, .chunk = 700}}) {
          CAPTURE(name_of(isa));
          CAPTURE(reach.window);
          CAPTURE(reach.chunk);
          Queue one = test_queue(isa, 1);
          AttentionFixture whole(dtype, shape, tokens);
          whole.reach = reach;
          whole.softcap = reach.window == 40 ? 2.0F : 0.0F;
          if (reach.chunk != 300) whole.sinks = random_tensor(DType::f32, {6}, 9, 3.0F);
          AttentionFixture cut = whole;
          whole.write(one, 0, tokens);
          whole.attend(one, 0, tokens);
          const std::int64_t keys = std::max(reach.window, reach.chunk);
          TestTensor workspace(
              DType::f32,
              {static_cast<std::int64_t>(attention_workspace_bytes(Device::cpu, 1, shape.heads,
                                                                   shape.head_dim, tokens, keys) /
                                         4)});
          Queue queue = test_queue(isa, 3);
          auto cuts = random_cuts(tokens - 130, engine);
          for (std::int32_t t = tokens - 129; t <= tokens; ++t) cuts.push_back(t);
          for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            cut.write(queue, cuts[i], cuts[i + 1] - cuts[i]);
            cut.attend(queue, cuts[i], cuts[i + 1] - cuts[i],
                       i % 3 == 0 ? Tensor{} : workspace.view());
          }
          CHECK(same_bytes(cut.y, whole.y));
          CHECK(workspace.guards_intact());
        }
      }
    }
  }

  TEST_CASE("neighbours in the step and their order change nothing") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const AttentionShape shape{.heads = 4, .kv_heads = 2, .head_dim = 32};
        Queue queue = test_queue(isa, 3), one = test_queue(isa, 1);
        AttentionFixture f(dtype, shape, 90);
        f.write(one, 0, 90);
        f.attend(one, 0, 90);
        // The same sequence three times, at other lengths: rows 40..59, then 89, then 7..30.
        const Table begin{0, 20, 21, 45}, position{40, 89, 7}, page_begin{0, 4, 10, 12};
        std::vector<std::int32_t> pages;
        for (const std::size_t count : {4, 6, 2}) {
          for (std::size_t i = 0; i < count; ++i) pages.push_back(f.table[i]);
        }
        std::vector<std::int64_t> rows;
        for (std::int64_t t = 40; t < 60; ++t) rows.push_back(t);
        rows.push_back(89);
        for (std::int64_t t = 7; t < 31; ++t) rows.push_back(t);
        const std::int64_t width = shape.heads * shape.head_dim;
        TestTensor q(dtype, {45, width}), y(dtype, {45, width});
        for (std::int64_t r = 0; r < 45; ++r) {
          for (std::int64_t i = 0; i < width; ++i) {
            q.set(r * width + i, f.q.get(rows[static_cast<std::size_t>(r)] * width + i));
          }
        }
        paged_attention(queue, {.q = q,
                                .kv = {.arena = f.arena,
                                       .span_begin = begin,
                                       .position = position,
                                       .page_begin = page_begin,
                                       .pages = Table(pages)},
                                .y = y,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 32,
                                .scale = f.scale});
        for (std::int64_t r = 0; r < 45; ++r) {
          for (std::int64_t i = 0; i < width; ++i) {
            REQUIRE(y.get(r * width + i) == f.y.get(rows[static_cast<std::size_t>(r)] * width + i));
          }
        }
      }
    }
  }

  TEST_CASE("one key gives its value; later tokens, even infinite ones, reach no earlier answer") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = 16};
        Queue queue = test_queue(isa);
        AttentionFixture clean(dtype, shape, 40), dirty(dtype, shape, 40);
        for (std::int64_t i = 20 * 16; i < 40 * 16; ++i) {
          dirty.v.set(i, i % 2 == 0 ? INFINITY : NAN);
          dirty.k.set(i, NAN);
        }
        for (AttentionFixture* const f : {&clean, &dirty}) {
          f->write(queue, 0, 40);
          f->attend(queue, 0, 40);
        }
        for (std::int64_t i = 0; i < 20 * 32; ++i) REQUIRE(clean.y.get(i) == dirty.y.get(i));
        for (std::int64_t i = 0; i < 32; ++i) CHECK(clean.y.get(i) == clean.v.get(i % 16));
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    AttentionFixture f(DType::bf16, {.heads = 4, .kv_heads = 2, .head_dim = 24}, 20);
    const auto refused = [&](const char* rule, std::int64_t count) {
      CHECK_THROWS_WITH_AS(f.attend(queue, 0, count), rule, Error);
    };
    f.table.resize(1);
    refused("paged_attention: a page table reaches its span's end, got 20", 20);
    f.table.resize(2);
    f.gate = TestTensor(DType::f32, {20, 96});
    refused("paged_attention: gate has the wrong type, got 1", 8);
    f.gate = TestTensor(DType::bf16, {20, 5});
    refused("paged_attention: gate needs 96 in dimension 1, got 5", 8);
    f.gate = {};
    f.s.kv_heads = 3;
    refused("paged_attention: kv_heads divides heads, got 3", 8);
  }
}

constexpr AttentionShape fp8_shapes[] = {
    {.heads = 4, .kv_heads = 2, .head_dim = 24},
    {.heads = 12, .kv_heads = 4, .head_dim = 64, .page_tokens = 64},
    {.heads = 3, .kv_heads = 3, .head_dim = 128},
    {.heads = 8, .kv_heads = 1, .head_dim = 80, .page_tokens = 32},
    {.heads = 2, .kv_heads = 2, .head_dim = 32, .page_tokens = 6},
    {.heads = 7, .kv_heads = 1, .head_dim = 256},
    {.heads = 1, .kv_heads = 1, .head_dim = 512},
    {.heads = 5, .kv_heads = 5, .head_dim = 2}};

TEST_SUITE("kernels/ops/attention_widen") {
  TEST_CASE("pages of F8_E4M3 answer as pages of bf16 with the same numbers, cut anywhere") {
    std::mt19937 engine(6);
    constexpr std::int64_t tokens = attention_run_keys + 85;
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const AttentionShape& shape : fp8_shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(shape.head_dim);
          Queue queue = test_queue(isa, 2);
          AttentionFixture f(dtype, shape, tokens, 1, DType::f8_e4m3);
          f.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
          f.write(queue, 0, tokens);
          const auto q = f.q.everything(), arena = f.arena.everything();
          f.attend(queue, 0, tokens);
          CHECK(f.y.guards_intact());
          CHECK(f.q.everything() == q);
          CHECK(f.arena.everything() == arena);
          AttentionFixture wide(dtype, shape, tokens, 1, DType::bf16);
          wide.scale = f.scale;
          wide.arena = pages_as(f.arena, DType::f8_e4m3, DType::bf16, shape);
          wide.attend(queue, 0, tokens);
          CHECK(same_bytes(wide.y, f.y));

          AttentionFixture cut(dtype, shape, tokens, 1, DType::f8_e4m3);
          cut.scale = f.scale;
          const auto cuts = random_cuts(static_cast<std::int32_t>(tokens), engine);
          for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            cut.write(queue, cuts[i], cuts[i + 1] - cuts[i]);
            cut.attend(queue, cuts[i], cuts[i + 1] - cuts[i]);
          }
          CHECK(same_bytes(cut.y, f.y));
        }
      }
    }
  }

  TEST_CASE("windows, sinks and gates over pages of F8_E4M3 are those over bf16, too") {
    const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 32};
    for (const Isa isa : available_isas()) {
      for (const std::int64_t window : {0, 37}) {
        Queue queue = test_queue(isa, 2);
        AttentionFixture f(DType::bf16, shape, 85, 1, DType::f8_e4m3);
        f.reach.window = window;
        if (window != 0) f.sinks = random_tensor(DType::f32, {6}, 9, 3.0F);
        f.gate = random_tensor(DType::bf16, {85, 6 * 32}, 8, 4.0F);
        f.write(queue, 0, 85);
        AttentionFixture wide = f;
        wide.arena = pages_as(f.arena, DType::f8_e4m3, DType::bf16, shape);
        f.attend(queue, 0, 85);
        wide.attend(queue, 0, 85);
        CHECK(same_bytes(wide.y, f.y));
      }
    }
  }

  TEST_CASE("every code of F8_E4M3 is read as its number") {
    const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 256};
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa);
      AttentionFixture f(DType::bf16, shape, 1, 1, DType::f8_e4m3);
      for (std::int64_t i = 0; i < 256; ++i) {
        f.v.set(i, e4m3_to_float(static_cast<std::uint8_t>(i)));
      }
      f.write(queue, 0, 1);
      f.attend(queue, 0, 1);
      for (std::int64_t i = 0; i < 256; ++i) {
        CAPTURE(i);
        CHECK(std::isnan(f.y.get(i)) == std::isnan(f.v.get(i)));
        if (!std::isnan(f.v.get(i))) CHECK(f.y.get(i) == f.v.get(i));
      }
    }
  }
}

}  // namespace

}  // namespace ops_attention_test
