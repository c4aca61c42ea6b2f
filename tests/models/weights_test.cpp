#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "models/gguf.h"
#include "models/roofline.h"
#include "models/weight_index.h"
#include "tests/models/golden.h"
#include "tests/models/mixed_gguf.h"
#include "tests/support/files.h"
#include "tests/support/quiet_log.h"

namespace weights_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

TEST_SUITE("models/weights") {
  TEST_CASE("all inputs of a delta net are one weight where their formats agree") {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    struct {
      const char* name;
      LoadOptions load;
      bool is_one;
    } const cases[] = {
        {"qwen3-next", {.activation = DType::bf16}, true},  // stored as qkvz and ba
        {"qwen3_5-text", {.activation = DType::bf16}, true},
        {"qwen3_5-text", {.activation = DType::f32}, true},
        {"qwen3-next-f16", {.activation = DType::f32}, true},
        {"qwen3-next-fp8", {.activation = DType::bf16}, false},  // ba is published as bf16
        {"qwen3-next-fp8", {.activation = DType::f32}, true},
        {"qwen3-next", {.activation = DType::bf16, .quantize = kernels::Quantize::q8}, false},
        {"qwen3-next", {.activation = DType::bf16, .quantize = kernels::Quantize::q4}, false}};
    for (const auto& [name, load, is_one] : cases) {
      CAPTURE(std::string(name));
      CAPTURE(static_cast<int>(load.quantize));
      const Config config = Config::from_folder(golden_folder / name);
      TensorFiles files(golden_folder / name);
      const Model model = load_model(queue, config, files, {.load = load});
      int nets = 0;
      for (std::size_t i = 0; i < model.plan.layers.size(); ++i) {
        const auto* const net = std::get_if<DeltaNet>(&model.plan.layers[i].blocks[0].parts[0]);
        if (net == nullptr) continue;
        ++nets;
        const auto& weights = std::get<DeltaNetWeights>(model.weights.layers[i].blocks[0].parts[0]);
        const std::int64_t heads = net->value_heads, qkvz = net->inputs() - 2 * heads;
        CHECK(weights.ba.has_value() == !is_one);
        CHECK(weights.in_proj.rows() == (is_one ? net->inputs() : qkvz));
        if (!is_one) CHECK(weights.ba->rows() == 2 * heads);
      }
      CHECK(nets > 0);
    }
  }
}

