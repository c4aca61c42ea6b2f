#include "kernels/ops/latent_attention.h"

#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/paged_support.h"
#include "tests/cuda/recurrent_support.h"

namespace hyb::kernels::testing::latent_attention_test {

namespace {

constexpr DType f8 = DType::f8_e4m3;

struct LatentCase {
  std::int64_t heads = 16, turned = 64, plain = 8, latent = 512;
  DType dtype = b16, kv = b16;
  std::vector<TestSpan> spans = {};
  bool has_gate = false;
  std::int32_t page_tokens = 16;
  Strides strides = {8, 8};

  std::int64_t width() const { return turned + latent; }
};

/// All tensors of a step on the host, with two rows that no span has. Pages hold what came before.
struct Inputs {
  explicit Inputs(const LatentCase& of)
      : c(of),
        tables(c.spans, c.page_tokens, 11),
        rows(random_tensor(c.dtype, {tables.tokens + 2, c.width()}, 1, 1.0F, c.strides)),
        turned(random_tensor(c.dtype, {tables.tokens + 2, c.heads * (c.turned + c.plain)}, 2, 1.0F,
                             c.strides)),
        latent(random_tensor(c.dtype, {tables.tokens + 2, c.heads * c.latent}, 3, 0.5F, c.strides)),
        gate(random_tensor(c.dtype, {tables.tokens + 2, c.heads}, 4, 2.0F, {3, 1})),
        y(c.dtype, {tables.tokens + 2, c.heads * c.latent}, c.strides),
        pages(random_tensor(c.kv, {tables.pages_max, c.page_tokens * c.width()}, 5, 1.0F,
                            {16, c.kv == f8 ? 16 : 8})) {}

