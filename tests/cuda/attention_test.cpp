#include <optional>

#include <doctest/doctest.h>

#include "kernels/attention_reach.h"
#include "kernels/cuda/routes.h"
#include "kernels/ops/rope_kv_write.h"
#include "tests/cuda/cards.h"
#include "tests/cuda/paged_support.h"
#include "tests/kernels/ops/attention_support.h"

namespace hyb::kernels::testing::attention_test {

struct AttentionCase {
  std::int64_t heads, kv_heads, head_dim;
  DType dtype = DType::bf16, kv_dtype = DType::bf16;
  std::int32_t page_tokens = 16;
  std::int32_t window = 0;
  bool has_sinks = false;
  bool has_gate = false;
  std::int32_t chunk = 0;
  float softcap = 0.0F;
  bool is_gate_per_head = false;

  std::int64_t gates() const { return is_gate_per_head ? heads : heads * head_dim; }
};

/// Sequences with queries, keys and values for every position, and a step that attends the spans.
/// Places that no token has reached hold NaN.
struct Step {
  Step(const AttentionCase& shape, const std::vector<TestSpan>& spans, std::uint32_t seed = 1)
      : s(shape), tables(spans, s.page_tokens, seed) {
    const std::int64_t page = 2 * s.kv_heads * s.head_dim * s.page_tokens;
    q = random_tensor(s.dtype, {tables.tokens, width()}, seed, 1.0F, {16, 8});
    arena = TestTensor(s.kv_dtype, {tables.pages_max, page}, {16, 8});
    for (std::int64_t i = 0; i < arena.size(); ++i) arena.set(i, NAN);
    expected = TestTensor(s.dtype, {tables.tokens, width()});
    if (s.has_gate) gate = random_tensor(s.dtype, {tables.tokens, s.gates()}, seed + 4, 4.0F);
    if (s.has_sinks) sinks = random_tensor(DType::f32, {s.heads}, seed + 3, 2.0F);
    std::int64_t positions = 0;
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
    kv_write(plain, {k,
                     v,
                     {arena, all_begins, all_firsts, host.page_begin, host.pages, s.page_tokens},
                     s.kv_heads,
                     s.head_dim});
    kernels::paged_attention(plain, op(q, arena, host, expected, sinks, gate));
    // The same with the sizes of values: sum_p w_p |v_p|.
    TestTensor magnitudes = v, sized = arena;
    for (std::int64_t i = 0; i < v.size(); ++i) magnitudes.set(i, std::fabs(v.get(i)));
    kv_write(plain, {k,
                     magnitudes,
                     {sized, all_begins, all_firsts, host.page_begin, host.pages, s.page_tokens},
                     s.kv_heads,
                     s.head_dim});
    sizes = expected;
    kernels::paged_attention(plain, op(q, sized, host, sizes, sinks, gate));
    forget_pages(spans);
    pages = device_pages(arena, s.kv_dtype, s.kv_heads, s.head_dim, s.page_tokens);
  }

  /// Pages that no token of their span reaches are gone.
  void forget_pages(const std::vector<TestSpan>& spans) {
    for (std::size_t r = 0; r < spans.size(); ++r) {
      const auto seen = first_key({.window = s.window, .chunk = s.chunk}, spans[r].position);
      for (std::int32_t i = 0; i < seen / s.page_tokens; ++i) {
        tables.pages[static_cast<std::size_t>(tables.page_begin[r] + i)] = INT32_MAX / 2;
      }
    }
  }

  std::int64_t width() const { return s.heads * s.head_dim; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(s.head_dim)); }

  template <typename Tables>
  PagedAttention op(const Tensor& queries, const Tensor& layer, const Tables& t, const Tensor& y,
                    const Tensor& own_sinks, const Tensor& own_gate = {},
                    const Tensor& workspace = {}) const {
    return {.q = queries,
            .kv = {.arena = layer,
                   .span_begin = t.span_begin,
                   .position = t.position,
                   .page_begin = t.page_begin,
                   .pages = t.pages,
                   .page_tokens = s.page_tokens},
            .y = y,
            .heads = s.heads,
            .kv_heads = s.kv_heads,
            .head_dim = s.head_dim,
            .scale = scale(),
            .workspace = workspace,
            .window = s.window,
            .chunk = s.chunk,
            .softcap = s.softcap,
            .sinks = own_sinks,
            .gate = own_gate};
  }
  AttentionCase s;
  PagedTables tables;
  TestTensor q, arena, expected, sizes, sinks, gate;
  TestTensor pages;  ///< as the device has them
};

