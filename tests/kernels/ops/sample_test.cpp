#include "kernels/ops/sample.h"

#include <doctest/doctest.h>

#include <functional>
#include <set>

#include "tests/kernels/sample_rows.h"
#include "tests/kernels/support.h"

namespace ops_sample_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

std::vector<SampledToken> run(Queue& queue, const TestTensor& logits,
                              const std::vector<OwnRow>& rows, std::int32_t used) {
  std::vector<SampledToken> out(rows.size());
  TestTensor workspace(
      DType::u8,
      {static_cast<std::int64_t>(sample_workspace_bytes(Device::cpu, used, queue.threads()))});
  const auto before = logits.everything();
  const SampleRows given(rows);
  sample(queue,
         {.logits = logits, .vocab_used = used, .rows = given, .out = out, .workspace = workspace});
  CHECK(workspace.guards_intact());
  CHECK(logits.everything() == before);
  return out;
}

SampledToken run_one(Queue& queue, const std::vector<float>& values, const OwnRow& row) {
  TestTensor logits(DType::f32, {1, static_cast<std::int64_t>(values.size())}, {3, 1});
  for (std::size_t i = 0; i < values.size(); ++i) {
    logits.set(static_cast<std::int64_t>(i), values[i]);
  }
  return run(queue, logits, {row}, static_cast<std::int32_t>(values.size())).front();
}

SampledToken run_one(Isa isa, const std::vector<float>& values, const OwnRow& row) {
  Queue queue = test_queue(isa);
  return run_one(queue, values, row);
}

/// How often each token comes in `draws` draws.
std::vector<int> histogram(const std::vector<float>& values, OwnRow row, int draws) {
  std::vector<int> counts(values.size());
  Queue queue = test_queue(best_isa());
  for (int i = 0; i < draws; ++i) {
    row.draw = static_cast<std::uint64_t>(i);
    const SampledToken got = run_one(queue, values, row);
    REQUIRE(got.finite);
    ++counts[static_cast<std::size_t>(index(got.token))];
  }
  return counts;
}

const OwnRow greedy{.by = {.temperature = 0.0F}};