  LatentCase c;
  PagedTables tables;
  TestTensor rows, turned, latent, gate, y, pages;
};

/// The calls over some tensors and tables, on the host or on a card.
template <typename Tensors, typename Tables>
std::pair<LatentWrite, LatentAttention> calls(const LatentCase& c, const Tensors& t,
                                              const Tables& tables, std::int64_t tokens) {
  const auto own = [&](const Tensor& tensor) { return tensor.rows(0, tokens); };
  return {{.rows = own(t.rows),
           .kv = {.arena = t.pages,
                  .span_begin = tables.span_begin,
                  .position = tables.position,
                  .page_begin = tables.page_begin,
                  .pages = tables.pages,
                  .page_tokens = c.page_tokens}},
          {.turned = own(t.turned),
           .latent = own(t.latent),
           .kv = {.arena = t.pages,
                  .span_begin = tables.span_begin,
                  .position = tables.position,
                  .page_begin = tables.page_begin,
                  .pages = tables.pages,
                  .page_tokens = c.page_tokens},
           .y = own(t.y),
           .shape = {.heads = static_cast<std::int32_t>(c.heads),
                     .turned_width = static_cast<std::int32_t>(c.turned),
                     .latent_width = static_cast<std::int32_t>(c.latent),
                     .scale = 0.07F},
           .gate = c.has_gate ? own(t.gate) : Tensor()}};
}

struct OnDevice {
  explicit OnDevice(const Inputs& in)
      : rows(in.rows),
        turned(in.turned),
        latent(in.latent),
        gate(in.gate),
        y(in.y),
        pages(in.pages) {}
  DeviceTensor rows, turned, latent, gate, y, pages;
};

struct Answer {
  TestTensor y, pages;
};

/// With empty spans and rows without a span, as a recorded step has them.
Answer on_card(const Inputs& in, bool shares_keys, bool replayed) {
  const OnDevice on(in);
  const PagedTables padded = in.tables.padded(2, 2);
  const PagedTensors<DeviceTable> tables(padded);
  auto [write, read] = calls(in.c, on, tables, padded.tokens);
  std::int32_t positions = 1;
  for (const TestSpan& span : in.c.spans) {
    positions = std::max(positions, span.position + span.tokens);
  }
  read.positions = positions;
  const Workspace workspace(
      latent_workspace_bytes(Device::cuda, padded.tokens, in.c.heads, positions));
  fill_card(workspace.view().data, 0, static_cast<std::size_t>(workspace.view().size()));
  if (shares_keys) read.workspace = workspace.view();
  cuda::Stream stream;
  run_or_replay(stream, replayed, [&, &write = write, &read = read] {
    cuda::latent_write(stream, write);
    cuda::latent_attention(stream, read);
  });
  return {on.y.fetch(), on.pages.fetch()};
}

Answer on_host(Inputs& in) {
  Queue plain = test_queue(Isa::plain);
  const PagedTensors<Table> tables(in.tables);
  const auto [write, read] = calls(in.c, in, tables, in.tables.tokens);
  latent_write(plain, write);
  latent_attention(plain, read);
  return {in.y, in.pages};
}

/// Whole and partial tiles of heads and of keys, several runs, and, by the plain kernel, other
/// widths.
const LatentCase cases[] = {
    {.spans = {{70, 1}, {0, 9}, {255, 2}}},
    {.heads = 20, .spans = {{600, 1}, {3, 1}}, .has_gate = true},
    {.heads = 32, .turned = 0, .kv = f8, .spans = {{0, 3}, {300, 1}}},
    {.heads = 3, .turned = 24, .latent = 40, .spans = {{130, 5}}, .has_gate = true},
    {.heads = 5,
     .turned = 6,
     .latent = 19,
     .spans = {{40, 3}, {0, 1}},
     .page_tokens = 6,
     .strides = {1, 1}},
    {.heads = 2, .dtype = f32, .kv = f32, .spans = {{280, 2}, {0, 5}}, .has_gate = true},
    {.heads = 3, .turned = 8, .latent = 24, .dtype = f32, .kv = f8, .spans = {{7, 2}}},
};

void check_case(const LatentCase& c, bool shares_keys, bool replayed) {
  CAPTURE(c.heads);
  CAPTURE(shares_keys);
  Inputs in(c);
  const Answer card = on_card(in, shares_keys, replayed), host = on_host(in);
  CHECK(card.pages.everything() == host.pages.everything());
  CHECK(card.y.guards_intact());
  // Of what values weigh, and of y itself: attend_tile's bound.
  double largest = 0, worst = 0;
  for (std::int64_t i = 0; i < in.pages.size(); ++i) {
    largest = std::max<double>(largest, std::fabs(in.pages.get(i)));
  }
  const double of_values = c.dtype == f32 ? 2e-6 : 0x1p-9, of_y = c.dtype == f32 ? 2e-5 : 0x1p-7;
  const std::int64_t written = in.tables.tokens * c.heads * c.latent;
  for (std::int64_t i = 0; i < written; ++i) {
    const double expected = host.y.get(i), error = std::fabs(card.y.get(i) - expected);
    const double allowed = of_values * largest + of_y * std::fabs(expected);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error / allowed);
  }
  CHECK(worst <= 1.0);
}

TEST_SUITE("cuda/latent_attention") {
  TEST_CASE("is the plain loop's answer, and pages have its bytes") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const LatentCase& c : cases) {
        check_case(c, true, false);
        check_case(c, false, true);
      }
    });
  }

  TEST_CASE("neither a workspace, company nor cuts change a bit") {
    for (const LatentCase& shape : {cases[0], cases[2], cases[4]}) {
      CAPTURE(shape.heads);
      LatentCase c = shape;
      c.spans = {{250, 40}};
      const Inputs whole(c);
      const Answer shared = on_card(whole, true, false), alone = on_card(whole, false, false);
      CHECK(same_rows(shared.y, alone.y, 40));
      // The last 13 tokens by themselves, over the pages that the whole left.
      Inputs piece = whole;
      piece.pages = shared.pages;
      piece.tables.span_begin = {0, 13};
      piece.tables.position = {277};
      piece.tables.tokens = 13;
      const auto move_up = [](TestTensor& tensor, const TestTensor& from, std::int64_t width) {
        for (std::int64_t i = 0; i < 13 * width; ++i) tensor.set(i, from.get(27 * width + i));
      };
      move_up(piece.rows, whole.rows, c.width());
      move_up(piece.turned, whole.turned, c.heads * (c.turned + c.plain));
      move_up(piece.latent, whole.latent, c.heads * c.latent);
      move_up(piece.gate, whole.gate, c.heads);
      const Answer cut = on_card(piece, true, false);
      bool same = true;
      for (std::int64_t i = 0; i < 13 * c.heads * c.latent; ++i) {
        same &= cut.y.get(i) == shared.y.get(27 * c.heads * c.latent + i);
      }
      CHECK(same);
      CHECK(cut.pages.everything() == shared.pages.everything());
    }
  }

  TEST_CASE("what keys hold that no token has reached is never seen") {
    LatentCase c = cases[1];
    c.has_gate = false;
    Inputs in(c);
    const Answer expected = on_card(in, true, false);
    // Places after the last token's, in its page.
    const std::int64_t page =
        in.tables.pages[static_cast<std::size_t>(in.tables.page_begin[1]) - 1];
    for (std::int64_t i = (600 % c.page_tokens + 1) * c.width(); i < c.page_tokens * c.width();
         ++i) {
      in.pages.set(page * c.page_tokens * c.width() + i, NAN);
    }
    const Answer answer = on_card(in, true, false);
    CHECK(same_rows(answer.y, expected.y, in.tables.tokens));
  }
}

TEST_SUITE("cuda/rope") {
  TEST_CASE("turns the first numbers of each head as the CPU does, and nothing else") {
    for (const DType dtype : {f32, b16}) {
      for (const std::int64_t turned : {64, 10}) {
        const std::int64_t heads = 3, dim = 2 * turned + 8;
        TestTensor x = random_tensor(dtype, {5, heads * dim}, 1, 1.0F, {8, 8});
        const DeviceTensor on(x);
        const std::vector<std::int32_t> positions = {0, 1, 77, 100000, 5};
        const DeviceTable card_positions(positions);
        const Table host_positions(positions);
        const auto op = [&](const Tensor& rows, const Tensor& at) {
          return Rope{.x = rows,
                      .position_of_row = at,
                      .heads = heads,
                      .head_dim = dim,
                      .frequencies = rope_frequencies(turned)};
        };
        cuda::Stream stream;
        cuda::rope(stream, op(on, card_positions));
        stream.wait();
        Queue plain = test_queue(Isa::plain);
        rope(plain, op(x, host_positions));
        const TestTensor answer = on.fetch();
        CHECK(answer.guards_intact());
        for (std::int64_t i = 0; i < x.size(); ++i) {
          const double allowed = i % dim >= turned ? 0.0 : dtype == b16 ? 0.03 : 1e-5;
          CHECK(std::fabs(answer.get(i) - x.get(i)) <= allowed);
        }
      }
    }
  }
}

}  // namespace

}  // namespace hyb::kernels::testing::latent_attention_test
