#include "models/roofline.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/support/plans.h"

namespace roofline_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

Roofline roofline(const std::string& name, const std::vector<Edit>& edits = {}) {
  const Config config = preset(name, edits);
  const Plan plan = family_of(config).plan(config);
  return Roofline(plan, geometry_of(plan));
}

double billions(std::int64_t count) { return static_cast<double>(count) / 1e9; }

Work decode(const Roofline& of, std::int64_t sequences = 1) {
  return of.step({.sequences = sequences, .tokens = 1, .position = 1024, .rows = 1});
}

/// The forward pass of a prompt of 32k tokens, and its share of attention.
Work long_prompt(const Roofline& of) {
  return of.step({.sequences = 1, .tokens = 32768, .position = 0, .rows = 1});
}

/// Figures are published to three digits.
bool agrees(double value, double published) {
  return std::abs(value - published) <= 0.005 * published;
}

/// As published, and at its highest clock.
constexpr DeviceRates h200 = {.bytes_per_s = 4.9e12, .flops_per_s = 1.07e15};

const std::string tiny = "granite-4.0-h-tiny";
const std::string micro = "granite-4.0-h-micro";
const std::string nemotron12 = "nemotron-nano-12b-v2";
const std::string nemotron3 = "nemotron-3-nano-30b-a3b";
const std::string qwen = "qwen3-next-80b-a3b";

}  // namespace