TEST_SUITE("kernels/ops/sample") {
  TEST_CASE("greedy takes the first maximum among the used ids, wherever it is") {
    for (const Isa isa : available_isas()) {
      for (const std::int32_t used : {1, 15, 16, 17, 63, 1000}) {
        Queue queue = test_queue(isa, 2);
        TestTensor logits = random_tensor(DType::f32, {used, used + 5}, 1, 1.0F, {3, 1});
        std::vector<OwnRow> rows(static_cast<std::size_t>(used), greedy);
        for (std::int32_t r = 0; r < used; ++r) {
          const std::int64_t begin = r * (used + 5);
          logits.set(begin + r, 9.0F);
          logits.set(begin + used - 1, 9.0F);
          for (int i = 0; i < 5; ++i) logits.set(begin + used + i, i == 0 ? NAN : 99.0F);
        }
        const auto out = run(queue, logits, rows, used);
        for (std::int32_t r = 0; r < used; ++r) {
          REQUIRE(index(out[static_cast<std::size_t>(r)].token) == r);
        }
      }
    }
  }

  TEST_CASE("a row that cannot be sampled says so") {
    std::vector<float> values(70, 1.0F);
    for (const Isa isa : available_isas()) {
      for (const float temperature : {0.0F, 1.0F}) {
        const OwnRow row{.by = {.temperature = temperature}};
        for (const std::size_t place : {0UL, 33UL, 69UL}) {
          auto with_nan = values, with_infinity = values;
          with_nan[place] = NAN;
          with_infinity[place] = INFINITY;
          CHECK_FALSE(run_one(isa, with_nan, row).finite);
          CHECK_FALSE(run_one(isa, with_infinity, row).finite);
        }
        CHECK_FALSE(run_one(isa, std::vector<float>(70, -INFINITY), row).finite);
        std::vector<TokenId> all;
        for (int i = 0; i < 70; ++i) all.push_back(TokenId{i});
        OwnRow banned = row;
        banned.banned = all;
        CHECK_FALSE(run_one(isa, values, banned).finite);
      }
    }
  }

  TEST_CASE("draws follow the softmax at any temperature") {
    const std::vector<float> values{0.0F, 1.0F, 2.0F, -INFINITY, 0.5F};
    for (const float temperature : {0.5F, 1.0F, 2.0F}) {
      double total = 0;
      for (const float v : values) total += std::exp(v / temperature);
      const auto counts = histogram(values, {.by = {.temperature = temperature, .seed = 3}}, 20000);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double p = std::exp(values[i] / temperature) / total;
        CHECK(std::fabs(counts[i] / 20000.0 - p) < 4.0 * std::sqrt(p * (1 - p) / 20000.0) + 1e-9);
      }
    }
  }

  TEST_CASE("top_k, top_p and min_p keep what they say") {
    // Probabilities 0.4, 0.3, 0.2, 0.1 at ids 2, 0, 3, 1.
    const std::vector<float> values{std::log(0.3F), std::log(0.1F), std::log(0.4F), std::log(0.2F)};
    const auto kept = [&](OwnRow row) {
      std::set<int> ids;
      const auto counts = histogram(values, row, 600);
      for (int i = 0; i < 4; ++i) {
        if (counts[static_cast<std::size_t>(i)] > 0) ids.insert(i);
      }
      return ids;
    };
    CHECK(kept({}) == std::set<int>{0, 1, 2, 3});
    CHECK(kept({.by = {.temperature = 1.0F, .top_k = 1}}) == std::set<int>{2});
    CHECK(kept({.by = {.temperature = 1.0F, .top_k = 3}}) == std::set<int>{0, 2, 3});
    CHECK(kept({.by = {.temperature = 1.0F, .top_k = 100}}) == std::set<int>{0, 1, 2, 3});
    CHECK(kept({.by = {.temperature = 1.0F, .top_p = 0.3F}}) == std::set<int>{2});
    CHECK(kept({.by = {.temperature = 1.0F, .top_p = 0.65F}}) == std::set<int>{0, 2});
    CHECK(kept({.by = {.temperature = 1.0F, .top_p = 0.75F}}) == std::set<int>{0, 2, 3});
    CHECK(kept({.by = {.temperature = 1.0F, .min_p = 0.6F}}) == std::set<int>{0, 2});
    // top_p counts within what top_k leaves: 4/7 of {2, 0} is 0.4/0.7.
    CHECK(kept({.by = {.temperature = 1.0F, .top_k = 2, .top_p = 0.56F}}) == std::set<int>{2});
    CHECK(kept({.by = {.temperature = 1.0F, .top_k = 3, .top_p = 0.99F, .min_p = 0.6F}}) ==
          std::set<int>{0, 2});
  }

  TEST_CASE(
      "top_n_sigma keeps what is within n deviations of the largest, whatever the temperature") {
    constexpr std::int32_t vocab = 3001;
    TestTensor logits = random_tensor(DType::f32, {1, vocab}, 17, 2.5F, {1, 2});
    for (const int id : {5, 900, 3000}) logits.set(id, -INFINITY);  // count for nothing
    const std::vector<TokenId> history = {TokenId{7}, TokenId{8}, TokenId{7}};
    const std::vector<LogitBias> bias = {{TokenId{11}, 6.0F}};
    // Of the definition, in two passes: the mean, then the mean square of what is left.
    const auto kept_by = [&](const OwnRow& row) {
      std::vector<double> values;
      for (int id = 0; id < vocab; ++id) values.push_back(static_cast<double>(logits.get(id)));
      for (const int seen : {7, 8}) {
        const bool is_answer = row.by.presence_penalty != 0.0F && !row.history.empty();
        if (is_answer) values[static_cast<std::size_t>(seen)] -= double{row.by.presence_penalty};
      }
      for (const LogitBias& one : row.bias) {
        values[static_cast<std::size_t>(index(one.token))] += double{one.bias};
      }
      double mean = 0, square = 0, largest = -INFINITY;
      int count = 0;
      for (const double value : values) {
        if (value == -INFINITY) continue;
        mean += value;
        largest = std::max(largest, value);
        ++count;
      }
      mean /= count;
      for (const double value : values) {
        if (value != -INFINITY) square += (value - mean) * (value - mean);
      }
      const double least = largest - double{row.by.top_n_sigma} * std::sqrt(square / count);
      std::vector<int> kept;
      for (int id = 0; id < vocab; ++id) {
        if (values[static_cast<std::size_t>(id)] >= least) kept.push_back(id);
      }
      std::ranges::stable_sort(kept, std::greater<>(),
                               [&](int id) { return values[static_cast<std::size_t>(id)]; });
      return kept;
    };
    const auto drawn = [&](OwnRow row) {
      std::set<int> ids;
      Queue queue = test_queue(best_isa());
      for (int i = 0; i < 400; ++i) {
        row.draw = static_cast<std::uint64_t>(i);
        ids.insert(index(run(queue, logits, {row}, vocab).front().token));
      }
      return ids;
    };
    const SamplingNumbers base = {.temperature = 50.0F, .top_n_sigma = 0.8F};
    std::vector<OwnRow> rows(4, OwnRow{.by = base});
    rows[1].by.temperature = 3.0F;
    rows[2] = {.by = base, .history = history, .bias = bias};
    rows[2].by.presence_penalty = 90.0F;
    rows[3].by.top_n_sigma = 1e-3F;
    for (const OwnRow& row : rows) {
      const std::vector<int> kept = kept_by(row);
      REQUIRE(kept.size() < 60);
      CHECK(drawn(row) == std::set<int>(kept.begin(), kept.end()));
    }
    const std::vector<int> kept = kept_by(rows[0]);
    REQUIRE(kept.size() > 5);
    OwnRow few = rows[0];
    few.by.top_k = 3;
    CHECK(drawn(few) == std::set<int>(kept.begin(), kept.begin() + 3));
    few.by.top_k = 500;  // more than are left
    CHECK(drawn(few) == std::set<int>(kept.begin(), kept.end()));
    for (const float off : {0.0F, -1.0F}) {
      few = rows[0];
      few.by.top_n_sigma = off;
      CHECK(drawn(few).size() > 300);
    }
  }

  TEST_CASE("top_n_sigma draws the same on every route, alone and among others") {
    constexpr std::int32_t vocab = 2999;
    const TestTensor logits = random_tensor(DType::f32, {6, vocab}, 23, 3.0F);
    std::vector<OwnRow> rows(6);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      rows[r] = {
          .by = {.temperature = 5.0F, .top_n_sigma = 0.3F * static_cast<float>(r), .seed = r},
          .draw = r};
    }
    std::vector<TokenId> first;
    for (const Isa isa : available_isas()) {
      for (const int threads : {1, 3}) {
        Queue queue = test_queue(isa, threads);
        std::vector<TokenId> tokens;
        for (const SampledToken& token : run(queue, logits, rows, vocab)) {
          tokens.push_back(token.token);
        }
        if (first.empty()) first = tokens;
        CHECK(tokens == first);
      }
    }
  }

  TEST_CASE("of equals top_k keeps the lower ids") {
    const std::vector<float> values(40, 0.5F);
    const auto counts = histogram(values, {.by = {.temperature = 1.0F, .top_k = 3}}, 300);
    for (std::size_t i = 0; i < 40; ++i) CHECK((counts[i] > 0) == (i < 3));
  }

  TEST_CASE("a large vocabulary: filters agree with a full sort") {
    constexpr std::int32_t vocab = 30011;
    TestTensor logits = random_tensor(DType::f32, {1, vocab}, 11, 2.0F);
    std::vector<int> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits.get(a) > logits.get(b); });
    double total = 0, sum = 0;
    for (const int i : order) total += std::exp(static_cast<double>(logits.get(i)));
    std::size_t in_nucleus = 0;
    while (sum < 0.9 * total) sum += std::exp(static_cast<double>(logits.get(order[in_nucleus++])));
    const std::set<int> nucleus(order.begin(),
                                order.begin() + static_cast<std::ptrdiff_t>(in_nucleus) + 1);
    const std::set<int> best(order.begin(), order.begin() + 50);
    Queue queue = test_queue(best_isa(), 2);
    for (std::uint64_t draw = 0; draw < 40; ++draw) {
      const auto by_p =
          run(queue, logits,
              {{.by = {.temperature = 1.0F, .top_p = 0.9F, .seed = 1}, .draw = draw}}, vocab);
      REQUIRE(nucleus.count(index(by_p.front().token)) == 1);
      const auto by_k =
          run(queue, logits, {{.by = {.temperature = 1.0F, .top_k = 50, .seed = 1}, .draw = draw}},
              vocab);
      REQUIRE(best.count(index(by_k.front().token)) == 1);
    }
  }

  TEST_CASE("penalties: repetition over the whole history, the others over what was generated") {
    const std::vector<float> values{1.0F, 2.0F, -1.0F, 0.5F};
    const std::vector<TokenId> history{TokenId{1}, TokenId{2}, TokenId{0}, TokenId{0}};
    OwnRow row{.by = {.temperature = 0.0F, .repetition_penalty = 4.0F},
               .history = history,
               .prompt_tokens = 2};
    CHECK(index(run_one(best_isa(), values, row).token) == 1);  // 0.25, 0.5, -4, 0.5: first of two
    row.by.repetition_penalty = 5.0F;
    CHECK(index(run_one(best_isa(), values, row).token) == 3);  // 0.2, 0.4, -5, 0.5
    row.by.repetition_penalty = 1.0F;
    row.by.presence_penalty = 9.0F;
    CHECK(index(run_one(best_isa(), values, row).token) == 1);  // prompt tokens go free
    row.by.presence_penalty = -0.4F;
    row.by.frequency_penalty = -0.4F;
    CHECK(index(run_one(best_isa(), values, row).token) == 0);  // 1 + 0.4 + 2 * 0.4 = 2.2
  }

  TEST_CASE("biases and bans move the choice; logprobs stay the model's own") {
    const std::vector<float> values{0.0F, 2.0F, 1.0F, -1.0F};
    double total = 0;
    for (const float v : values) total += std::exp(v);
    const std::vector<LogitBias> bias{{TokenId{3}, 10.0F}};
    const std::vector<TokenId> banned{TokenId{3}, TokenId{1}};
    for (const Isa isa : available_isas()) {
      OwnRow row{.by = {.temperature = 0.0F, .logprobs = 2}, .bias = bias};
      const SampledToken biased = run_one(isa, values, row);
      CHECK(index(biased.token) == 3);
      CHECK(biased.logprob == doctest::Approx(-1.0 - std::log(total)).epsilon(1e-6));
      REQUIRE(biased.top.size() == 2);
      CHECK(index(biased.top[0].token) == 1);
      CHECK(biased.top[0].logprob == doctest::Approx(2.0 - std::log(total)).epsilon(1e-6));
      CHECK(index(biased.top[1].token) == 2);
      row.banned = banned;
      row.by.logprobs = 0;
      const SampledToken spared = run_one(isa, values, row);
      CHECK(index(spared.token) == 2);
      CHECK(spared.top.size() == 0);
      row.by.logprobs = 4;
      CHECK(run_one(isa, values, row).top.size() == 4);
    }
  }

  TEST_CASE("a mask is as if the other logits were minus infinity; logprobs stay the model's own") {
    std::mt19937 random(29);
    for (const Isa isa : available_isas()) {
      for (const std::int32_t used : {1, 31, 32, 33, 64, 700}) {
        CAPTURE(used);
        const TestTensor logits = random_tensor(DType::f32, {1, used}, 31, 2.0F);
        std::vector<float> values;
        for (std::int32_t i = 0; i < used; ++i) values.push_back(logits.get(i));
        const std::vector<TokenId> history = {TokenId{0}, TokenId{used / 2}, TokenId{used - 1}};
        for (const std::int32_t kept : {1, 2, std::max(used / 3, 1), used}) {
          std::vector<TokenId> tokens;
          for (std::int32_t i = 0; i < used; ++i) {
            const bool is_in = kept == used || (kept > 2 && random() % 3 == 0);
            if (is_in) tokens.push_back(TokenId{i});
          }
          while (std::ssize(tokens) < std::min(kept, 2)) {
            tokens.push_back(
                TokenId{static_cast<std::int32_t>(random() % static_cast<unsigned>(used))});
          }
          std::vector<float> masked(values.size(), -INFINITY);
          for (const TokenId token : tokens) {
            masked[static_cast<std::size_t>(index(token))] =
                values[static_cast<std::size_t>(index(token))];
          }
          for (const OwnRow& row :
               std::vector<OwnRow>{greedy,
                                   {.by = {.temperature = 1.0F}},
                                   {.by = {.temperature = 2.0F, .top_k = 3}},
                                   {.by = {.temperature = 1.5F, .top_p = 0.8F}},
                                   {.by = {.temperature = 1.0F, .top_k = used, .min_p = 0.1F}},
                                   {.by = {.temperature = 3.0F, .top_n_sigma = 1.0F}},
                                   {.by = {.temperature = 1.0F, .repetition_penalty = 1.3F},
                                   .history = history,
                                   .bias = {{TokenId{0}, 3.0F}}}}) {
            OwnRow bound = row;
            bound.mask = mask_of(used, tokens);
            bound.by.logprobs = 0;
            for (std::uint64_t draw = 0; draw < 8; ++draw) {
              bound.draw = draw;
              OwnRow plain = row;
              plain.draw = draw;
              const SampledToken got = run_one(isa, values, bound);
              REQUIRE(got.finite);
              CHECK(index(got.token) == index(run_one(isa, masked, plain).token));
              double total = 0;
              for (const float value : values) total += std::exp(double{value});
              CHECK(got.logprob ==
                    doctest::Approx(double{values[static_cast<std::size_t>(index(got.token))]} -
                                    std::log(total))
                        .epsilon(1e-4));
            }
          }
        }
        OwnRow none = greedy;
        none.mask = mask_of(used, {});
        CHECK_FALSE(run_one(isa, values, none).finite);
        none.mask.push_back(0);
        CHECK_THROWS_AS(run_one(isa, values, none), Error);
      }
    }
  }

  TEST_CASE("a row's token depends on nothing but the row: not on neighbours, not on threads") {
    constexpr std::int32_t vocab = 3001;
    for (const Isa isa : available_isas()) {
      const TestTensor logits = random_tensor(DType::f32, {9, vocab}, 5, 3.0F);
      const std::vector<TokenId> history{TokenId{5}, TokenId{77}, TokenId{5}};
      std::vector<OwnRow> rows;
      for (int r = 0; r < 9; ++r) {
        rows.push_back({.by = {.temperature = r % 3 == 0 ? 0.0F : 1.3F,
                               .top_k = r % 4 == 1 ? 40 : 0,
                               .top_p = r % 2 == 0 ? 0.95F : 1.0F,
                               .frequency_penalty = 0.1F,
                               .logprobs = 3,
                               .seed = 99},
                        .draw = static_cast<std::uint64_t>(r),
                        .history = history});
      }
      Queue one = test_queue(isa, 1);
      const auto alone = run(one, logits, rows, vocab);
      for (const int threads : {2, 3}) {
        Queue queue = test_queue(isa, threads);
        const auto together = run(queue, logits, rows, vocab);
        for (std::size_t r = 0; r < 9; ++r) {
          CHECK(together[r].token == alone[r].token);
          CHECK(together[r].logprob == alone[r].logprob);
        }
      }
      for (std::size_t r = 0; r < 9; ++r) {
        TestTensor own(DType::f32, {1, vocab}, {0, 3});
        for (std::int64_t i = 0; i < vocab; ++i) {
          own.set(i, logits.get(static_cast<std::int64_t>(r) * vocab + i));
        }
        const auto single = run(one, own, {rows[r]}, vocab);
        CHECK(single.front().token == alone[r].token);
        CHECK(single.front().logprob == alone[r].logprob);
      }
    }
  }

  TEST_CASE("parameters out of range are the user's error, by name") {
    const std::vector<float> values(8, 0.0F);
    const auto refused = [&](const OwnRow& row) {
      try {
        run_one(Isa::plain, values, row);
      } catch (const Error& error) {
        return error.kind() == ErrorKind::usage;
      }
      return false;
    };
    const std::vector<TokenId> stranger{TokenId{8}};
    const std::vector<LogitBias> endless{{TokenId{1}, INFINITY}};
    CHECK(refused({.by = {.temperature = -1.0F}}));
    CHECK(refused({.by = {.temperature = NAN}}));
    CHECK(refused({.by = {.temperature = 1.0F, .top_k = -2}}));
    CHECK(refused({.by = {.temperature = 1.0F, .top_p = 0.0F}}));
    CHECK(refused({.by = {.temperature = 1.0F, .top_p = 1.1F}}));
    CHECK(refused({.by = {.temperature = 1.0F, .min_p = 2.0F}}));
    CHECK(refused({.by = {.temperature = 1.0F, .repetition_penalty = 0.0F}}));
    CHECK(refused({.by = {.temperature = 1.0F, .presence_penalty = NAN}}));
    CHECK(refused({.by = {.temperature = 1.0F, .logprobs = 21}}));
    CHECK(refused({.banned = stranger}));
    CHECK(refused({.bias = endless}));
    const OwnRow strange = {.by = {.presence_penalty = 1.0F}, .history = stranger};
    CHECK_THROWS_WITH_AS(run_one(Isa::plain, values, strange),
                         "sample: history is of the vocabulary, got 8", Error);
  }
}

}  // namespace

}  // namespace ops_sample_test