/// Room for partials of every run of every row.
inline TestTensor workspace_for(const Step& step, std::int64_t positions) {
  const auto bytes =
      cuda::attention_workspace_bytes(step.tables.tokens, step.s.heads, step.s.head_dim, positions);
  return TestTensor(DType::f32, {static_cast<std::int64_t>(bytes / 4)});
}

/// Tickets are zero again.
inline bool is_ready(const TestTensor& workspace) {
  const std::vector<std::byte> bytes = workspace.packed();
  return std::all_of(bytes.begin(), bytes.begin() + 8192 * 4,
                     [](std::byte byte) { return byte == std::byte{0}; });
}

/// The step's answer, from a graph; padding spans and rows come after it.
inline TestTensor attend(const Step& step, std::optional<TestTensor> workspace = {},
                         std::int64_t padding_spans = 0, std::int64_t padding_rows = 0) {
  const PagedTables padded = step.tables.padded(padding_spans, padding_rows);
  TestTensor q = TestTensor(step.s.dtype, {padded.tokens, step.width()}, {16, 8});
  TestTensor y(step.s.dtype, {padded.tokens, step.width()}, {8, 8});
  for (std::int64_t i = 0; i < q.size(); ++i) {
    q.set(i, i < step.q.size() ? step.q.get(i) : NAN);
    y.set(i, 77.0F);
  }
  cuda::Stream stream;
  const DeviceTensor on_q(q), on_y(y), on_pages(step.pages);
  const DeviceTensor on_sinks(step.s.has_sinks ? step.sinks : TestTensor(DType::f32, {1}));
  const DeviceTensor on_workspace(workspace ? *workspace : TestTensor(DType::f32, {4}));
  TestTensor gate(step.s.dtype, {padded.tokens, step.s.gates()}, {24, 16});
  for (std::int64_t i = 0; i < gate.size(); ++i) {
    gate.set(i, step.s.has_gate && i < step.gate.size() ? step.gate.get(i) : NAN);
  }
  const DeviceTensor on_gate(gate);
  const PagedTensors<DeviceTable> tables(padded);
  const PagedAttention op = step.op(
      on_q, on_pages, tables, on_y, step.s.has_sinks ? Tensor(on_sinks) : Tensor(),
      step.s.has_gate ? Tensor(on_gate) : Tensor(), workspace ? Tensor(on_workspace) : Tensor());
  const cuda::Graph graph(stream, [&] { cuda::paged_attention(stream, op); });
  graph.replay(stream);
  if (workspace) graph.replay(stream);  // on the workspace as the first left it
  stream.wait();
  const TestTensor answer = on_y.fetch();
  CHECK(answer.guards_intact());
  CHECK(on_q.fetch().everything() == q.everything());
  CHECK(on_pages.fetch().everything() == step.pages.everything());
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

/// By the bounds of the two routes. What the plain loop itself rounds counts as y's rounding too.
inline void check_close(const Step& step, const TestTensor& answer) {
  const std::int64_t piece = 16 / static_cast<std::int64_t>(size_of(step.s.kv_dtype));
  const bool is_matrix =
      step.s.dtype == DType::bf16 && step.s.kv_dtype != DType::f32 && step.s.head_dim % piece == 0;
  const double weights = is_matrix ? 0x1p-8 : 0x1p-17;
  const double rounding =
      (step.s.dtype == DType::bf16 ? 0x1p-8 : 0x1p-23) * (step.s.has_gate ? 2.02 : 1.0);
  for (std::int64_t i = 0; i < answer.size(); ++i) {
    const double expected = step.expected.get(i), size = step.sizes.get(i);
    REQUIRE(std::fabs(answer.get(i) - expected) <=
            1.01 * weights * size + rounding * std::fabs(expected) + 1e-7);
  }
}

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

using Shape = AttentionCase;

/// One sequence whose keys and values are all written; any of its positions can be attended, in any
/// spans.
struct Sequence {
  Sequence(const Shape& shape, std::int32_t tokens) : all(shape, {{0, tokens}}), pages(all.pages) {}

  /// The answers of the spans' positions, row after row; `positions` as in PagedAttention.
  TestTensor attend(const std::vector<TestSpan>& spans, const Tensor& workspace,
                    std::int64_t positions = 0) const {
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
    PagedAttention op = all.op(on_q, pages, on_tables, on_y, {}, {}, workspace);
    op.positions = positions;
    cuda::paged_attention(stream, op);
    stream.wait();
    return on_y.fetch();
  }

  Step all;
  DeviceTensor pages;
};

/// Rows of an answer to spans are those of the answer to the whole sequence, bit by bit.
void check_rows(const Sequence& sequence, const TestTensor& whole,
                const std::vector<TestSpan>& spans, const Tensor& workspace) {
  for (const std::int64_t positions : {0, 100'000}) {  // of many, partials are merged apart
    CAPTURE(positions);
    const TestTensor answer = sequence.attend(spans, workspace, positions);
    std::int64_t at = 0;
    for (const TestSpan& span : spans) {
      CAPTURE(span.position);
      for (std::int64_t i = 0; i < span.tokens * sequence.all.width(); ++i) {
        REQUIRE(answer.get(at++) == whole.get(span.position * sequence.all.width() + i));
      }
    }
  }
}

TEST_SUITE("cuda/attention") {
  TEST_CASE("is the plain loop's answer; padding spans and rows are not written") {
    const Shape shapes[] = {{4, 2, 64},
                            {3, 1, 128},
                            {5, 1, 256},
                            {.heads = 20, .kv_heads = 1, .head_dim = 64, .page_tokens = 6},
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

  TEST_CASE("windows, chunks, softcaps and sinks are the plain loop's; of pages only those seen") {
    const Shape shapes[] = {
        {.heads = 3, .kv_heads = 1, .head_dim = 64, .window = 40, .has_sinks = true},
        {.heads = 2, .kv_heads = 2, .head_dim = 128, .window = 300},
        {.heads = 2, .kv_heads = 1, .head_dim = 64, .has_sinks = true},
        {.heads = 2,
         .kv_heads = 1,
         .head_dim = 20,
         .dtype = DType::f32,
         .kv_dtype = DType::f32,
         .window = 70,
         .has_sinks = true},
        {.heads = 3, .kv_heads = 1, .head_dim = 64, .chunk = 40},
        {.heads = 2, .kv_heads = 1, .head_dim = 256, .window = 70, .chunk = 300, .softcap = 0.7F},
        {.heads = 4, .kv_heads = 1, .head_dim = 128, .has_sinks = true, .softcap = 0.3F},
        {.heads = 2,
         .kv_heads = 1,
         .head_dim = 20,
         .dtype = DType::f32,
         .kv_dtype = DType::f32,
         .chunk = 70,
         .softcap = 0.5F}};
    for (const Shape& shape : shapes) {
      CAPTURE(shape.head_dim);
      CAPTURE(shape.window);
      CAPTURE(shape.chunk);
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
        {.heads = 2,
         .kv_heads = 1,
         .head_dim = 20,
         .dtype = DType::f32,
         .kv_dtype = DType::f32,
         .window = 70,
         .has_gate = true},
        {.heads = 2, .kv_heads = 1, .head_dim = 36, .has_gate = true}};
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

  TEST_CASE("one gate per head is the same one for all its dimensions, to the bit") {
    const Shape shapes[] = {
        {.heads = 3, .kv_heads = 1, .head_dim = 64},
        {.heads = 16, .kv_heads = 4, .head_dim = 128, .window = 70},
        {.heads = 4, .kv_heads = 1, .head_dim = 256, .has_sinks = true},
        {.heads = 2, .kv_heads = 1, .head_dim = 20, .dtype = DType::f32, .kv_dtype = DType::f32},
        {.heads = 2, .kv_heads = 1, .head_dim = 36}};
    for (Shape shape : shapes) {
      CAPTURE(shape.head_dim);
      shape.has_gate = shape.is_gate_per_head = true;
      const Step per_head(shape, {{0, 1}, {30, 9}, {300, 2}, {250, 12}});
      Step repeated = per_head;
      repeated.s.is_gate_per_head = false;
      repeated.gate = repeated_gate(per_head.gate, shape.head_dim);
      const TestTensor workspace = workspace_for(per_head, 400);
      in_every_schedule([&](const std::string& schedule) {
        CAPTURE(schedule);
        const TestTensor answer = attend(per_head, {}, 2, 3);
        CHECK(same_bytes(attend(repeated, {}, 2, 3), answer));
        CHECK(same_bytes(attend(per_head, workspace), answer));
      });
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

  TEST_CASE("tiles that a card has no room for are smaller ones: the same bits") {
    for (const DType kv_dtype : {DType::bf16, DType::f8_e4m3}) {
      const Sequence sequence({.heads = 3, .kv_heads = 1, .head_dim = 256, .kv_dtype = kv_dtype},
                              90);
      const std::vector<TestSpan> spans = {{0, 90}, {40, 30}};
      std::vector<TestTensor> answers;
      on_every_card([&] { answers.push_back(sequence.attend(spans, {})); });
      for (const TestTensor& answer : answers) {
        CHECK(answer.everything() == answers.front().everything());
      }
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

constexpr DType bf = DType::bf16, fp8 = DType::f8_e4m3;

/// The same step over pages of bf16 with the same numbers.
Step widened(const Step& step) {
  Step wide = step;
  wide.s.kv_dtype = bf;
  wide.pages =
      converted(step.pages, bf, {step.pages.view().dim(0), step.pages.view().dim(1)}, {16, 8});
  return wide;
}

TEST_SUITE("cuda/attention_ring") {
  TEST_CASE("pages of F8_E4M3: the plain loop's answer, and to the bit that over bf16") {
    const AttentionCase shapes[] = {
        {.heads = 4, .kv_heads = 2, .head_dim = 64, .kv_dtype = fp8},
        {.heads = 3, .kv_heads = 1, .head_dim = 128, .kv_dtype = fp8},
        {.heads = 5, .kv_heads = 1, .head_dim = 256, .kv_dtype = fp8},
        {.heads = 20, .kv_heads = 1, .head_dim = 64, .kv_dtype = fp8, .page_tokens = 6},
        {.heads = 6,
         .kv_heads = 2,
         .head_dim = 80,
         .kv_dtype = fp8,
         .window = 40,
         .has_sinks = true,
         .has_gate = true},
        {.heads = 4, .kv_heads = 1, .head_dim = 176, .kv_dtype = fp8},
        {.heads = 2, .kv_heads = 2, .head_dim = 20, .kv_dtype = fp8},
        {.heads = 1,
         .kv_heads = 1,
         .head_dim = 160,
         .dtype = DType::f32,
         .kv_dtype = fp8,
         .has_gate = true}};
    for (const AttentionCase& shape : shapes) {
      CAPTURE(shape.head_dim);
      const Step step(shape, {{7, 20}, {0, 1}, {70, 3}, {37, 1}, {0, 40}});
      const TestTensor over_bf16 = attend(widened(step), {}, 3, 5);
      in_every_schedule([&](const std::string& schedule) {
        CAPTURE(schedule);
        const TestTensor answer = attend(step, {}, 3, 5);
        check_close(step, answer);
        CHECK(same_bytes(answer, over_bf16));
      });
    }
    const Step odd({2, 2, 24, bf, fp8}, {{7, 20}, {0, 1}});  // no whole pieces: the plain kernel
    check_close(odd, attend(odd));
  }

  TEST_CASE("pages of F8_E4M3 at the ends of tiles and runs, runs shared or not") {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      CAPTURE(head_dim);
      const Step step({3, 1, head_dim, bf, fp8},
                      {{62, 1}, {63, 2}, {255, 1}, {256, 1}, {510, 3}, {767, 30}});
      const TestTensor all = workspace_for(step, 800);
      const TestTensor over_bf16 = attend(widened(step));
      in_every_schedule([&](const std::string& schedule) {
        CAPTURE(schedule);
        const TestTensor answer = attend(step);
        check_close(step, answer);
        CHECK(same_bytes(answer, over_bf16));
        CHECK(same_bytes(attend(step, all, 2, 2), answer));
      });
    }
  }

  TEST_CASE("every code is read as its number") {
    for (const DType dtype : {bf, DType::f32}) {  // the routes of matrices, and the plain one
      Step step({1, 1, 256, dtype, fp8}, {{0, 1}});
      for (std::int64_t i = 0; i < step.pages.size(); ++i) step.pages.set(i, 0.0F);
      const cuda::KvPage page{256, step.s.page_tokens};
      const std::int64_t first = step.tables.pages[0] * step.pages.view().dim(1);
      for (std::int64_t i = 0; i < 256; ++i) {
        step.pages.set(first + page.value_offset() + i,
                       e4m3_to_float(static_cast<std::uint8_t>(i)));
      }
      const TestTensor answer = attend(step);
      for (std::int64_t i = 0; i < 256; ++i) {
        CAPTURE(i);
        const float expected = e4m3_to_float(static_cast<std::uint8_t>(i));
        CHECK(std::isnan(answer.get(i)) == std::isnan(expected));
        if (!std::isnan(expected)) CHECK(answer.get(i) == expected);
      }
    }
  }
}

}  // namespace

}  // namespace hyb::kernels::testing::attention_test
