#include <doctest/doctest.h>

#include <optional>

#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/routes.h"
#include "kernels/ops/kv_write.h"
#include "tests/cuda/paged_support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Shape {
  std::int64_t heads, kv_heads, head_dim;
  DType dtype = DType::bf16, kv_dtype = DType::bf16;
  std::int32_t page_tokens = 16;
};

/// Sequences with queries, keys and values for every position, and a step that attends the spans.
/// Places that no token has reached hold NaN.
struct Step {
  Step(const Shape& shape, const std::vector<TestSpan>& spans, std::uint32_t seed = 1)
      : s(shape), tables(spans, s.page_tokens, seed) {
    const std::int64_t page = 2 * s.kv_heads * s.head_dim * s.page_tokens;
    q = random_tensor(s.dtype, {tables.tokens, width()}, seed, 1.0F, {16, 8});
    arena = TestTensor(s.kv_dtype, {tables.pages_max, page}, {16, 8});
    for (std::int64_t i = 0; i < arena.size(); ++i) arena.set(i, NAN);
    expected = TestTensor(s.dtype, {tables.tokens, width()});
    std::int64_t positions = 0;
    Table begin{0}, first{0};
    std::vector<std::int32_t> begins{0}, firsts;
    for (const TestSpan& span : spans) {
      positions += span.position + span.tokens;
      begins.push_back(static_cast<std::int32_t>(positions));
      firsts.push_back(0);
    }
    const auto k = random_tensor(s.dtype, {positions, s.kv_heads * s.head_dim}, seed + 1);
    const auto v = random_tensor(s.dtype, {positions, s.kv_heads * s.head_dim}, seed + 2);
    Queue plain = test_queue(Isa::plain, 2);
    const PagedTensors<Table> host(tables);
    const Table all_begins(begins), all_firsts(firsts);
    kv_write(plain, {k, v, arena, all_begins, all_firsts, host.page_begin, host.pages, s.kv_heads,
                     s.head_dim, s.page_tokens});
    kernels::attention(plain, op(q, arena, host, expected));
  }

  std::int64_t width() const { return s.heads * s.head_dim; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(s.head_dim)); }

  template <typename Tables>
  Attention op(const Tensor& queries, const Tensor& pages, const Tables& t, const Tensor& y,
               const Tensor& workspace = {}) const {
    return {.q = queries,
            .pages_of_layer = pages,
            .span_begin = t.span_begin,
            .position = t.position,
            .page_begin = t.page_begin,
            .pages = t.pages,
            .y = y,
            .heads = s.heads,
            .kv_heads = s.kv_heads,
            .head_dim = s.head_dim,
            .page_tokens = s.page_tokens,
            .scale = scale(),
            .workspace = workspace};
  }
  TestTensor pages() const {
    return device_pages(arena, s.kv_dtype, s.kv_heads, s.head_dim, s.page_tokens);
  }

  Shape s;
  PagedTables tables;
  TestTensor q, arena, expected;
};

/// Room for records of every run of every row.
TestTensor workspace_for(const Step& step, std::int64_t positions) {
  const auto bytes =
      cuda::attention_workspace_bytes(step.tables.tokens, step.s.heads, step.s.head_dim, positions);
  return TestTensor(DType::f32, {static_cast<std::int64_t>(bytes / 4)});
}

/// Tickets are zero again.
bool is_ready(const TestTensor& workspace) {
  const std::vector<std::byte> bytes = workspace.packed();
  return std::all_of(bytes.begin(), bytes.begin() + 8192 * 4,
                     [](std::byte byte) { return byte == std::byte{0}; });
}

/// The step's answer, from a graph; padding spans and rows stand behind it.
TestTensor attend(const Step& step, std::optional<TestTensor> workspace = {},
                  std::int64_t padding_spans = 0, std::int64_t padding_rows = 0) {
  const PagedTables padded = step.tables.padded(padding_spans, padding_rows);
  TestTensor q = TestTensor(step.s.dtype, {padded.tokens, step.width()}, {16, 8});
  TestTensor y(step.s.dtype, {padded.tokens, step.width()}, {8, 8});
  for (std::int64_t i = 0; i < q.size(); ++i) {
    q.set(i, i < step.q.size() ? step.q.get(i) : NAN);
    y.set(i, 77.0F);
  }
  cuda::Stream stream;
  const DeviceTensor on_q(q), on_y(y), on_pages(step.pages());
  const DeviceTensor on_workspace(workspace ? *workspace : TestTensor(DType::f32, {4}));
  const PagedTensors<DeviceTable> tables(padded);
  const Attention op =
      step.op(on_q, on_pages, tables, on_y, workspace ? Tensor(on_workspace) : Tensor());
  const cuda::Graph graph(stream, [&] { cuda::attention(stream, op); });
  graph.replay(stream);
  graph.replay(stream);  // on the workspace as the first left it
  stream.wait();
  const TestTensor answer = on_y.fetch();
  CHECK(answer.guards_intact());
  CHECK(on_q.fetch().everything() == q.everything());
  CHECK(on_pages.fetch().everything() == step.pages().everything());
  if (workspace) {
    const TestTensor after = on_workspace.fetch();
    CHECK(after.guards_intact());
    CHECK(is_ready(after));
  }
  for (std::int64_t i = step.q.size(); i < y.size(); ++i) REQUIRE(answer.get(i) == 77.0F);
  TestTensor own(step.s.dtype, {step.tables.tokens, step.width()});
  for (std::int64_t i = 0; i < own.size(); ++i) own.set(i, answer.get(i));
  return own;
}

/// Weights are rounded to bf16 once where keys are bf16, and y is: sum_p w_p |v_p| is below 1 in
/// these tests for all but the first positions, where it is |v|, below 5.
void check_close(const Step& step, const TestTensor& answer) {
  const bool is_coarse = step.s.dtype == DType::bf16 || step.s.kv_dtype == DType::bf16;
  CHECK(largest_error(answer, step.expected, 1.0) <= (is_coarse ? 0x1p-7 : 4e-6));
}

TEST_SUITE("cuda/attention") {
  TEST_CASE("is the plain loop's answer; padding spans and rows are left alone") {
    const Shape shapes[] = {{4, 2, 64},
                            {3, 1, 128},
                            {5, 1, 256},
                            {20, 1, 64, DType::bf16, DType::bf16, 6},
                            {2, 2, 24},
                            {2, 1, 64, DType::f32, DType::f32},
                            {1, 1, 160, DType::f32, DType::bf16},
                            {2, 1, 32, DType::bf16, DType::f32, 4}};
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Shape& shape : shapes) {
        CAPTURE(shape.head_dim);
        const Step step(shape, {{7, 20}, {0, 1}, {70, 3}, {37, 1}, {0, 40}});
        check_close(step, attend(step, {}, 3, 5));
        check_close(step, attend(step, workspace_for(step, 128), 3, 5));
      }
    });
  }
}

}  // namespace
