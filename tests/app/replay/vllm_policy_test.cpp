#include <doctest/doctest.h>

#include "app/replay/vllm_policy.h"
#include "core/base/error.h"
#include "tests/app/replay/small_shape.h"
#include "tests/support/traces.h"

namespace vllm_policy_test {

using namespace hyb;
using namespace hyb::app;
using Kind = BlockLru::Kind;

namespace {

std::vector<TokenId> tokens(std::initializer_list<int> values) {
  std::vector<TokenId> all;
  for (const int value : values) all.push_back(TokenId{value});
  return all;
}

}  // namespace

TEST_SUITE("app/replay/block_lru") {
  TEST_CASE("a block is known by all tokens up to its end, and only whole blocks are") {
    const auto a = block_hashes(tokens({1, 2, 3, 4, 5}), 2);
    const auto b = block_hashes(tokens({1, 2, 9, 4, 5}), 2);
    const auto c = block_hashes(tokens({7, 2, 3, 4}), 2);
    CHECK(a.size() == 2);
    CHECK(a[0] == b[0]);
    CHECK(a[1] != b[1]);
    CHECK(a[1] != c[1]);
    CHECK(block_hashes(tokens({1}), 2).empty());
  }

  TEST_CASE("the least recently used goes first, of equals the deepest") {
    BlockLru lru(30);
    CHECK(lru.touch({1, Kind::kv}, 1, 10, 1));
    CHECK(lru.touch({2, Kind::kv}, 2, 10, 1));
    CHECK(lru.touch({3, Kind::state}, 1, 10, 2));
    CHECK(lru.shrink(99) == 0);
    CHECK(lru.touch({4, Kind::kv}, 1, 10, 3));
    CHECK(lru.shrink(99) == 1);
    CHECK(!lru.has({2, Kind::kv}));
    CHECK(!lru.touch({1, Kind::kv}, 1, 10, 4));
    CHECK(lru.touch({5, Kind::kv}, 1, 10, 5));
    CHECK(lru.shrink(99) == 1);
    CHECK(!lru.has({3, Kind::state}));
    CHECK(lru.has({1, Kind::kv}));
    CHECK(lru.bytes(Kind::kv) == 30);
    CHECK(lru.bytes(Kind::state) == 0);
  }

  TEST_CASE("what is young enough stays, over the budget or not") {
    BlockLru lru(10);
    lru.touch({1, Kind::kv}, 1, 10, 1);
    lru.touch({2, Kind::kv}, 1, 10, 2);
    lru.touch({3, Kind::kv}, 2, 10, 2);
    CHECK(lru.shrink(2) == 1);
    CHECK(lru.bytes(Kind::kv) == 20);
    CHECK(lru.shrink(3) == 1);
    CHECK(lru.has({2, Kind::kv}));
  }

  TEST_CASE("reuse counts once per life") {
    BlockLru lru(10);
    CHECK(!lru.reuse({1, Kind::kv}));
    lru.touch({1, Kind::kv}, 1, 10, 1);
    CHECK(lru.reuse({1, Kind::kv}));
    CHECK(!lru.reuse({1, Kind::kv}));
  }
}

using namespace hyb::testing;

namespace {

ReplayShape nemotron_3_nano() {
  ReplayShape shape = small_shape();
  shape.kv_bytes_per_token = 6144;
  shape.attention_layers = 6;
  shape.recurrent_layers = 23;
  shape.state_bytes = 23 * (64 * 64 * 128 * 4 + 6144 * 3 * 2);
  return shape;
}

}  // namespace

TEST_SUITE("app/replay/vllm_policy") {
  TEST_CASE("blocks of published models") {
    CHECK(aligned_block_tokens(nemotron_3_nano()) == 2096);
    ReplayShape qwen = small_shape();
    qwen.kv_bytes_per_token = 24576;
    qwen.attention_layers = 12;
    qwen.recurrent_layers = 36;
    qwen.state_bytes = 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2);
    CHECK(aligned_block_tokens(qwen) == 1056);
    CHECK(aligned_block_tokens(small_shape(0)) == 16);
  }

