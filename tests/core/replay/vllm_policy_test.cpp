#include "core/replay/vllm_policy.h"

#include <doctest/doctest.h>

#include "tests/core/replay/traces.h"

using namespace hyb;
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

TEST_SUITE("core/replay/vllm_policy") {
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

  TEST_CASE("a state that is worth more tokens than any request has makes blocks nobody fills") {
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
    // Another answer to the same prompt: states stand at 288 (prompt) and 384.
    CHECK(reused(request_of({{1, 300}, {4, 100}})) == 288);
    // 200 tokens in common: no state there, then one at 192.
    CHECK(reused(request_of({{1, 200}, {5, 100}})) == 0);
    CHECK(reused(request_of({{1, 200}, {6, 100}})) == 192);
    // One token is always left to draw from.
    CHECK(reused(request_of({{1, 288}})) == 240 - 48 * 1);
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
