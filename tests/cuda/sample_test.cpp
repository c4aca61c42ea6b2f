#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/ops/device_sampler.h"
#include "kernels/ops/sample.h"
#include "tests/cuda/support.h"
#include "tests/kernels/sample_rows.h"

namespace cuda_sample_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

std::vector<SampledToken> by_plain_loops(const TestTensor& logits, std::span<const OwnRow> rows,
                                         std::int32_t used) {
  std::vector<SampledToken> out(rows.size());
  Queue plain = test_queue(Isa::plain);
  std::vector<std::byte> room(sample_workspace_bytes(Device::cpu, used, plain.threads()));
  sample(plain, {.logits = logits,
                 .vocab_used = used,
                 .rows = SampleRows(rows),
                 .out = out,
                 .workspace = {room.data(), DType::u8, {std::ssize(room)}}});
  return out;
}

std::vector<SampledToken> on_device(cuda::Stream& stream, const Tensor& logits,
                                    std::span<const OwnRow> rows, std::int32_t used) {
  std::vector<SampledToken> out(rows.size());
  cuda::sample(stream, {.logits = logits,
                        .vocab_used = used,
                        .rows = SampleRows(rows),
                        .out = out,
                        .workspace = {}});
  return out;
}

void check_same(const SampledToken& is, const SampledToken& expected) {
  REQUIRE(is.finite == expected.finite);
  REQUIRE(index(is.token) == index(expected.token));
  REQUIRE(is.logprob == doctest::Approx(expected.logprob).epsilon(1e-5));
  REQUIRE(is.top.size() == expected.top.size());
  for (std::size_t i = 0; i < is.top.size(); ++i) {
    REQUIRE(index(is.top[i].token) == index(expected.top[i].token));
    REQUIRE(is.top[i].logprob == doctest::Approx(expected.top[i].logprob).epsilon(1e-5));
  }
}

/// The whole call is the plain loops', the last row alone too, and the logits are as they were.
void check_rows(const TestTensor& logits, const std::vector<OwnRow>& rows, std::int32_t used) {
  const auto expected = by_plain_loops(logits, rows, used);
  const DeviceTensor there(logits);
  cuda::Stream stream;
  const auto answer = on_device(stream, there, rows, used);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    CAPTURE(r);
    check_same(answer[r], expected[r]);
  }
  const std::size_t last = rows.size() - 1;
  const Tensor row = Tensor(there).rows(static_cast<std::int64_t>(last), 1);
  check_same(on_device(stream, row, std::span(rows).last(1), used)[0], expected[last]);
  CHECK(there.fetch().everything() == logits.everything());
}

/// Every kind of parameters, for a vocabulary of at least 8.
std::vector<OwnRow> all_kinds(std::int32_t used, const std::vector<TokenId>& history,
                              const std::vector<LogitBias>& bias,
                              const std::vector<TokenId>& banned) {
  std::vector<OwnRow> rows = {
      {.by = {.temperature = 0.0F, .logprobs = 0}},
      {.by = {.temperature = 0.0F, .repetition_penalty = 1.3F, .logprobs = 3}, .history = history},
      {.by = {.temperature = 1.0F, .logprobs = std::min(used, logprobs_max)}},
      {.by = {.temperature = 0.3F, .min_p = 0.02F}},
      {.by = {.temperature = 3.0F, .top_p = 0.9F}},
      {.by = {.temperature = 1.0F, .top_p = 0.4F, .min_p = 0.1F, .logprobs = 1}},
      {.by = {.temperature = 2.0F, .top_k = 5}},
      {.by = {.temperature = 1.5F, .top_k = used - 1, .top_p = 0.95F}},
      {.by = {.temperature = 4.0F, .top_k = 6, .top_p = 0.7F, .min_p = 0.05F}},
      {.by = {.temperature = 1.0F, .top_k = 1}},
      {.by = {.temperature = 1.0F,
              .top_k = used,
              .frequency_penalty = 0.4F,
              .presence_penalty = 0.3F},
       .history = history},
      {.by = {.temperature = 0.8F, .repetition_penalty = 0.7F},
       .history = history,
       .bias = bias,
       .banned = banned},
      {.by = {.temperature = 50.0F, .top_p = 0.99F, .logprobs = 2}, .banned = banned},
      {.by = {.temperature = 3.0F, .top_n_sigma = 0.8F, .logprobs = 1}},
      {.by = {.temperature = 2.0F, .top_k = 7, .top_p = 0.9F, .min_p = 0.01F, .top_n_sigma = 1.5F},
       .bias = bias},
      {.by = {.temperature = 1.2F, .top_p = 0.97F, .repetition_penalty = 1.3F, .top_n_sigma = 0.5F},
       .history = history,
       .banned = banned},
      {.by = {.temperature = 9.0F, .top_k = used - 2, .top_n_sigma = 2.0F}},
      {.by = {.temperature = 1e-4F, .top_p = 0.5F}}};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r].by.seed = 5 + r;
    rows[r].draw = r * 3;
    rows[r].prompt_tokens = static_cast<std::int32_t>(rows[r].history.size() / 2);
    if (r % 3 == 1) continue;
    std::vector<TokenId> allowed = {TokenId{used / 2}};  // alone: all but one are masked
    for (std::int32_t i = 0; r % 3 == 0 && i < used; ++i) {
      if (i * 7 % 5 < 2) allowed.push_back(TokenId{i});
    }
    rows[r].mask = mask_of(used, allowed);
  }
  return rows;
}

