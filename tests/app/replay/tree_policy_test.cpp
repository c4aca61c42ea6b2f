#include <doctest/doctest.h>

#include "app/replay/replay.h"
#include "app/replay/tree_policy.h"
#include "core/base/error.h"
#include "core/memory/pool/layout.h"
#include "tests/app/replay/small_shape.h"
#include "tests/support/traces.h"

namespace tree_policy_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

/// Pages of 16 bytes and slots of 64; a superblock is 8 pages, 2 slots or 8 packed snapshots.
MemoryLayout superblock_layout(std::int32_t superblocks) {
  static const FullAttention full;
  MemoryLayout layout;
  layout.page_tokens = 16;
  layout.groups = {{.kind = &full, .page_bytes = 16, .pages_per_superblock = 8}};
  layout.slots = {.bytes = 64, .per_superblock = 2};
  layout.packed = {.bytes = 16, .per_superblock = 8};
  layout.superblock_bytes = 128;
  layout.superblocks = superblocks;
  return layout;
}

}  // namespace

TEST_SUITE("app/replay/tree_policy") {
  TEST_CASE("turn ends, prompt ends and branches can be resumed") {
    for (const PolicyKind kind : {PolicyKind::lru, PolicyKind::gd}) {
      for (const Precision precision : {Precision::exact, Precision::int8}) {
        const ReplayRequest requests[] = {
            request_of({{1, 300}}, {{2, 100}}), request_of({{1, 300}, {2, 100}, {3, 9}}),
            request_of({{1, 299}, {4, 100}}),   request_of({{1, 150}, {5, 100}}),
            request_of({{1, 150}, {6, 100}}),   request_of({{1, 300}, {2, 100}}),
        };
        const std::int32_t expected[] = {0, 400, 299, 0, 150, 299};
        TreePolicy policy(small_shape(),
                          {.kind = kind, .snapshots = precision, .budget_bytes = 100000});
        for (std::size_t i = 0; i < std::size(requests); ++i) {
          CAPTURE(i);
          CHECK(policy.serve(RequestTokens(requests[i])).reused == expected[i]);
        }
        const CacheCounters counters = policy.counters();
        const std::int64_t each = precision == Precision::int8 ? 25 : 100;
        CHECK(counters.snapshot_bytes == counters.snapshots_created * each);
        CHECK(counters.snapshots_reused == 3);
        // 400 tokens of the first request, and 150 that the fourth had to compute once more.
        CHECK(counters.kv_tokens_reused == 550);
        CHECK(counters.evictions == 0);
      }
    }
  }

  TEST_CASE("of layers with windows only the last tokens before a resumable point are held") {
    ReplayShape shape = small_shape(0);
    shape.windows = {{.reach = {models::Reach::Kind::window, 40}, .kv_bytes_per_token = 10},
                     {.reach = {models::Reach::Kind::chunk, 64}, .kv_bytes_per_token = 100}};
    const ReplayRequest requests[] = {
        request_of({{1, 300}}, {{2, 100}}), request_of({{1, 300}, {2, 100}, {3, 9}}),
        request_of({{1, 299}, {4, 100}}),   request_of({{1, 150}, {5, 100}}),
        request_of({{1, 150}, {6, 100}}),   request_of({{1, 300}, {2, 100}}),
    };
    const std::int32_t expected[] = {0, 400, 299, 0, 150, 399};
    const models::ModelMemoryLayout pools = superblock_pools(shape, 1 << 20, Precision::exact);
    CHECK(pools.layout.groups.size() == 3);
    for (const bool counts_bytes : {true, false}) {
      CAPTURE(counts_bytes);
      TreePolicy policy(shape, {.kind = PolicyKind::gd,
                                .budget_bytes = 1 << 20,
                                .layout = counts_bytes ? nullptr : &pools.layout});
      CHECK(policy.serve(RequestTokens(requests[0])).reused == 0);
      // Full attention has 400 tokens. Resumable points are at 300 and at 399 or 400; at either
      // the window has three or four pages of 160 bytes, the chunk one to four of 1,600.
      const std::int64_t held = policy.counters().kv_bytes;
      CHECK(held > 400 + 2 * (3 * 160 + 1600));
      CHECK(held < 400 + 2 * (4 * 160 + 4 * 1600));
      for (std::size_t i = 1; i < std::size(requests); ++i) {
        CAPTURE(i);
        CHECK(policy.serve(RequestTokens(requests[i])).reused == expected[i]);
      }
      CHECK(policy.counters().kv_tokens_reused == 550);
    }
    for (const PolicyKind kind : {PolicyKind::sglang, PolicyKind::marconi, PolicyKind::vllm_plus}) {
      CHECK_THROWS_AS(make_policy({.kind = kind, .budget_bytes = 1000}, shape), Error);
    }
  }

  TEST_CASE("superblocks change owners, and cost little") {
    for (const Precision precision : {Precision::exact, Precision::int8}) {
      ReplayShape shape = small_shape(64);
      const MemoryLayout layout = superblock_layout(100);
      const auto trace = random_trace(3, 600, 20);
      const PolicyOptions counted = {
          .kind = PolicyKind::gd, .snapshots = precision, .budget_bytes = 12800};
      PolicyOptions real = counted;
      real.layout = &layout;
      const ReplayRun ideal = replay(trace, shape, counted);
      const ReplayRun run = replay(trace, shape, real);
      CHECK(run.counters.flips > 0);
      CHECK(ideal.counters.flips == 0);
      const CacheCounters& held = run.counters;
      CHECK(held.idle_bytes > 0);
      CHECK(held.kv_bytes + held.snapshot_bytes + held.idle_bytes <= 12800);
      CHECK(ideal.counters.idle_bytes == 0);
      CHECK(run.hit_rate() <= ideal.hit_rate() + 0.02);
      CHECK(run.hit_rate() > ideal.hit_rate() - 0.12);
    }
  }

  TEST_CASE("a host tier gives back what the budget dropped, within its bytes") {
    const auto trace = random_trace(5, 800, 30);
    for (const PolicyKind kind : {PolicyKind::lru, PolicyKind::gd}) {
      const PolicyOptions plain = {.kind = kind, .budget_bytes = 4000};
      PolicyOptions roomy = plain;
      roomy.budget_bytes = std::int64_t{1} << 30;
      const ReplayRun alone = replay(trace, small_shape(), plain);
      const ReplayRun all = replay(trace, small_shape(), roomy);
      std::int64_t before = alone.reused_tokens;
      CHECK(all.reused_tokens > before);
      for (const std::int64_t bytes : {400'000, 4'000'000, 1 << 30}) {
        PolicyOptions tiered = plain;
        tiered.host_bytes = bytes;
        const ReplayRun run = replay(trace, small_shape(), tiered);
        CHECK(run.counters.host_bytes <= bytes);
        CHECK(run.counters.tokens_from_host > 0);
        CHECK(run.reused_tokens > before);
        before = run.reused_tokens;
      }
      // What is evicted is all there: only placements that learn of it differ.
      CHECK(before > all.reused_tokens - all.reused_tokens / 50);
      CHECK(alone.counters.tokens_from_host == 0);
    }
  }

  TEST_CASE("a request that does not fit is served without memory") {
    const MemoryLayout layout = superblock_layout(3);
    TreePolicy policy(small_shape(64),
                      {.kind = PolicyKind::gd, .budget_bytes = 384, .layout = &layout});
    const ReplayRequest large = request_of({{1, 5000}}), little = request_of({{2, 40}}, {{3, 10}}),
                        next = request_of({{2, 40}, {3, 10}, {4, 5}});
    CHECK(policy.serve(RequestTokens(large)).reused == 0);
    CHECK(policy.serve(RequestTokens(little)).reused == 0);
    CHECK(policy.serve(RequestTokens(next)).reused == 50);
    CHECK(policy.serve(RequestTokens(large)).reused == 0);
  }
}

namespace {

/// As Nemotron-3-Nano has it.
ReplayShape nano_shape() {
  ReplayShape shape = testing::small_shape();
  shape.kv_bytes_per_token = 6144;
  shape.attention_layers = 6;
  shape.recurrent_layers = 23;
  shape.state_bytes = 49'082'368;
  shape.state_bytes_int8 = 13'317'120;
  return shape;
}

}  // namespace

TEST_SUITE("app/replay/superblock_pools") {
  TEST_CASE("units are what the shape says, and little is wasted") {
    for (const Precision precision : {Precision::exact, Precision::int8}) {
      const ReplayShape shape = nano_shape();
      const auto pools = superblock_pools(shape, 8'000'000'000, precision);
      REQUIRE(pools.layout.groups.size() == 1);
      CHECK(pools.layout.groups[0].page_bytes == 16 * 6144);
      CHECK(pools.layout.slots.bytes >= 49'082'368);
      CHECK((pools.layout.packed.per_superblock > 0) == (precision == Precision::int8));
      CHECK(pools.waste() <= 0.03);
      CHECK(pools.layout.bytes() <= 8'000'000'000);
      CHECK(pools.layout.bytes() > 7'600'000'000);
    }
  }

  TEST_CASE("a model with one kind of memory has one view in use") {
    ReplayShape attention = nano_shape();
    attention.state_bytes = attention.state_bytes_int8 = 0;
    attention.recurrent_layers = 0;
    const auto pages = superblock_pools(attention, 1'000'000'000, Precision::int8);
    CHECK(pages.layout.slots.per_superblock == 0);
    CHECK(pages.layout.packed.per_superblock == 0);
    ReplayShape recurrent = nano_shape();
    recurrent.kv_bytes_per_token = 0;
    recurrent.attention_layers = 0;
    const auto slots = superblock_pools(recurrent, 1'000'000'000, Precision::exact);
    CHECK(slots.layout.groups.empty());
    CHECK(slots.layout.slots.per_superblock > 0);
  }

  TEST_CASE("too few bytes are refused with the numbers") {
    CHECK_THROWS_AS(superblock_pools(nano_shape(), 10'000'000, Precision::exact), Error);
  }
}

}  // namespace tree_policy_test