  TEST_CASE(
      "a state that is worth more tokens than any request has makes blocks that are never full") {
    ReplayShape shape = nemotron_3_nano();
    shape.state_bytes = std::int64_t{1} << 40;
    for (const std::int64_t kv_bytes : {1, 6}) {  // 16 tokens of a layer: 2 bytes, 16 bytes
      shape.kv_bytes_per_token = kv_bytes;
      CHECK(aligned_block_tokens(shape) == TraceReader::request_tokens_max);
    }
    shape.attention_layers = 36;  // less than a byte
    shape.kv_bytes_per_token = 1;
    CHECK(aligned_block_tokens(shape) == TraceReader::request_tokens_max);
    VllmPolicy policy(shape, {.kind = PolicyKind::vllm, .budget_bytes = 100000});
    for (int i = 0; i < 2; ++i) {
      CHECK(policy.serve(RequestTokens(request_of({{1, 300}}, {{2, 100}}))).reused == 0);
    }
  }

  TEST_CASE("hits end at block boundaries of the prompt's end, the turn's end and junctions") {
    const ReplayShape shape = small_shape(40);  // blocks of 48 tokens
    REQUIRE(aligned_block_tokens(shape) == 48);
    VllmPolicy policy(shape, {.kind = PolicyKind::vllm, .budget_bytes = 100000});
    const auto reused = [&](const ReplayRequest& request) {
      return policy.serve(RequestTokens(request)).reused;
    };
    CHECK(reused(request_of({{1, 300}}, {{2, 100}})) == 0);
    // The turn goes on: the last boundary of 400 tokens is 384.
    CHECK(reused(request_of({{1, 300}, {2, 100}, {3, 50}})) == 384);
    // Another answer to the same prompt: states are at 288 (prompt) and 384.
    CHECK(reused(request_of({{1, 300}, {4, 100}})) == 288);
    // 200 tokens in common: no state there, then one at 192.
    CHECK(reused(request_of({{1, 200}, {5, 100}})) == 0);
    CHECK(reused(request_of({{1, 200}, {6, 100}})) == 192);
    // One token is always left to draw from.
    CHECK(reused(request_of({{1, 288}})) == 240 - 48 * 1);
  }

  TEST_CASE("a hit needs the last window; what leaves it while a request runs goes first") {
    ReplayShape shape = small_shape(0);
    shape.windows = {{.reach = {models::Reach::Kind::window, 33}, .kv_bytes_per_token = 10}};
    const PolicyOptions roomy = {.kind = PolicyKind::vllm, .budget_bytes = 100000};
    const ReplayRequest first = request_of({{1, 300}}, {{2, 100}});
    const ReplayRequest longer = request_of({{1, 300}, {2, 100}, {3, 50}});
    const ReplayRequest branch = request_of({{1, 200}, {4, 100}});
    VllmPolicy policy(shape, roomy);
    const auto reused = [&](VllmPolicy& by, const ReplayRequest& request) {
      return by.serve(RequestTokens(request)).reused;
    };
    CHECK(reused(policy, first) == 0);
    CHECK(policy.counters().kv_bytes == 25 * 16 * 11);
    CHECK(reused(policy, longer) == 400);
    CHECK(reused(policy, branch) == 192);  // nothing has been evicted yet

    // Room for the blocks of full attention and ten of those with the window: the last ones are
    // kept, from the 16th on, of which a hit needs two.
    VllmPolicy scarce(shape, {.kind = PolicyKind::vllm, .budget_bytes = 25 * 16 + 10 * 160});
    CHECK(reused(scarce, first) == 0);
    CHECK(scarce.counters().kv_bytes == 25 * 16 + 10 * 160);
    const Served served = scarce.serve(RequestTokens(branch));
    CHECK(served.matched == 192);
    CHECK(served.reused < 192);

    shape.windows.push_back({.reach = {models::Reach::Kind::window, 64}, .kv_bytes_per_token = 1});
    CHECK_THROWS_AS(VllmPolicy(shape, roomy), Error);
  }

  TEST_CASE("states and keys age apart, one by one") {
    const ReplayShape shape = small_shape(40);
    VllmPolicy policy(shape, {.kind = PolicyKind::vllm, .budget_bytes = 2 * 48 + 40});
    CHECK(policy.serve(RequestTokens(request_of({{1, 100}}))).reused == 0);
    CHECK(policy.counters().kv_bytes == 96);
    CHECK(policy.counters().snapshot_bytes == 40);
    CHECK(policy.serve(RequestTokens(request_of({{1, 100}}))).reused == 96);
    CHECK(policy.serve(RequestTokens(request_of({{2, 50}}))).reused == 0);
    CHECK(policy.counters().evictions > 0);
    CHECK(policy.serve(RequestTokens(request_of({{2, 50}}))).reused == 48);
  }
}

}  // namespace vllm_policy_test