/// Logits in steps of `step` (0: none), so that many are equal.
void check_kinds(std::int32_t used, float step, float deviation, Strides strides) {
  CAPTURE(used);
  CAPTURE(step);
  std::mt19937 random(7);
  std::vector<TokenId> history;
  for (int i = 0; i < 40; ++i) {
    history.push_back(TokenId{static_cast<std::int32_t>(random() % static_cast<unsigned>(used))});
  }
  const std::vector<LogitBias> bias = {
      {TokenId{1}, 2.5F}, {TokenId{2}, 0.1F}, {TokenId{4}, -1000.0F}};
  const std::vector<TokenId> banned = {TokenId{0}, history[5], TokenId{used - 1}};
  const auto rows = all_kinds(used, history, bias, banned);
  auto logits = random_tensor(DType::f32, {std::ssize(rows), used + 3}, 11, deviation, strides);
  for (std::int64_t i = 0; i < logits.size(); ++i) {
    if (step > 0) logits.set(i, std::round(logits.get(i) / step) * step);
    if (i % (used + 3) >= used) logits.set(i, i % 2 == 0 ? NAN : 99.0F);
    if (i % 7 == 3 && i % (used + 3) < used) logits.set(i, -INFINITY);
  }
  check_rows(logits, rows, used);
}

