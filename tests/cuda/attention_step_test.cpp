#include "tests/cuda/attention_step_case.h"

#include <doctest/doctest.h>

namespace cuda_attention_step_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

using Case = AttentionStepCase;
using Step = SingleTokens;
constexpr DType bf = DType::bf16, fp8 = DType::f8_e4m3, f32 = DType::f32;

struct Answer {
  TestTensor y, pages;
};

/// From a graph; by the op or by the two that it replaces; `positions` as in PagedAttention.
Answer attend(const Step& step, const TestTensor& workspace, bool fused = true,
              std::int64_t positions = 0) {
  cuda::Stream stream;
  DeviceTensor qkv(step.qkv), y(step.y);
  const DeviceTensor pages(step.pages), room(workspace);
  const DeviceTensor q_norm(step.q_norm), k_norm(step.k_norm), sinks(step.sinks);
  const PagedTensors<DeviceTable> tables(step.padded);
  Step::Ops ops = step.ops(qkv, pages, tables, y, {q_norm, k_norm, sinks},
                           workspace.size() > 4 ? Tensor(room) : Tensor());
  ops.read.positions = positions;
  const cuda::Graph graph(stream, [&] {
    if (fused) return cuda::attention_step(stream, ops.write, ops.read);
    cuda::rope_kv_write(stream, ops.write);
    cuda::paged_attention(stream, ops.read);
  });
  graph.replay(stream);
  stream.wait();
  const TestTensor first = y.fetch();
  qkv.set(step.qkv);
  y.set(step.y);
  graph.replay(stream);  // on the workspace and the pages as the first left them
  stream.wait();
  Answer answer{y.fetch(), pages.fetch()};
  CHECK(same_bytes(answer.y, first));
  CHECK(answer.y.guards_intact());
  CHECK(answer.pages.guards_intact());
  const TestTensor left = room.fetch(), qkv_left = qkv.fetch();
  CHECK(left.guards_intact());
  CHECK(qkv_left.guards_intact());
  for (std::int64_t i = 0; i < std::min<std::int64_t>(left.size(), 8192); ++i) {
    REQUIRE(left.get(i) == 0.0F);
  }
  for (std::int64_t i = 0; i < qkv_left.size(); ++i) {  // of q and k it may leave either
    const std::int64_t t = i / step.width(), at = i % step.width();
    const bool is_free = at < (step.c.heads + step.c.own_kv_heads()) * step.c.head_dim;
    if (!is_free || t >= step.tables.tokens) REQUIRE(qkv_left.get(i) == step.qkv.get(i));
  }
  return answer;
}

/// The plain loops' answer; and nothing but the rows of the new tokens is written to pages.
void check_close(const Step& step, const Answer& answer) {
  const Case& c = step.c;
  TestTensor qkv = step.qkv, arena = step.arena;
  TestTensor expected(c.dtype, {step.tables.tokens, step.inner()});
  Queue plain = test_queue(Isa::plain);
  const PagedTensors<Table> tables(step.tables);
  const Step::Ops ops = step.ops(qkv.view().rows(0, step.tables.tokens), arena, tables, expected,
                                 {step.q_norm, step.k_norm, step.sinks}, {});
  attention_step(plain, ops.write, ops.read);
  const bool is_coarse = c.dtype == bf || c.kv_dtype != f32;
  const bool changes = c.has_norms || c.weightless_norm || c.rotary_dim != 0 || c.value_norm;
  for (std::int64_t i = 0; i < step.y.size(); ++i) {
    const double got = answer.y.get(i);
    if (i >= expected.size()) {
      REQUIRE(got == 77.0);
    } else {  // q and k may be on two sides of a rounding, and so may every number of fp8
      const double bound = !is_coarse ? 3e-5 : changes && c.kv_dtype == fp8 ? 0.06 : 0.02;
      REQUIRE(std::fabs(got - expected.get(i)) <= bound * (1.0 + std::fabs(expected.get(i))));
    }
  }
  const TestTensor pages = device_pages(arena, c.kv_dtype, c.kv_heads, c.head_dim, c.page_tokens);
  const double bound = !changes ? 0.0 : c.kv_dtype == fp8 ? 0.126 : is_coarse ? 0.016 : 8e-6;
  for (std::int64_t i = 0; i < pages.size(); ++i) {
    const double got = answer.pages.get(i), wanted = pages.get(i);
    REQUIRE(std::isnan(got) == std::isnan(wanted));
    if (!std::isnan(got)) REQUIRE(std::fabs(got - wanted) <= bound * (std::fabs(wanted) + 0.5));
  }
}