TEST_SUITE("models/roofline") {
  TEST_CASE("parameters that one token goes through") {
    struct Row {
      Roofline roofline;
      double active, head;
    };
    for (const Row& row :
         {Row{roofline(tiny), 1.311, 0.154}, Row{roofline(micro), 2.986, 0.206},
          Row{roofline(nemotron12, nemotron_nano_9b()), 7.714, 0.587},
          Row{roofline(nemotron12), 10.968, 0.671}, Row{roofline(qwen), 3.252, 0.311},
          Row{roofline(nemotron3), 2.875, 0.352}}) {
      CHECK(agrees(billions(row.roofline.active_parameters()), row.active));
      CHECK(agrees(billions(row.roofline.head_parameters()), row.head));
    }
  }

  TEST_CASE("bytes of one token at position 1024, bf16 weights and f32 state") {
    CHECK(agrees(decode(roofline(tiny)).bytes, 3.05e9));
    CHECK(agrees(decode(roofline(micro)).bytes, 6.54e9));
    CHECK(agrees(decode(roofline(nemotron12, nemotron_nano_9b())).bytes, 16.9e9));
    CHECK(agrees(decode(roofline(nemotron12)).bytes, 23.6e9));
    CHECK(agrees(decode(roofline(qwen)).bytes, 7.30e9));
    CHECK(agrees(decode(roofline(nemotron3)).bytes, 6.56e9));
  }

  TEST_CASE("the same, to the byte, summed by hand for granite-h-tiny") {
    const double active = 1'311'329'856;
    const double head = 100352.0 * 1536;
    const double state = 36.0 * 48 * 64 * 128 * 4;
    const double windows = 36.0 * (3072 + 256) * 3 * 2;
    CHECK(decode(roofline(tiny)).bytes ==
          2 * (active + head) + 2 * state + windows + 8192.0 * 1024);
  }

  TEST_CASE("a file's MXFP4 experts and its blocks are counted apart") {
    const Config config = preset("gpt-oss-20b", {});
    const Plan plan = family_of(config).plan(config);
    Geometry geometry = geometry_of(plan);
    const double plain = decode(Roofline(plan, geometry)).bytes;
    geometry.load.mxfp4_parameters = std::int64_t{1} << 40;  // all experts
    const double mxfp4 = decode(Roofline(plan, geometry)).bytes;
    const double routed = (plain - mxfp4) / (2 - 4.25 / 8);  // of one token
    CHECK(routed == doctest::Approx(24.0 * 4 * 3 * 2880 * 2880));
    constexpr double q8 = 34.0 / 32;
    const double head = 201088.0 * 2880;
    geometry.load.blocks = {.parameters = std::int64_t{2'000'000'000},  // the embedding, too
                            .bytes = 2e9 * q8,
                            .head_bytes = q8};
    const double others =
        static_cast<double>(Roofline(plan, geometry).active_parameters()) - routed + head;
    CHECK(decode(Roofline(plan, geometry)).bytes == doctest::Approx(mxfp4 - others * (2 - q8)));
  }

  TEST_CASE("a token reads what its layers see: windows, chunks, and keys of another layer again") {
    const auto kv_bytes = [](const std::string& name, std::int64_t position) {
      const Roofline of = roofline(name);
      return of.step({.position = position}).bytes - of.step({.position = 0}).bytes;
    };
    // Full layers and layers with windows, of bytes per token each.
    CHECK(kv_bytes("gemma-3-27b", 131071) == 10 * 8192.0 * 131071 + 52 * 8192.0 * 1023);
    // 4 of 7 full layers and 16 of 28 others read what an earlier one wrote.
    CHECK(kv_bytes("gemma-4-e2b", 131071) == 7 * 2048.0 * 131071 + 28 * 1024.0 * 511);
    const double full = 12 * 4096.0, chunks = 36 * 4096.0;
    CHECK(kv_bytes("llama-4-scout", 8191) == (full + chunks) * 8191);
    CHECK(kv_bytes("llama-4-scout", 8192) == full * 8192);
    CHECK(kv_bytes("llama-4-scout", 131072 + 5) == full * (131072 + 5) + chunks * 5);
  }

  TEST_CASE("prompts compute no more pairs than chunks have") {
    const Roofline of = roofline("llama-4-scout");
    const auto flops = [&](std::int64_t tokens, std::int64_t position) {
      return of.step({.tokens = tokens, .position = position, .rows = 0}).flops;
    };
    // 48 layers of 40 heads x 128, 12 of them full.
    const double pairs = 4.0 * 40 * 128 * 8192 * 8192 / 2;
    CHECK(flops(8192, 8192) - flops(8192, 0) == doctest::Approx(12 * 2 * pairs).epsilon(1e-9));
    CHECK(flops(100, 8142) - flops(50, 8142) - flops(50, 8192) ==
          doctest::Approx(0.0).scale(flops(50, 8192)).epsilon(1e-12));
  }

  TEST_CASE("tokens per second of a step of many sequences at 3.0 TB/s") {
    const auto rate = [](const Roofline& of, std::int64_t sequences) {
      return static_cast<double>(sequences) / decode(of, sequences).bytes * 3.0e12;
    };
    CHECK(agrees(rate(roofline(tiny), 8), 2565));
    CHECK(agrees(rate(roofline(tiny), 64), 8872));
    CHECK(agrees(rate(roofline(micro), 64), 11578));
    CHECK(agrees(rate(roofline(nemotron12), 8), 929));
    CHECK(agrees(rate(roofline(nemotron12, nemotron_nano_9b()), 8), 1263));
    CHECK(agrees(rate(roofline(nemotron3), 8), 1032));
    CHECK(agrees(rate(roofline(qwen), 8), 854));
  }

  TEST_CASE("FLOPs of a prompt of 32768 tokens") {
    struct Row {
      Roofline roofline;
      double total;
    };
    for (const Row& row :
         {Row{roofline(tiny), 102e12}, Row{roofline(micro), 217e12},
          Row{roofline(nemotron12, nemotron_nano_9b()), 557e12}, Row{roofline(nemotron12), 792e12},
          Row{roofline(qwen), 326e12}, Row{roofline(nemotron3), 244e12}}) {
      CHECK(agrees(long_prompt(row.roofline).flops, row.total));
    }
  }

  TEST_CASE("chunks add up to the whole, but for the bytes of the weights") {
    const Roofline of = roofline(tiny);
    Work cut;
    for (int i = 0; i < 4; ++i) {
      cut += of.step({.sequences = 1, .tokens = 512, .position = 512 * i, .rows = i == 3});
    }
    const Work whole = of.step({.sequences = 1, .tokens = 2048, .position = 0, .rows = 1});
    CHECK(cut.flops == doctest::Approx(whole.flops).epsilon(1e-12));
    CHECK(cut.bytes > 3.9 * whole.bytes);
  }

  TEST_CASE("without rows of logits the head is neither read nor computed") {
    const Roofline of = roofline(tiny);
    const Work with = of.step({.sequences = 1, .tokens = 1, .position = 0, .rows = 1});
    const Work without = of.step({.sequences = 1, .tokens = 1, .position = 0, .rows = 0});
    const double head = 100352.0 * 1536;
    CHECK(with.bytes - without.bytes == 2 * head);
    CHECK(with.flops - without.flops == 2 * head);
  }

  TEST_CASE("spans of one step share the weights and nothing else") {
    const Roofline of = roofline(tiny);
    const StepShape chunk = {.sequences = 1, .tokens = 100, .position = 50, .rows = 0};
    const StepShape decode_rows = {.sequences = 3, .tokens = 1, .position = 1024, .rows = 1};
    const std::vector<StepShape> both = {chunk, decode_rows};
    const Work work = of.step(both);
    CHECK(work.flops ==
          doctest::Approx(of.step(chunk).flops + of.step(decode_rows).flops).epsilon(1e-12));
    CHECK(work.bytes < of.step(chunk).bytes + of.step(decode_rows).bytes);
    CHECK(work.bytes > of.step(chunk).bytes);
    const std::vector<StepShape> apart(3,
                                       {.sequences = 1, .tokens = 1, .position = 1024, .rows = 1});
    CHECK(of.step(apart).bytes == doctest::Approx(of.step(decode_rows).bytes).epsilon(1e-12));
  }

  TEST_CASE("a chunk on an H200: thousands of tokens with experts, fewer without") {
    const auto chunk = [](const std::string& name) { return roofline(name).chunk_tokens(h200); };
    CHECK(chunk("granite-4.0-h-350m") == 2048);
    CHECK(chunk(micro) == 2048);
    CHECK(chunk(tiny) == 16384);
    CHECK(chunk(nemotron3) == 32768);
    const Config config = preset(qwen);
    const Plan plan = family_of(config).plan(config);
    const std::int64_t all = roofline(qwen).active_parameters() + 76'000'000'000;
    CHECK(Roofline(plan, geometry_of(plan, {.load = {.fp8_parameters = all}})).chunk_tokens(h200) ==
          32768);
  }

  TEST_CASE("a chunk is the smallest whose weights are read in a tenth of the step's time") {
    const auto share = [](const Roofline& of, const DeviceRates& rates, std::int32_t tokens) {
      const Work work = of.step({.tokens = tokens, .rows = 0});
      const double reading = work.bytes / rates.bytes_per_s;
      return reading / (reading + work.flops / rates.flops_per_s);
    };
    for (const std::string& name : {micro, tiny, nemotron3}) {
      CAPTURE(name);
      const Roofline of = roofline(name);
      std::int32_t before = Roofline::chunk_max;
      for (const double faster : {0.1, 0.25, 1.0, 4.0, 50.0}) {
        const DeviceRates reads = {faster * h200.bytes_per_s, h200.flops_per_s};
        const DeviceRates computes = {h200.bytes_per_s, h200.flops_per_s / faster};
        const std::int32_t chunk = of.chunk_tokens(reads);
        CHECK(of.chunk_tokens(computes) == chunk);
        CHECK(chunk <= before);
        if (chunk < Roofline::chunk_max) CHECK(share(of, reads, chunk) <= 0.1);
        if (chunk > Roofline::chunk_min) CHECK(share(of, reads, chunk / 2) > 0.1);
        before = chunk;
      }
    }
  }

  TEST_CASE("the tokens of a step that may last some time") {
    for (const std::string& name : {micro, tiny, nemotron3, qwen}) {
      CAPTURE(name);
      const Roofline of = roofline(name);
      const auto seconds = [&](std::int32_t tokens) {
        const Work work = of.step({.tokens = tokens, .rows = 0});
        return work.bytes / h200.bytes_per_s + work.flops / h200.flops_per_s;
      };
      std::int32_t before = Roofline::chunk_min;
      for (const double limit : {1e-6, 0.02, 0.1, 0.5, 10.0}) {
        const std::int32_t tokens = of.chunk_tokens_within(h200, limit);
        CHECK(tokens >= before);
        if (tokens > Roofline::chunk_min) CHECK(seconds(tokens) <= limit);
        if (tokens < Roofline::chunk_max) CHECK(seconds(2 * tokens) > limit);
        before = tokens;
      }
      CHECK(before == Roofline::chunk_max);
    }
  }

  TEST_CASE("a window bounds what a layer reads and computes") {
    const auto windows = [](const std::string& tokens) {
      return roofline(
          "qwen3-0.6b",
          {{"use_sliding_window", "true"}, {"sliding_window", tokens}, {"max_window_layers", "0"}});
    };
    const Roofline full = roofline("qwen3-0.6b"), narrow = windows("512");
    const auto at = [](std::int64_t position, std::int64_t tokens) {
      return StepShape{.sequences = 1, .tokens = tokens, .position = position, .rows = 1};
    };
    for (const std::int64_t position : {0, 100, 511}) {
      CHECK(narrow.step(at(position, 1)).bytes == full.step(at(position, 1)).bytes);
      CHECK(narrow.step(at(position, 1)).flops ==
            doctest::Approx(full.step(at(position, 1)).flops));
    }
    const Work far = narrow.step(at(30000, 1));
    CHECK(far.bytes == full.step(at(511, 1)).bytes);
    // The triangle of causal attention counts half of the own position.
    CHECK(far.flops == doctest::Approx(full.step(at(511, 1)).flops).epsilon(2e-4));
    // Chunks add up, and so do the tokens before and after the window is full.
    CHECK(narrow.step(at(0, 4096)).flops - narrow.step(at(0, 512)).flops ==
          doctest::Approx(narrow.step(at(30000, 3584)).flops).epsilon(0.01));
    CHECK(windows("40000").step(at(0, 4096)).flops == full.step(at(0, 4096)).flops);
  }

  TEST_CASE("a prefill has a linear and a square part") {
    for (const std::string& name : {tiny, nemotron12}) {
      const Roofline of = roofline(name);
      const PrefillCost flops = of.prefill();
      CHECK(flops.linear > 0);
      CHECK(flops.square > 0);
      for (const std::int64_t tokens : {1024, 32768}) {
        const auto l = static_cast<double>(tokens);
        CHECK(flops.linear * l + flops.square * l * l ==
              doctest::Approx(of.step({.tokens = tokens, .rows = 0}).flops).epsilon(1e-6));
      }
    }
  }
}

}  // namespace roofline_test
