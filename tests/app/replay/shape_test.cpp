#include <doctest/doctest.h>

#include "app/replay/shape.h"
#include "app/replay/vllm_policy.h"
#include "tests/support/error_text.h"

namespace shape_test {

using namespace hyb;
using namespace hyb::app;

TEST_SUITE("app/replay/marconi_shape") {
  TEST_CASE("the paper's own figures") {
    const ReplayShape shape = marconi_shape({}, 1e12);
    CHECK(shape.kv_bytes_per_token == 64 * 1024);
    CHECK(shape.state_bytes == 26'787'840);
    // A sequence of 10,000 tokens with a state per 16: 17.4 GB, 3.3 times a transformer's.
    const double bytes = 10000.0 * static_cast<double>(shape.kv_bytes_per_token) +
                         10000.0 / 16 * static_cast<double>(shape.state_bytes);
    CHECK(bytes / 1e9 == doctest::Approx(17.4).epsilon(0.002));
    const double transformer = 10000.0 * static_cast<double>(shape.transformer_kv_bytes_per_token);
    CHECK(bytes / transformer == doctest::Approx(3.3).epsilon(0.01));
    CHECK(100.0 * static_cast<double>(shape.conv_bytes) / static_cast<double>(shape.state_bytes) ==
          doctest::Approx(6.06).epsilon(0.001));
  }

  TEST_CASE("costs add up over layers, and seconds follow FLOPs") {
    const double d = 64, n = 16, l = 1000;
    const auto flops = [&](MarconiModel model) {
      model.width = 64;
      model.state_dim = 16;
      const ReplayShape shape = marconi_shape(model, 2e9);
      CHECK(shape.seconds.of(1000) == doctest::Approx(shape.flops.of(1000) / 2e9));
      return shape.flops.of(1000);
    };
    CHECK(flops({.ssm = 0, .attention = 1, .mlp = 0}) ==
          doctest::Approx(8 * l * d * d + 4 * l * l * d));
    CHECK(flops({.ssm = 0, .attention = 0, .mlp = 1}) == doctest::Approx(16 * l * d * d));
    CHECK(flops({.ssm = 1, .attention = 0, .mlp = 0}) ==
          doctest::Approx(12 * l * d * d + 16 * l * d * n + 10 * l * d));
    CHECK(marconi_shape({.ssm = 0}, 1e12).has_state() == false);
  }
}

using namespace hyb::testing;

namespace {

ReplayShape shape_of_text(const std::string& text, const ShapeOptions& options = {}) {
  return parse_shape(text, options, {});
}

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

TEST_SUITE("app/replay/shape_option") {
  TEST_CASE("presets: bytes of the published models") {
    const ReplayShape nano = shape_of_text("nemotron-3-nano-30b-a3b");
    CHECK(nano.kv_bytes_per_token == 6144);
    CHECK(mebibytes(nano.state_bytes) == doctest::Approx(46.81).epsilon(0.001));
    CHECK(mebibytes(nano.state_bytes_int8) == doctest::Approx(12.5).epsilon(0.01));
    CHECK(nano.attention_layers == 6);
    CHECK(nano.recurrent_layers == 23);
    CHECK(aligned_block_tokens(nano) == 2096);
    // About 3.2 billion active parameters, 6 layers of 32 heads of 128.
    CHECK(nano.flops.linear > 5e9);
    CHECK(nano.flops.linear < 9e9);
    CHECK(nano.flops.square == doctest::Approx(2.0 * 6 * 4096));
    const ReplayShape bf16 = shape_of_text(
        "nemotron-3-nano-30b-a3b", {.kv_dtype = DType::f8_e4m3, .state_dtype = DType::bf16});
    CHECK(mebibytes(bf16.state_bytes) == doctest::Approx(23.81).epsilon(0.001));
    CHECK(bf16.kv_bytes_per_token == 3072);
    CHECK(aligned_block_tokens(shape_of_text("qwen3-next-80b-a3b")) == 1056);
  }

  TEST_CASE("layers with windows are counted apart") {
    const ReplayShape shape = shape_of_text("gpt-oss-20b");
    CHECK(shape.kv_bytes_per_token == 24576);
    CHECK(shape.attention_layers == 12);
    REQUIRE(shape.windows.size() == 1);
    CHECK(shape.windows[0].reach == models::Reach{models::Reach::Kind::window, 128});
    CHECK(shape.window_bytes() == 3 << 20);
    const ReplayShape gemma = shape_of_text("gemma-4-12b");
    CHECK(gemma.kv_bytes_per_token == 8 * 512 * 2 * 2);
    CHECK(gemma.window_bytes() == std::int64_t{40} * 8 * 256 * 2 * 2 * 1024);
    CHECK(gemma.state_bytes == 0);
  }

  TEST_CASE("checkpoints without a preset, against their table of sizes") {
    const auto check = [](const char* name, double f32, double bf16, std::int64_t kv) {
      CAPTURE(name);
      const ReplayShape full = shape_of_text(name);
      const ReplayShape half = shape_of_text(name, {.state_dtype = DType::bf16});
      CHECK(mebibytes(full.state_bytes) == doctest::Approx(f32).epsilon(0.004));
      CHECK(mebibytes(half.state_bytes) == doctest::Approx(bf16).epsilon(0.006));
      CHECK(full.kv_bytes_per_token == kv);
    };
    check("bamba-9b", 117.4, 59.4, 12288);
    check("falcon-h1-0.5b", 27.4, 13.9, 18432);
    check("falcon-h1-1.5b", 72.5, 36.5, 24576);
    check("falcon-h1-3b", 128.8, 64.8, 32768);
    check("falcon-h1-7b", 132.9, 66.9, 45056);
    check("falcon-mamba-7b", 35.0, 19.0, 0);
    check("granite-4.0-h-1b", 54.7, 27.7, 8192);
    check("granite-4.0-h-small", 145.7, 73.7, 16384);
    check("jamba-1.5-large", 68.9, 37.4, 36864);
    check("jamba-1.5-mini", 15.3, 8.3, 16384);
    check("jamba-reasoning-3b", 8.9, 4.8, 1024);
    check("kimi-linear-48b-a3b", 41.4, 21.4, 8064);
    check("mamba-codestral-7b", 259.8, 131.8, 0);
    check("minimax-text-01", 283.28, 143.28, 40960);  // 280 and 140 of states, and a token's inputs
    check("nemotron-3-nano-4b", 79.9, 40.5, 16384);
    check("nemotron-3-super-120b-a12b", 162.3, 82.3, 8192);
    check("nemotron-h-8b", 97.4, 49.4, 16384);
    check("nemotron-nano-9b-v2", 136.9, 69.4, 16384);
    check("qwen3.5-0.8b", 18.6, 9.6, 12288);
    check("qwen3.5-4b", 49.1, 25.1, 32768);
    check("qwen3.5-9b", 49.1, 25.1, 32768);
    check("qwen3.5-27b", 146.8, 74.8, 65536);
    check("qwen3.5-35b-a3b", 61.4, 31.4, 20480);
    check("qwen3.5-122b-a10b", 146.5, 74.5, 24576);
    check("qwen3.5-397b-a17b", 183.2, 93.2, 30720);
    check("zamba2-2.7b", 69.1, 35.4, 184320);
    check("zamba2-7b", 145.2, 74.3, 372736);
    CHECK(published_shapes().size() == 27);
  }

  TEST_CASE("overrides") {
    const ReplayShape marconi = shape_of_text("marconi-7b,ssm=32,attn=4,d_state=16");
    CHECK(marconi.state_bytes == 32 * (4096 * 16 * 2 + (2 * 4096 + 2 * 16) * 8));
    CHECK(marconi.recurrent_layers == 32);
    CHECK(!shape_of_text("marconi-7b,ssm=0,attn=36").has_state());
    const ReplayShape changed = shape_of_text("granite-4.0-h-tiny,kv=100,state=5000,int8=70");
    CHECK(changed.kv_bytes_per_token == 100);
    CHECK(changed.state_bytes == 5000);
    CHECK(changed.state_bytes_int8 == 70);
    const auto refused = [](const std::string& text) {
      return error_text([&] { shape_of_text(text); });
    };
    CHECK(contains(refused("marconi-7b,layers=3"), "layers"));
    CHECK(contains(refused("marconi-7b,ssm"), "key=number"));
    CHECK(contains(refused("marconi-7b,ssm=x"), "key=number"));
    CHECK(contains(refused("marconi-7b,ssm=-1"), "key=number"));
    CHECK(contains(refused("marconi-7b,ssm=10000000"), "from 0 to"));
    CHECK(contains(refused("granite-4.0-h-tiny,kv=0"), "--shape"));
    CHECK(contains(refused("granite-4.0-h-tiny,kv=4294967297"), "kv is at most 4294967296"));
    CHECK(refused("no-such-model") != "");
  }
}

}  // namespace shape_test
