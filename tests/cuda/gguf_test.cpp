#include "models/gguf.h"

#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/log.h"
#include "models/weight_index.h"
#include "tests/models/golden.h"
#include "tests/models/mixed_gguf.h"
#include "tests/support/files.h"
#include "tests/support/quiet_log.h"

namespace cuda_gguf_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

using kernels::Device;

Loaded load_file(const std::filesystem::path& path, DType activation, Device device,
                 bool batch_invariant = false) {
  return Loaded(
      [&](kernels::Queue& queue) {
        GgufFiles files(path);
        const Config config = gguf_config(files);
        TensorFiles tensors = TensorFiles::of_gguf(std::move(files));
        const Plan plan = family_of(config).plan(config);
        PackedBlocks blocks;
        if (activation == DType::bf16) {
          blocks = packed_blocks(plan, family_of(config), tensors, device);
        }
        return load_model(queue, config, tensors,
                          {.load = {.activation = activation, .blocks = blocks}});
      },
      device, {.threads = 2, .isa = {}, .batch_invariant = batch_invariant});
}

/// Pieces of 1, 3, 7, ... tokens.
std::vector<float> run_in_pieces(Loaded& loaded, const std::vector<TokenId>& prompt) {
  std::vector<float> all;
  for (std::size_t at = 0, count = 1; at < prompt.size(); at += count, count = 2 * count + 1) {
    count = std::min(count, prompt.size() - at);
    const std::vector<float> some =
        loaded.run(std::span(prompt).subspan(at, count), static_cast<std::int32_t>(at));
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace

TEST_SUITE("cuda/gguf") {
  TEST_CASE("whole models from packed blocks: as near to the exact numbers as on the CPU") {
    const hyb::testing::QuietLog quiet;
    const hyb::testing::TemporaryFolder folder;
    std::vector<TokenId> prompt;
    for (std::int32_t i = 0; i < 70; ++i) prompt.push_back(TokenId{(i * 29 + 5) % 64});
    for (const bool has_experts : {false, true}) {
      CAPTURE(has_experts);
      const auto path = folder.write("m.gguf", mixed_gguf(has_experts));
      Loaded exact = load_file(path, DType::f32, Device::cpu);
      Loaded here = load_file(path, DType::bf16, Device::cpu);
      const std::vector<float> expected = exact.run(prompt, 0);
      Distance of_cpu{64}, of_card{64};
      of_cpu.add(here.run(prompt, 0), expected);
      Loaded card = load_file(path, DType::bf16, Device::cuda);
      of_card.add(card.run(prompt, 0), expected);
      MESSAGE("of the exact logits: ", of_card.relative_max(), ", the CPU's ",
              of_cpu.relative_max());
      CHECK(of_cpu.relative_max() < 0.1);
      CHECK(of_card.relative_max() <= 1.5 * of_cpu.relative_max());
      const Weights& weights = card.model.weights;
      CHECK(weights.matrices == here.model.weights.matrices);
      CHECK(weights.packed_bytes ==
            packed_bytes(card.model.plan, Device::cuda, card.model.geometry.load));

      // Step by step, and with all bits alike however the prompt is cut.
      Loaded alike = load_file(path, DType::bf16, Device::cuda, true);
      CHECK(run_in_pieces(alike, prompt) == alike.run(prompt, 0));
      Distance of_steps{64};
      std::vector<float> steps;
      for (std::size_t at = 0; at < 6; ++at) {
        const std::vector<float> one =
            card.run(std::span(prompt).subspan(at, 1), static_cast<std::int32_t>(at));
        steps.insert(steps.end(), one.begin(), one.end());
      }
      of_steps.add(steps, std::span(expected).first(steps.size()));
      CHECK(of_steps.relative_max() <= 1.5 * of_cpu.relative_max());
    }
  }

  TEST_CASE("folders in groups stay packed, and are as near to the exact logits as on the CPU") {
    const hyb::testing::QuietLog quiet;
    for (const std::string name :
         {"qwen3_5-int4", "nemotron-nvfp4", "qwen3-moe-gptq", "qwen3-moe-nvfp4", "llama4-nvfp4"}) {
      CAPTURE(name);
      const Golden golden(name);
      const auto load = [&](DType activation, Device device, bool batch_invariant = false) {
        return Loaded(
            [&](kernels::Queue& queue) {
              TensorFiles files(golden.folder);
              return load_model(queue, Config::from_folder(golden.folder), files,
                                {.load = {.activation = activation}});
            },
            device, {.threads = 2, .isa = {}, .batch_invariant = batch_invariant});
      };
      const std::vector<TokenId>& prompt = golden.prompts.back();
      const std::vector<float> expected = load(DType::f32, Device::cpu).run(prompt, 0);
      Loaded here = load(DType::bf16, Device::cpu), card = load(DType::bf16, Device::cuda),
             alike = load(DType::bf16, Device::cuda, true);
      const auto vocab = static_cast<std::size_t>(card.model.plan.vocab);
      Distance of_cpu{vocab}, of_card{vocab};
      of_cpu.add(here.run(prompt, 0), expected);
      of_card.add(card.run(prompt, 0), expected);
      MESSAGE(name, ": of the exact logits: ", of_card.middle_row(), ", the CPU's ",
              of_cpu.middle_row());
      CHECK(of_card.middle_row() <= 2 * of_cpu.middle_row());
      const auto groups_of = [](const Loaded& loaded) {
        const auto groups = static_cast<std::size_t>(kernels::WeightCode::groups);
        return loaded.model.weights.matrices[groups];
      };
      // Experts with columns in orders of their own, and rows of 48, are unpacked.
      const bool is_reordered = name == "qwen3-moe-gptq", has_odd = name == "llama4-nvfp4";
      CHECK(groups_of(here) >= 4);
      CHECK(card.model.weights.ordered_columns == (is_reordered ? 64 : 0));
      if (is_reordered) {  // queries have an order, and keys and values another
        for (const LayerWeights& layer : card.model.weights.layers) {
          const auto& attention = std::get<AttentionWeights>(layer.blocks[0].parts[0]);
          REQUIRE(attention.qkv.parts().size() == 2);
          CHECK(attention.qkv.parts()[1].code() == kernels::WeightCode::groups);
        }
      }
      if (name == "qwen3-moe-nvfp4") {
        LoadOptions load_options = card.model.geometry.load;
        const Config config = Config::from_folder(golden.folder);
        load_options.blocks = packed_blocks(card.model.plan, family_of(config),
                                            TensorFiles(golden.folder), Device::cuda);
        CHECK(card.model.weights.packed_bytes ==
              packed_bytes(card.model.plan, Device::cuda, load_options));
      }
      CHECK(groups_of(card) == (is_reordered || has_odd ? 2 : groups_of(here)));
      CHECK(run_in_pieces(alike, prompt) == alike.run(prompt, 0));
    }
  }

  TEST_CASE("rows of a matrix that a card does not keep are one part, and named as rounded") {
    static std::string messages;
    log::set_filter([](std::string_view text) { return messages += text, std::string(text); });
    const hyb::testing::TemporaryFolder folder;
    const auto path =
        folder.write("m.gguf", mixed_gguf(false, {{"blk.0.attn_q.weight", GgufType::q2_k},
                                                  {"blk.0.attn_k.weight", GgufType::q3_k},
                                                  {"blk.0.attn_v.weight", GgufType::q5_k}}));
    const Loaded card = load_file(path, DType::bf16, Device::cuda);
    log::set_filter(nullptr);
    const auto& attention =
        std::get<AttentionWeights>(card.model.weights.layers[0].blocks[0].parts[0]);
    REQUIRE(attention.qkv.parts().size() == 2);
    CHECK(attention.qkv.parts()[0].code() == kernels::WeightCode::plain);
    CHECK(attention.qkv.parts()[0].rows() == 384);
    CHECK(messages.find("Q2_K, Q3_K in the files, were rounded to bf16") != std::string::npos);
  }
}

}  // namespace cuda_gguf_test