TEST_SUITE("models/packed_bytes") {
  TEST_CASE("the plan predicts what loading takes, quantised or not") {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    for (const char* name : {"granite-moe-rope-untied", "granite-dense-nope", "nemotron-latent",
                             "qwen3_5-moe", "lfm2-moe", "lfm3", "falcon-h1-groups",
                             "falcon-h1-plain", "olmo-hybrid-odd", "kimi-linear-odd", "minimax-odd",
                             "bailing-delta-odd", "bailing-lightning", "zamba2-odd"}) {
      for (const kernels::Quantize quantize :
           {kernels::Quantize::none, kernels::Quantize::q8, kernels::Quantize::q4}) {
        CAPTURE(name);
        CAPTURE(static_cast<int>(quantize));
        const Golden golden(name);
        const Config config = Config::from_folder(golden.folder);
        TensorFiles files(golden.folder);
        const Model model = load_model(queue, config, files,
                                       {.load = {.activation = DType::bf16, .quantize = quantize}});
        CHECK(packed_bytes(model.plan, kernels::Device::cpu, model.geometry.load) ==
              model.weights.packed_bytes);
        CHECK(vector_bytes(model.plan) == model.weights.bytes() - model.weights.packed_bytes);
      }
    }
  }

  TEST_CASE("f16 stays f16 where activations are f32, as the files' headers predict") {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    const Golden golden("qwen3-next-f16");
    const Config config = Config::from_folder(golden.folder);
    TensorFiles files(golden.folder);
    const Plan plan = family_of(config).plan(config);
    CHECK(activation_dtype(plan, {}) == DType::f32);
    CHECK(f16_share(plan, family_of(config), files) == 1.0);
    for (const double share : {1.0, 0.0}) {
      const Model model = load_model(queue, config, files,
                                     {.load = {.activation = DType::f32, .f16_share = share}});
      CHECK(model.weights.embed.dtype() == DType::f16);
      const std::size_t predicted = packed_bytes(plan, kernels::Device::cpu, model.geometry.load);
      if (share == 1.0) CHECK(predicted == model.weights.packed_bytes);
      if (share == 0.0) CHECK(predicted > 2 * model.weights.packed_bytes - 20000);
    }
    const Model rounded = load_model(queue, config, files, {.load = {.activation = DType::bf16}});
    CHECK(rounded.weights.embed.dtype() == DType::bf16);
    CHECK(packed_bytes(plan, kernels::Device::cpu, rounded.geometry.load) ==
          rounded.weights.packed_bytes);
    const Geometry narrow = geometry_of(plan, {.load = {.activation = DType::f32, .f16_share = 1}});
    const Geometry wide = geometry_of(plan, {.load = {.activation = DType::f32}});
    const StepShape step = {.tokens = 1, .rows = 0};
    CHECK(Roofline(plan, narrow).step({&step, 1}).bytes <
          0.7 * Roofline(plan, wide).step({&step, 1}).bytes);
  }

  TEST_CASE("made-up experts of a config with MXFP4 are MXFP4, as large as files' are") {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    const Config config = Config::from_folder(Golden("gpt-oss").folder);
    TensorFiles files(golden_folder / "gpt-oss");
    const Model loaded = load_model(queue, config, files, {.load = {.activation = DType::bf16}});
    const Model made = random_model(queue, config, 3, {.load = {.activation = DType::bf16}});
    for (const Model* model : {&loaded, &made}) {
      const auto& experts =
          std::get<MoeWeights>(model->weights.layers.at(0).blocks.at(1).parts.at(0));
      CHECK(experts.gate_up.code() == kernels::WeightCode::mxfp4);
      CHECK(experts.down.code() == kernels::WeightCode::mxfp4);
      CHECK(experts.router.code() == kernels::WeightCode::plain);
    }
    CHECK(made.weights.packed_bytes == loaded.weights.packed_bytes);
  }

  TEST_CASE("made-up weights are FP8 where published ones are, and no two experts alike") {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    for (const char* name : {"qwen3-next-fp8", "qwen3_5-moe-fp8", "nemotron-fp8", "lfm2-fp8"}) {
      CAPTURE(name);
      const Config config = Config::from_folder(golden_folder / name);
      TensorFiles files(golden_folder / name);
      const Model loaded = load_model(queue, config, files, {.load = {.activation = DType::bf16}});
      const Model made = random_model(queue, config, 3, {.load = {.activation = DType::bf16}});
      CHECK(made.weights.matrices == loaded.weights.matrices);
    }
    const Config plain = Config::from_folder(golden_folder / "qwen3-next");
    const Model fp8 = random_model(queue, plain.with_quantization("fp8"), 3,
                                   {.load = {.activation = DType::bf16}});
    const Model mxfp4 = random_model(queue, plain.with_quantization("mxfp4"), 3,
                                     {.load = {.activation = DType::bf16}});
    for (const Block& block : fp8.plan.layers.at(0).blocks) {
      const auto at = static_cast<std::size_t>(&block - fp8.plan.layers.at(0).blocks.data());
      if (!std::holds_alternative<Moe>(block.parts.at(0))) continue;
      const auto& a = std::get<MoeWeights>(fp8.weights.layers.at(0).blocks.at(at).parts.at(0));
      const auto& b = std::get<MoeWeights>(mxfp4.weights.layers.at(0).blocks.at(at).parts.at(0));
      CHECK(a.gate_up.code() == kernels::WeightCode::fp8);
      CHECK(a.router.code() == kernels::WeightCode::plain);
      CHECK(b.gate_up.code() == kernels::WeightCode::mxfp4);
      std::vector<float> first(static_cast<std::size_t>(a.gate_up.columns())), second = first;
      a.gate_up.read_row(0, 0, first);
      a.gate_up.read_row(1, 0, second);
      CHECK(first != second);
    }
    CHECK(fp8.weights.head->code() == kernels::WeightCode::plain);
    CHECK(mxfp4.weights.matrices[static_cast<std::size_t>(kernels::WeightCode::mxfp4)] > 0);
  }

  TEST_CASE("made-up weights of a float16 config are f16") {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    const Config config = Config::from_folder(Golden("qwen3-next-f16").folder);
    const Model model = random_model(queue, config, 3, {.load = {.activation = DType::f32}});
    CHECK(model.weights.embed.dtype() == DType::f16);
    const Model narrow = random_model(queue, Config::from_folder(Golden("qwen3-next").folder), 3,
                                      {.load = {.activation = DType::f32}});
    CHECK(narrow.weights.embed.dtype() == DType::f32);
  }

  TEST_CASE("of published FP8 and MXFP4 the plan and the files' headers predict it nearly") {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    for (const char* name : {"qwen3-next-fp8", "nemotron-fp8", "bamba-fp8", "gpt-oss"}) {
      for (const kernels::Quantize quantize :
           {kernels::Quantize::none, kernels::Quantize::q8, kernels::Quantize::q4}) {
        CAPTURE(name);
        CAPTURE(static_cast<int>(quantize));
        const Golden golden(name);
        const Config config = Config::from_folder(golden.folder);
        TensorFiles files(golden.folder);
        const Family& family = family_of(config);
        const Model model = load_model(queue, config, files,
                                       {.load = {.activation = DType::bf16, .quantize = quantize}});
        LoadOptions load = model.geometry.load;
        load.fp8_parameters = fp8_parameters(model.plan, family, files);
        load.mxfp4_parameters = mxfp4_parameters(model.plan, family, files);
        CHECK(load.fp8_parameters + load.mxfp4_parameters > 0);
        // What these small matrices are padded with is taken for bf16: up to 12.2 %.
        const auto predicted =
            static_cast<double>(packed_bytes(model.plan, kernels::Device::cpu, load));
        CHECK(predicted ==
              doctest::Approx(static_cast<double>(model.weights.packed_bytes)).epsilon(0.13));
      }
    }
  }

  TEST_CASE("without experts a token goes through all listed parameters but the embeddings") {
    for (const std::string& name : fixtures()) {
      CAPTURE(name);
      const Config config = Config::from_folder(golden_folder / name);
      const Plan plan = family_of(config).plan(config);
      if (plan.has_experts()) continue;
      const Roofline roofline(plan, geometry_of(plan));
      const std::int64_t heads = plan.tied_head ? 1 : 2;
      const std::int64_t inputs =
          plan.layer_inputs ? plan.layer_inputs->vocab * plan.layer_inputs_width() : 0;
      const std::int64_t active =
          roofline.active_parameters() + heads * roofline.head_parameters() + inputs;
      const std::int64_t listed = parameters(required_weights(plan, family_of(config)));
      // A token goes through weights that layers share once in each of them.
      CHECK((plan.keeps_embedding ? active > listed : active == listed));
    }
  }

  TEST_CASE("quantised weights are what a roofline moves") {
    const Config config = Config::from_folder(Golden("qwen3_5-dense").folder);
    const Plan plan = family_of(config).plan(config);
    const auto bytes = [&](kernels::Quantize quantize, std::int64_t fp8) {
      const Geometry geometry =
          geometry_of(plan, {.load = {.quantize = quantize, .fp8_parameters = fp8}});
      return Roofline(plan, geometry).step({.tokens = 1, .rows = 0}).bytes;
    };
    const auto parameters =
        static_cast<double>(Roofline(plan, geometry_of(plan)).active_parameters());
    const double plain = bytes(kernels::Quantize::none, 0);
    CHECK(plain - bytes(kernels::Quantize::q8, 0) == doctest::Approx(parameters * (2 - 8.5 / 8)));
    CHECK(plain - bytes(kernels::Quantize::q4, 0) == doctest::Approx(parameters * (2 - 4.5 / 8)));
    CHECK(plain - bytes(kernels::Quantize::none, 1000) ==
          doctest::Approx(1000 * (2 - 1 - 4.0 / 128)));
  }

  TEST_CASE("a published format of all weights is that of shared blocks wherever they are read") {
    const Config config = Config::from_folder(Golden("zamba2").folder);
    const Plan plan = family_of(config).plan(config);
    const Roofline roofline(plan, geometry_of(plan));
    const std::int64_t stored =
        parameters(required_weights(plan, family_of(config))) - roofline.head_parameters();
    const double published = Roofline(plan, geometry_of(plan, {.load = {.fp8_parameters = stored}}))
                                 .step({.tokens = 1, .rows = 0})
                                 .bytes;
    CHECK(roofline.step({.tokens = 1, .rows = 0}).bytes - published ==
          doctest::Approx(static_cast<double>(roofline.active_parameters()) * (1 - 4.0 / 128)));
  }

  TEST_CASE("MXFP4 is what experts move, and no other weight") {
    const Plan plan = gpt_oss::family.plan(Config::from_folder(Golden("gpt-oss").folder));
    constexpr std::int64_t routed = std::int64_t{3} * 6 * 3 * 96 * 64;
    const auto bytes = [&](kernels::Quantize quantize, std::int64_t mxfp4) {
      const Geometry geometry =
          geometry_of(plan, {.load = {.quantize = quantize, .mxfp4_parameters = mxfp4}});
      return Roofline(plan, geometry).step({.tokens = 1, .rows = 0}).bytes;
    };
    const double active = static_cast<double>(routed) / 3;  // two of six
    CHECK(bytes(kernels::Quantize::none, 0) - bytes(kernels::Quantize::none, routed) ==
          doctest::Approx(active * (2 - 4.25 / 8)));
    CHECK(bytes(kernels::Quantize::q4, 0) - bytes(kernels::Quantize::q4, routed) ==
          doctest::Approx(active * 0.25 / 8));
  }
}