void check_case(const Case& c, const std::vector<std::int32_t>& positions) {
  CAPTURE(c.heads);
  CAPTURE(c.head_dim);
  CAPTURE(c.rotary_dim);
  CAPTURE(name_of(c.kv_dtype));
  const Step step(c, positions, 3);
  const TestTensor none(f32, {4}), all = step.workspace();
  const TestTensor some(f32, {8192 + 5 * (c.head_dim + 4)});  // not all spans find room
  const Answer two = attend(step, none, false);
  check_close(step, two);
  const auto check_one = [&](const TestTensor& room, std::int64_t bound = 0) {
    const Answer one = attend(step, room, true, bound);
    CHECK(same_bytes(one.y, two.y));
    CHECK(one.pages.everything() == two.pages.everything());
  };
  check_one(some);
  in_every_schedule([&](const std::string& schedule) {
    CAPTURE(schedule);
    check_one(none);
    check_one(all);
    check_one(all, 100'000);  // enough for partials to be merged apart
  });
}

TEST_SUITE("cuda/attention_step") {
  TEST_CASE(
      "to the bit what the two ops say and write, near the plain loops; padding rows are not "
      "touched") {
    const Case cases[] = {
        {.heads = 4, .kv_heads = 2, .head_dim = 64, .rotary_dim = 64},
        {.heads = 3, .kv_heads = 1, .head_dim = 128},
        {.heads = 2, .kv_heads = 1, .head_dim = 128, .chunk = 50, .softcap = 0.4F},
        {.heads = 2, .kv_heads = 1, .head_dim = 64, .query_scale = {0.5F, 20, 1}},
        {.heads = 3, .kv_heads = 1, .head_dim = 64, .rotary_dim = 64, .query_scale = {0.5F, 20}},
        {.heads = 2,
         .kv_heads = 1,
         .head_dim = 64,
         .rotary_dim = 64,
         .chunk = 40,
         .weightless_norm = true},
        {.heads = 4,
         .kv_heads = 2,
         .head_dim = 64,
         .rotary_dim = 64,
         .has_norms = true,
         .window = 40,
         .value_norm = true},
        {.heads = 2, .kv_heads = 1, .head_dim = 128, .value_norm = true},
        {.heads = 6,
         .kv_heads = 2,
         .head_dim = 64,
         .rotary_dim = 64,
         .has_norms = true,
         .queries_only = true},
        {.heads = 2,
         .kv_heads = 2,
         .head_dim = 256,
         .rotary_dim = 64,
         .has_norms = true,
         .has_gate = true},
        {.heads = 16,
         .kv_heads = 4,
         .head_dim = 128,
         .rotary_dim = 128,
         .has_norms = true,
         .has_gate = true,
         .window = 40,
         .is_gate_per_head = true},
        {.heads = 20, .kv_heads = 1, .head_dim = 64, .rotary_dim = 32, .has_norms = true},
        {.heads = 2,
         .kv_heads = 1,
         .head_dim = 80,
         .rotary_dim = 16,
         .has_sinks = true,
         .window = 40,
         .page_tokens = 6},
        {.heads = 4,
         .kv_heads = 1,
         .head_dim = 64,
         .has_norms = true,
         .has_gate = true,
         .window = 300}};
    for (Case c : cases) {
      for (const DType kv_dtype : {bf, fp8}) {
        c.kv_dtype = kv_dtype;
        check_case(c, {0, 15, 63, 64, 256, 290});
      }
    }
  }

  TEST_CASE("at the ends of pages, tiles and runs") {
    for (const DType kv_dtype : {bf, fp8}) {
      check_case({.heads = 2,
                  .kv_heads = 1,
                  .head_dim = 64,
                  .rotary_dim = 64,
                  .has_norms = true,
                  .kv_dtype = kv_dtype},
                 {1, 16, 17, 62, 127, 128, 254, 255, 511, 512, 513, 767});
      check_case(
          {.heads = 17, .kv_heads = 1, .head_dim = 128, .rotary_dim = 128, .kv_dtype = kv_dtype},
          {600, 255});
    }
  }

  TEST_CASE("types and sizes that the two ops take one after the other") {
    const Case cases[] = {
        {.heads = 2, .kv_heads = 1, .head_dim = 20, .rotary_dim = 20, .has_norms = true},
        {.heads = 2, .kv_heads = 1, .head_dim = 24, .kv_dtype = fp8},
        {.heads = 3, .kv_heads = 1, .head_dim = 64, .has_gate = true, .is_gate_per_head = true},
        {.heads = 2,
         .kv_heads = 2,
         .head_dim = 64,
         .rotary_dim = 64,
         .has_norms = true,
         .has_gate = true,
         .dtype = f32,
         .kv_dtype = f32},
        {.heads = 1,
         .kv_heads = 1,
         .head_dim = 32,
         .rotary_dim = 32,
         .has_sinks = true,
         .window = 20,
         .dtype = f32},
        {.heads = 2, .kv_heads = 1, .head_dim = 64, .rotary_dim = 24},
        {.heads = 2, .kv_heads = 1, .head_dim = 64, .rotary_dim = 64, .kv_dtype = f32},
        {.heads = 2, .kv_heads = 1, .head_dim = 64, .rotary_dim = 64, .offset = 1}};
    for (const Case& c : cases) check_case(c, {0, 33, 256});
  }

  TEST_CASE("token by token the bits of a whole prompt, in answers and in pages") {
    constexpr std::int32_t first = 253, tokens = 6;
    for (const DType kv_dtype : {bf, fp8}) {
      for (const std::int64_t head_dim : {64, 128, 256}) {
        const Case c = {.heads = 4,
                        .kv_heads = 2,
                        .head_dim = head_dim,
                        .rotary_dim = head_dim / 2,
                        .has_norms = true,
                        .kv_dtype = kv_dtype};
        // All tokens' rows are in the sequence's qkv; its pages have room for the last one.
        Step whole(c, {first}), last(c, {first + tokens - 1});
        whole.tables = whole.padded = PagedTables({{first, tokens}}, c.page_tokens, 3);
        whole.qkv = random_tensor(c.dtype, {tokens, whole.width()}, 7, 1.0F, {16, 8});
        whole.y = TestTensor(c.dtype, {tokens, whole.inner()}, {8, 8});
        whole.fill_arena({first});
        whole.pages = device_pages(whole.arena, c.kv_dtype, c.kv_heads, head_dim, c.page_tokens);

        cuda::Stream stream;
        stream.set_batch_invariant(true);
        const DeviceTensor q_norm(whole.q_norm), k_norm(whole.k_norm), none(whole.sinks);
        const DeviceTensor room(last.workspace());
        const DeviceTensor qkv(whole.qkv), y(whole.y), pages(whole.pages);
        const PagedTensors<DeviceTable> tables(whole.tables);
        Step::Ops ops = whole.ops(qkv, pages, tables, y, {q_norm, k_norm, none}, Tensor());
        ops.write.position_of_row = tables.position_of_row;
        cuda::rope_kv_write(stream, ops.write);
        cuda::paged_attention(stream, ops.read);

        const DeviceTensor own_qkv(whole.qkv), own_y(whole.y), own_pages(whole.pages);
        for (std::int32_t i = 0; i < tokens; ++i) {
          PagedTables at = whole.tables;
          at.span_begin = {0, 1};
          at.position = {first + i};
          const PagedTensors<DeviceTable> own(at);
          const Step::Ops one = whole.ops(Tensor(own_qkv).rows(i, 1), own_pages, own,
                                          Tensor(own_y).rows(i, 1), {q_norm, k_norm, none}, room);
          cuda::attention_step(stream, one.write, one.read);
          stream.wait();
        }
        CHECK(same_bytes(own_y.fetch(), y.fetch()));
        CHECK(own_pages.fetch().everything() == pages.fetch().everything());
      }
    }
  }
}

}  // namespace

}  // namespace cuda_attention_step_test
