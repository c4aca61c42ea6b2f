#include <algorithm>

#include <doctest/doctest.h>

#include "app/replay/cache_policy.h"
#include "app/replay/replay.h"
#include "tests/app/replay/small_shape.h"
#include "tests/support/traces.h"

namespace cache_policy_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

constexpr PolicyKind policies[] = {
    PolicyKind::vllm_plus, PolicyKind::sglang_plus, PolicyKind::marconi, PolicyKind::vllm,
    PolicyKind::sglang,    PolicyKind::lru,         PolicyKind::gd};

}  // namespace

TEST_SUITE("app/replay/cache_policy") {
  TEST_CASE("names lead to kinds and back") {
    for (int i = 0; i <= static_cast<int>(PolicyKind::bound); ++i) {
      const auto kind = static_cast<PolicyKind>(i);
      CHECK(value_of(words::policy, word_of(words::policy, kind)) == kind);
    }
    CHECK(!value_of(words::policy, "GD"));
    CHECK(word_of(words::policy, PolicyKind::vllm_plus) == "vllm+");
  }

  TEST_CASE("no policy passes the bound, holds more than its budget or reuses what it has not") {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const auto trace = random_trace(seed, 300, 1 + static_cast<int>(seed) * 2);
      const ReplayRun bound = replay(trace, small_shape(), {.kind = PolicyKind::bound});
      for (const PolicyKind kind : policies) {
        for (const std::int64_t budget : {0, 150, 1000, 5000, 1'000'000}) {
          for (const Precision precision : {Precision::exact, Precision::int8}) {
            CAPTURE(word_of(words::policy, kind));
            CAPTURE(budget);
            const ReplayRun run = replay(
                trace, small_shape(),
                {.kind = kind, .snapshots = precision, .budget_bytes = budget, .block_tokens = 8});
            for (std::size_t i = 0; i < trace.size(); ++i) {
              const Served served = run.requests[i].served;
              // Marconi's model leaves no token to draw from.
              const bool is_paper = kind == PolicyKind::marconi || kind == PolicyKind::sglang_plus;
              REQUIRE(served.reused >= 0);
              REQUIRE(served.matched >= served.reused);
              REQUIRE(served.matched <= bound.requests[i].served.reused + (is_paper ? 1 : 0));
            }
            const CacheCounters& counters = run.counters;
            CHECK(counters.kv_bytes >= 0);
            CHECK(counters.snapshot_bytes >= 0);
            if (kind != PolicyKind::vllm_plus) {  // which inserts whole requests
              CHECK(counters.kv_bytes + counters.snapshot_bytes <= budget);
            }
            CHECK(counters.snapshots_reused <= counters.snapshots_created);
            CHECK(counters.kv_tokens_reused <= counters.kv_tokens_created);
          }
        }
      }
    }
  }

  TEST_CASE("with memory without end only the placement of states is left") {
    const auto trace = random_trace(7, 300, 8);
    const auto rate = [&](PolicyKind kind, std::int32_t block) {
      return replay(trace, small_shape(),
                    {.kind = kind, .budget_bytes = 1'000'000'000, .block_tokens = block})
          .hit_rate();
    };
    const double bound = rate(PolicyKind::bound, 1);
    CHECK(rate(PolicyKind::vllm_plus, 1) == doctest::Approx(bound));  // a state at every token
    CHECK(rate(PolicyKind::sglang_plus, 1) == rate(PolicyKind::marconi, 1));
    CHECK(rate(PolicyKind::none, 1) == 0);
  }

  TEST_CASE("without recurrent layers admission makes no difference") {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const auto trace = random_trace(seed, 300, 8);
      const auto rate = [&](PolicyKind kind) {
        return replay(trace, small_shape(0),
                      {.kind = kind, .budget_bytes = 1'000'000, .block_tokens = 1})
            .hit_rate();
      };
      const double bound = rate(PolicyKind::bound);
      CHECK(rate(PolicyKind::vllm_plus) == doctest::Approx(bound));
      CHECK(rate(PolicyKind::sglang) == doctest::Approx(bound));
      CHECK(rate(PolicyKind::lru) == doctest::Approx(bound));
      CHECK(rate(PolicyKind::gd) == doctest::Approx(bound));
      CHECK(rate(PolicyKind::sglang_plus) == doctest::Approx(bound).epsilon(0.001));
      CHECK(rate(PolicyKind::marconi) == doctest::Approx(bound).epsilon(0.001));
    }
  }

  TEST_CASE("more memory is not much worse") {
    const auto trace = random_trace(11, 400, 10);
    for (const PolicyKind kind : policies) {
      CAPTURE(word_of(words::policy, kind));
      double before = 0;
      for (const std::int64_t budget : {500, 2000, 8000, 100000}) {
        const double now =
            replay(trace, small_shape(), {.kind = kind, .budget_bytes = budget, .block_tokens = 8})
                .hit_rate();
        CHECK(now > before - 0.02);
        before = now;
      }
      CHECK(before > 0.3);
    }
  }
}

}  // namespace cache_policy_test
