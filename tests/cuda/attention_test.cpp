#include "tests/cuda/attention_case.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

using Shape = AttentionCase;

/// One sequence whose keys and values are all written; any of its positions can be attended, in any
/// spans.
struct Sequence {
  Sequence(const Shape& shape, std::int32_t tokens) : all(shape, {{0, tokens}}), pages(all.pages) {}

  /// The answers of the spans' positions, row after row.
  TestTensor attend(const std::vector<TestSpan>& spans, const Tensor& workspace) const {
    PagedTables tables;
    for (const TestSpan& span : spans) {
      tables.tokens += span.tokens;
      tables.span_begin.push_back(static_cast<std::int32_t>(tables.tokens));
      tables.position.push_back(span.position);
      tables.pages.insert(tables.pages.end(), all.tables.pages.begin(), all.tables.pages.end());
      tables.page_begin.push_back(static_cast<std::int32_t>(tables.pages.size()));
    }
    tables.position_of_row = {0};
    TestTensor q(all.s.dtype, {tables.tokens, all.width()}), y = q;
    std::int64_t to = 0;
    for (const TestSpan& span : spans) {
      for (std::int64_t i = 0; i < span.tokens * all.width(); ++i) {
        q.set(to++, all.q.get(span.position * all.width() + i));
      }
    }
    cuda::Stream stream;
    const DeviceTensor on_q(q), on_y(y);
    const PagedTensors<DeviceTable> on_tables(tables);
    cuda::attention(stream, all.op(on_q, pages, on_tables, on_y, {}, {}, workspace));
    stream.wait();
    return on_y.fetch();
  }

  Step all;
  DeviceTensor pages;
};

/// Rows of an answer to spans are those of the answer to the whole sequence, bit by bit.
void check_rows(const Sequence& sequence, const TestTensor& whole,
                const std::vector<TestSpan>& spans, const Tensor& workspace) {
  const TestTensor answer = sequence.attend(spans, workspace);
  std::int64_t at = 0;
  for (const TestSpan& span : spans) {
    CAPTURE(span.position);
    for (std::int64_t i = 0; i < span.tokens * sequence.all.width(); ++i) {
      REQUIRE(answer.get(at++) == whole.get(span.position * sequence.all.width() + i));
    }
  }
}