TEST_SUITE("cuda/sample") {
  TEST_CASE("chooses as the plain loops do, among equals too, and leaves the logits as they were") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      check_kinds(3001, 0.0F, 2.0F, {2, 1});
      check_kinds(700, 0.5F, 1.0F, {});
      check_kinds(9, 1.0F, 1.0F, {1, 0});
      check_kinds(600, 100.0F, 1.0F, {});  // all alike
    });
  }

  TEST_CASE("of a long row, where fewer or more are left than a block keeps") {
    check_kinds(9'000, 0.0F, 2.0F, {});
    check_kinds(9'000, 0.25F, 3.0F, {});  // many equals
  }

  TEST_CASE("several blocks draw from a row: alone, among others, and with a block for each row") {
    constexpr std::int32_t used = 24'600;
    // What is left of a row: a few logits; more than the blocks keep of theirs; all; one of many
    // equals that end in different blocks; those of one block alone.
    std::vector<OwnRow> rows = {
        {.by = {.temperature = 1.0F, .top_p = 0.9F, .seed = 1}},
        {.by = {.temperature = 0.7F, .top_k = 40, .seed = 2}},
        {.by = {.temperature = 3.0F, .top_p = 0.8F, .seed = 3}},
        {.by = {.temperature = 3.0F, .top_k = 6'000, .top_p = 0.99F, .seed = 4}},
        {.by = {.temperature = 2.0F, .seed = 5}},
        {.by = {.temperature = 1.0F, .min_p = 0.05F, .seed = 6}},
        {.by = {.temperature = 1.0F, .top_p = 0.95F, .min_p = 0.01F, .seed = 7}},
        {.by = {.temperature = 0.5F, .top_k = 3, .seed = 8}},
        {.by = {.temperature = 4.0F, .top_n_sigma = 1.0F, .seed = 9}},
        {.by = {.temperature = 4.0F, .top_p = 0.9F, .top_n_sigma = 1.5F, .seed = 10}},
        {.by = {.temperature = 2.0F, .top_p = 0.9F, .seed = 11}},
        {.by = {.temperature = 5.0F, .logprobs = 2, .seed = 12}}};
    for (std::int32_t i = 10; i < 12; ++i) {  // of all blocks, and of one or two
      std::vector<TokenId> allowed;
      for (std::int32_t id = 5; id < used; id += i == 10 ? 3 : 8'000)
        allowed.push_back(TokenId{id});
      rows[static_cast<std::size_t>(i)].mask = mask_of(used, allowed);
    }
    TestTensor logits = random_tensor(DType::f32, {std::ssize(rows), used}, 31, 2.0F);
    const auto set = [&](int row, int id, float logit) { logits.set(row * used + id, logit); };
    for (int id = 7; id < used; id += 8'190) set(7, id, 20.0F);
    for (int id = 0; id < used; ++id) {
      if (id / 512 % 4 != 2 && id % 8 != 0) set(0, id, -10.0F);  // one block has most of the likely
    }
    for (std::uint64_t draw = 0; draw < 3; ++draw) {
      for (OwnRow& row : rows) row.draw = draw;
      check_rows(logits, rows, used);
    }
    // Many draws: what a cut has of one block too few of, it has of the others too many.
    TestTensor same(DType::f32, {32, used});
    for (std::int64_t i = 0; i < same.size(); ++i) same.set(i, logits.get(i % used));
    std::vector<OwnRow> draws(32, rows[0]);
    for (std::size_t r = 0; r < draws.size(); ++r) draws[r].draw = 10 + r;
    check_rows(same, draws, used);

    cuda::Stream stream;
    const DeviceTensor few(logits);
    const auto alone = on_device(stream, few, rows, used);
    TestTensor copies(DType::f32, {72, used});
    std::vector<OwnRow> many;
    for (std::int64_t i = 0; i < copies.size(); ++i) copies.set(i, logits.get(i % logits.size()));
    for (std::size_t r = 0; r < 72; ++r) many.push_back(rows[r % rows.size()]);
    const DeviceTensor all(copies);
    const auto together = on_device(stream, all, many, used);
    for (std::size_t r = 0; r < many.size(); ++r) {
      CHECK(together[r].token == alone[r % rows.size()].token);
    }
  }

  TEST_CASE("a row that cannot be sampled says so") {
    constexpr std::int32_t used = 70;
    std::vector<TokenId> all;
    for (int i = 0; i < used; ++i) all.push_back(TokenId{i});
    TestTensor logits(DType::f32, {6, used});
    logits.set(33, NAN);
    logits.set(used + 69, INFINITY);
    for (int i = 0; i < used; ++i) logits.set(2 * used + i, -INFINITY);
    std::vector<OwnRow> rows(6);
    rows[3].banned = all;
    logits.set(4 * used + 3, 3e38F);
    rows[4].history = {TokenId{3}};
    rows[4].by.repetition_penalty = 0.1F;
    rows[5].by.logprobs = 1;
    in_every_schedule([&](const std::string&) { check_rows(logits, rows, used); });
  }

  TEST_CASE("a round draws for what was staged; ids alone are the whole answers' ids") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    constexpr std::int32_t used = 40;
    const auto sampler = make_device_sampler(card, 8);
    const DeviceTensor logits(random_tensor(DType::f32, {5, used}, 3));
    TestTensor bad = random_tensor(DType::f32, {5, used}, 3);
    bad.set(used + 1, NAN);
    const DeviceTensor with_nan(bad), tokens(TestTensor(DType::i32, {5}));
    const std::vector<OwnRow> rows(3, OwnRow{.by = {.temperature = 0.0F}});
    CHECK_THROWS_AS(sampler->stage(SampleRows(rows), 9, used), Error);
    sampler->stage(SampleRows(rows), 5, used);
    CHECK_THROWS_AS(sampler->draw(Tensor(logits).rows(0, 3), used, {}), Error);
    CHECK_THROWS_AS(sampler->draw(logits, used - 1, {}), Error);

    sampler->draw(with_nan, used, tokens);
    sampler->ask(tokens);
    const std::span<const SampledToken> ids = sampler->answers();
    REQUIRE(ids.size() == 3);
    const std::vector<SampledToken> first(ids.begin(), ids.end());
    sampler->ask({});
    const std::span<const SampledToken> whole = sampler->answers();
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(first[i].finite == whole[i].finite);
      if (i != 1) CHECK(first[i].token == whole[i].token);
    }
    CHECK_FALSE(first[1].finite);
    const TestTensor table = tokens.fetch();
    CHECK(table.get(1) < 0);
    CHECK(table.get(3) == 0);  // not sampled
    CHECK(table.get(4) == 0);
  }

  TEST_CASE("several blocks look through a long row: of equals the lowest id, a NaN in any part") {
    constexpr std::int32_t used = 20'000;
    TestTensor logits = random_tensor(DType::f32, {4, used}, 21, 2.0F);
    for (const int id : {9'000, 9'001, 19'999}) logits.set(id, 30.0F);
    logits.set(2 * used + 19'990, 25.0F);
    logits.set(3 * used + 12'345, NAN);
    const std::vector<TokenId> banned = {TokenId{19'990}};
    std::vector<OwnRow> rows(4);
    rows[0].by.temperature = rows[3].by.temperature = 0.0F;
    rows[1] = {.by = {.temperature = 0.8F, .top_p = 0.9F, .seed = 3}};
    rows[2] = {.by = {.temperature = 0.5F, .logprobs = 5, .seed = 4}, .banned = banned};
    in_every_schedule([&](const std::string&) { check_rows(logits, rows, used); });
  }

  TEST_CASE("a round may be staged, drawn and requested before the answers of the one before") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    constexpr std::int32_t used = 40;
    const auto sampler = make_device_sampler(card, 8);
    const DeviceTensor logits(random_tensor(DType::f32, {5, used}, 3)),
        others(random_tensor(DType::f32, {5, used}, 4)), tokens(TestTensor(DType::i32, {5}));
    const std::vector<OwnRow> rows(5, OwnRow{.by = {.temperature = 0.0F}}),
        fewer(rows.begin() + 2, rows.end());
    const auto ask = [&](const std::vector<OwnRow>& round, const DeviceTensor& from) {
      sampler->stage(SampleRows(round), 5, used);
      sampler->draw(from, used, tokens);
      sampler->ask(tokens);
    };
    const auto answers = [&] {
      const std::span<const SampledToken> drawn = sampler->answers();
      std::vector<TokenId> ids;
      for (const SampledToken& token : drawn) ids.push_back(token.token);
      return ids;
    };
    ask(rows, logits);
    const std::vector<TokenId> first = answers();
    ask(fewer, others);
    const std::vector<TokenId> second = answers();
    REQUIRE(first.size() == 5);
    REQUIRE(second.size() == 3);
    CHECK(std::vector(first.begin(), first.begin() + 3) != second);
    for (int round = 0; round < 3; ++round) {
      ask(rows, logits);
      ask(fewer, others);
      CHECK_THROWS_AS(sampler->ask(tokens), Error);
      CHECK(answers() == first);
      CHECK(answers() == second);
    }
    CHECK_THROWS_AS(answers(), Error);
  }

  TEST_CASE("masks are those of the round, whether or not the one before had some") {
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    constexpr std::int32_t used = 70;
    const auto sampler = make_device_sampler(card, 4);
    const DeviceTensor logits(random_tensor(DType::f32, {3, used}, 5)),
        tokens(TestTensor(DType::i32, {3}));
    const std::vector<OwnRow> free(3, OwnRow{.by = {.temperature = 0.0F}});
    std::vector<OwnRow> bound = free;
    for (std::size_t r = 0; r < 3; ++r) {
      if (r != 1)
        bound[r].mask = mask_of(used, std::vector{TokenId{static_cast<std::int32_t>(33 * r)}});
    }
    const auto draw = [&](const std::vector<OwnRow>& rows) {
      const SampleRows given(rows);
      sampler->stage(given, 3, used);
      sampler->draw(logits, used, tokens);
      sampler->ask(tokens);
      std::vector<int> ids;
      for (const SampledToken& token : sampler->answers()) ids.push_back(index(token.token));
      return ids;
    };
    const std::vector<int> first = draw(free);
    CHECK(draw(bound) == std::vector<int>{0, first[1], 66});
    CHECK(draw(free) == first);
    bound[0].mask.push_back(0);
    CHECK_THROWS_AS(draw(bound), Error);
  }

  TEST_CASE("draws follow the softmax") {
    const TestTensor logits = random_tensor(DType::f32, {200, 5}, 1);
    TestTensor same = logits;
    for (std::int64_t i = 0; i < logits.size(); ++i) same.set(i, logits.get(i % 5));
    std::vector<OwnRow> rows(200);
    for (std::size_t r = 0; r < rows.size(); ++r)
      rows[r] = {.by = {.temperature = 1.0F, .seed = 9}, .draw = r};
    check_rows(same, rows, 5);
  }
}

}  // namespace

}  // namespace cuda_sample_test