TEST_SUITE("models/gguf_weights") {
  TEST_CASE("blocks of a GGUF file stay packed whatever --quantize says, as their sizes predict") {
    const hyb::testing::QuietLog quiet;
    const hyb::testing::TemporaryFolder folder;
    GgufFiles gguf(folder.write("m.gguf", mixed_gguf()));
    const Config config = gguf_config(gguf);
    TensorFiles files = TensorFiles::of_gguf(std::move(gguf));
    const Plan plan = family_of(config).plan(config);
    const PackedBlocks blocks = packed_blocks(plan, family_of(config), files);
    CHECK(blocks.parameters == 64 * 256 + 512 * 256 + 256 * 256 + 3 * 320 * 256);
    CHECK(blocks.head_bytes == 8.5 / 8);
    const PackedBlocks on_card =
        packed_blocks(plan, family_of(config), files, kernels::Device::cuda);
    CHECK(on_card.parameters == blocks.parameters);
    CHECK(on_card.bytes == doctest::Approx(blocks.bytes).epsilon(0.2));  // rows are whole chunks
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    std::size_t packed = 0;
    for (const kernels::Quantize quantize :
         {kernels::Quantize::none, kernels::Quantize::q4, kernels::Quantize::q8}) {
      for (const bool lossless : {false, true}) {
        if (lossless && quantize != kernels::Quantize::none) continue;
        const Model model =
            load_model(queue, config, files,
                       {.load = {.quantize = quantize, .blocks = blocks, .lossless = lossless}});
        if (packed == 0) packed = model.weights.packed_bytes;
        CHECK(model.weights.packed_bytes == packed);
        CHECK(model.weights.matrices[static_cast<std::size_t>(kernels::WeightCode::blocks)] == 5);
        const auto& attention =
            std::get<AttentionWeights>(model.weights.layers[0].blocks[0].parts[0]);
        REQUIRE(attention.qkv.parts().size() == 2);
        CHECK(attention.qkv.parts()[0].type() == GgufType::q4_k);
        CHECK(attention.qkv.parts()[0].rows() == 384);
        CHECK(attention.qkv.parts()[1].type() == GgufType::q6_k);
        if (quantize == kernels::Quantize::none && !lossless) {
          CHECK(packed_bytes(plan, kernels::Device::cpu, model.geometry.load) == packed);
          const Geometry plain = geometry_of(plan, {});
          const StepShape step = {.tokens = 1, .rows = 1};
          CHECK(Roofline(plan, model.geometry).step({&step, 1}).bytes <
                0.45 * Roofline(plan, plain).step({&step, 1}).bytes);
        }
      }
    }
    CHECK(sample_lossless(config, files, {}).empty());
    const Model exact = load_model(queue, config, files, {.load = {.activation = DType::f32}});
    CHECK(exact.weights.packed_bytes ==
          packed_bytes(plan, kernels::Device::cpu, {.activation = DType::f32}));
  }

  TEST_CASE("experts whose gates and ups are of two types are no blocks, and not counted as such") {
    const hyb::testing::QuietLog quiet;
    const hyb::testing::TemporaryFolder folder;
    GgufFiles gguf(
        folder.write("m.gguf", mixed_gguf(true, {{"blk.0.ffn_up_exps.weight", GgufType::q5_k}})));
    const Config config = gguf_config(gguf);
    TensorFiles files = TensorFiles::of_gguf(std::move(gguf));
    const Plan plan = family_of(config).plan(config);
    const PackedBlocks blocks = packed_blocks(plan, family_of(config), files);
    CHECK(blocks.parameters == 64 * 256 + 512 * 256 + 256 * 256 + 6 * 256 * 256);
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    const Model model = load_model(queue, config, files, {.load = {.blocks = blocks}});
    CHECK(packed_bytes(plan, kernels::Device::cpu, model.geometry.load) ==
          model.weights.packed_bytes);
  }
}

}  // namespace weights_test