TEST_SUITE("cuda/attention") {
  TEST_CASE("is the plain loop's answer; padding spans and rows are left alone") {
    const Shape shapes[] = {{4, 2, 64},
                            {3, 1, 128},
                            {5, 1, 256},
                            {20, 1, 64, DType::bf16, DType::bf16, 6},
                            {2, 2, 24},
                            {6, 2, 80},
                            {4, 1, 176},
                            {2, 2, 20},
                            {2, 1, 64, DType::f32, DType::f32},
                            {1, 1, 160, DType::f32, DType::bf16},
                            {2, 1, 32, DType::bf16, DType::f32, 4}};
    for (const Shape& shape : shapes) {
      CAPTURE(shape.head_dim);
      const Step step(shape, {{7, 20}, {0, 1}, {70, 3}, {37, 1}, {0, 40}});
      in_every_schedule([&](const std::string& schedule) {
        CAPTURE(schedule);
        check_close(step, attend(step, {}, 3, 5));
      });
    }
  }

  TEST_CASE("is the plain loop's answer at the ends of tiles and runs, runs shared or not") {
    for (const Shape& shape : {Shape{3, 1, 56}, Shape{1, 1, 18, DType::f32, DType::f32}}) {
      const Step step(shape, {{62, 1}, {63, 2}, {254, 1}, {255, 1}, {256, 1}, {510, 3}, {767, 30}});
      const TestTensor all = workspace_for(step, 800);
      const TestTensor some(DType::f32, {8192 + 2000});  // not all spans find room
      in_every_schedule([&](const std::string& schedule) {
        CAPTURE(schedule);
        const TestTensor answer = attend(step);
        check_close(step, answer);
        CHECK(same_bytes(attend(step, all, 2, 2), answer));
        CHECK(same_bytes(attend(step, some), answer));
      });
    }
  }

  TEST_CASE("windows and sinks are the plain loop's; pages that no row sees are not read") {
    const Shape shapes[] = {
        {.heads = 3, .kv_heads = 1, .head_dim = 64, .window = 40, .has_sinks = true},
        {.heads = 2, .kv_heads = 2, .head_dim = 128, .window = 300},
        {.heads = 2, .kv_heads = 1, .head_dim = 64, .has_sinks = true},
        {2, 1, 20, DType::f32, DType::f32, 16, 70, true}};
    for (const Shape& shape : shapes) {
      CAPTURE(shape.head_dim);
      CAPTURE(shape.window);
      const Step step(shape, {{0, 1}, {30, 25}, {639, 2}, {450, 30}});
      const TestTensor workspace = workspace_for(step, 800);
      in_every_schedule([&](const std::string& schedule) {
        CAPTURE(schedule);
        const TestTensor answer = attend(step);
        check_close(step, answer);
        CHECK(same_bytes(attend(step, workspace), answer));
      });
    }
  }

  TEST_CASE("a gate multiplies the rounded answer, also where runs are merged") {
    const Shape shapes[] = {
        {.heads = 3, .kv_heads = 1, .head_dim = 64, .has_gate = true},
        {.heads = 2, .kv_heads = 2, .head_dim = 128, .has_gate = true},
        {.heads = 4, .kv_heads = 1, .head_dim = 256, .has_sinks = true, .has_gate = true},
        {2, 1, 20, DType::f32, DType::f32, 16, 70, false, true},
        {2, 1, 36, DType::bf16, DType::bf16, 16, 0, false, true}};
    for (const Shape& shape : shapes) {
      CAPTURE(shape.head_dim);
      Step step(shape, {{0, 1}, {30, 9}, {300, 2}, {250, 12}});
      const TestTensor workspace = workspace_for(step, 400);
      in_every_schedule([&](const std::string& schedule) {
        CAPTURE(schedule);
        const TestTensor answer = attend(step, {}, 2, 3);
        check_close(step, answer);
        CHECK(same_bytes(attend(step, workspace), answer));
      });
      step.s.has_gate = false;
      const TestTensor ungated = attend(step, workspace);
      step.s.has_gate = true;
      for (const std::int64_t row : {0, 11}) {  // one key; and merged runs
        const std::int64_t at = row * step.width();
        step.gate.set(at, -200.0F);
        step.gate.set(at + 1, 200.0F);
        step.gate.set(at + 2, NAN);
        step.gate.set(at + 3, -INFINITY);
      }
      const TestTensor answer = attend(step, workspace);
      for (const std::int64_t row : {0, 11}) {
        const std::int64_t at = row * step.width();
        CHECK(answer.get(at) == 0.0F);
        CHECK(answer.get(at + 1) == ungated.get(at + 1));
        CHECK(std::isnan(answer.get(at + 2)));
        CHECK(answer.get(at + 3) == 0.0F);
      }
    }
  }

  TEST_CASE("cuts, neighbours and shared runs change no bit") {
    std::mt19937 engine(5);
    struct {
      Shape shape;
      std::int32_t tokens;
    } const cases[] = {{{2, 1, 64}, 540},
                       {{6, 2, 128}, 300},
                       {{2, 2, 256}, 270},
                       {{1, 1, 20, DType::f32, DType::f32}, 280}};
    for (const auto& [shape, tokens] : cases) {
      CAPTURE(shape.head_dim);
      const Sequence sequence(shape, tokens);
      const TestTensor whole = sequence.attend({{0, tokens}}, {});
      const DeviceTensor room(workspace_for(sequence.all, tokens));
      for (int round = 0; round < 2; ++round) {
        const auto cuts = random_cuts(tokens, engine);
        std::vector<TestSpan> spans;
        for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
          spans.push_back({cuts[i], cuts[i + 1] - cuts[i]});
        }
        std::shuffle(spans.begin(), spans.end(), engine);
        check_rows(sequence, whole, spans, round == 0 ? Tensor() : Tensor(room));
      }
      std::vector<TestSpan> single;
      for (int i = 0; i < 6; ++i) {
        single.push_back({static_cast<std::int32_t>(engine() % static_cast<unsigned>(tokens)), 1});
      }
      single.push_back({256, 1});
      check_rows(sequence, whole, single, room);
      check_rows(sequence, whole, {{255, 10}}, room);
      check_rows(sequence, whole, {{tokens - 110, 110}}, room);  // wide tiles share their runs
    }
  }

  TEST_CASE("more spans than a block has threads, more runs than parts") {
    constexpr std::int32_t tokens = 530;
    const Sequence sequence({2, 1, 64}, tokens);
    const TestTensor whole = sequence.attend({{0, tokens}}, {});
    std::vector<TestSpan> spans;
    for (std::int32_t i = 0; i < 140; ++i)
      spans.push_back({i % 7 == 0 ? i : tokens - 1 - i % 18, 1});
    const TestTensor room(
        DType::f32,
        {static_cast<std::int64_t>(cuda::attention_workspace_bytes(140, 2, 64, tokens)) / 4});
    check_rows(sequence, whole, spans, DeviceTensor(room));
  }

  TEST_CASE("one key gives its value") {
    const Step step({4, 2, 64}, {{0, 1}, {0, 1}});
    const TestTensor answer = attend(step);
    for (std::int64_t i = 0; i < answer.size(); ++i) {
      REQUIRE(answer.get(i) == step.expected.get(i));
    }
  }
}

}  // namespace
