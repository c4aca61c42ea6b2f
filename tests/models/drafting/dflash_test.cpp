#include "models/drafting/dflash.h"

#include "tests/models/heads.h"

namespace models_dflash_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;
using hyb::testing::contains;
using hyb::testing::model_error;

namespace {

/// Without slots and with; layers that see their block, windows, and causal ones.
const std::vector<std::string> names = {"gpt-oss-dflash", "granite-odd-dflash", "llama-3-dflash",
                                        "qwen3_5-text-dflash"};

/// What a config.json of a head for a model of 24 layers of width 1024 says.
DraftLayer read_head(const Json& values) {
  Json config = parse_json(R"({"architectures": ["DFlashDraftModel"], "model_type": "qwen3",
      "block_size": 16, "dflash_config": {"mask_token_id": 248077, "target_layer_ids": [1, 6, 20]},
      "head_dim": 64, "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 64,
      "layer_types": ["full_attention", "sliding_attention"], "num_attention_heads": 8,
      "num_key_value_heads": 2, "num_hidden_layers": 2, "num_target_layers": 24,
      "rms_norm_eps": 1e-6, "rope_theta": 1000000, "sliding_window": 2048, "vocab_size": 248320})",
                           "head");
  config.merge_patch(values);
  return dflash_of(Config::from_text(config.dump(), "head"), hyb::testing::plan_of("qwen3.5-0.8b"));
}

const Attention& attention_of(const DraftLayer& draft, std::size_t layer) {
  return std::get<Attention>(draft.layers[layer].blocks[0].parts[0]);
}

}  // namespace

TEST_SUITE("models/drafting/dflash") {
  TEST_CASE("config.json says which layers are read and what the head's own see") {
    const DraftLayer draft = read_head(Json::object());
    CHECK(draft.dflash()->taps == std::vector<std::int32_t>{2, 7, 21});
    CHECK(draft.dflash()->block == 16);
    CHECK(draft.dflash()->mask == 248077);
    CHECK(draft.dflash()->embedding_scale == 1.0F);
    CHECK(draft.dflash()->logits_cap == 0.0F);
    CHECK(attention_of(draft, 0).sees_block);
    CHECK(attention_of(draft, 0).window == 0);
    CHECK(!attention_of(draft, 1).sees_block);
    CHECK(attention_of(draft, 1).window == 2048);
    const DraftLayer causal = read_head({{"is_causal", true}});
    CHECK(!attention_of(causal, 0).sees_block);
    const DraftLayer scaled = read_head({{"dflash_config",
                                          {{"block_size", 8},
                                           {"output_multiplier", 0.25},
                                           {"final_logit_softcapping", 20.0},
                                           {"input_embedding_scale", 2.0}}}});
    CHECK(scaled.dflash()->block == 8);
    CHECK(scaled.dflash()->logits_scale == 0.25F);
    CHECK(scaled.dflash()->logits_cap == 20.0F);
    CHECK(scaled.dflash()->embedding_scale == 2.0F);
  }

  TEST_CASE("what is not verified is refused by its name") {
    const auto refuses = [](const Json& values, const std::string& text) {
      const std::string error = model_error([&] { read_head(values); });
      CHECK_MESSAGE(contains(error, text), error);
    };
    const auto own = [](const Json& values) { return Json{{"dflash_config", values}}; };
    refuses({{"architectures", {"DFlash2DraftModel"}}}, "is another kind of head");
    refuses({{"architectures", {"Qwen3DSparkModel"}}}, "is another kind of head");
    refuses(own({{"conv_kernel_size", 2}}), "conv_kernel_size: is of DFlash-2");
    refuses(own({{"selector_rank", 256}}), "selector_rank");
    refuses({{"markov_rank", 256}}, "markov_rank");
    refuses(own({{"use_swa", true}}), "use_swa");
    refuses({{"attention_sink_bias", true}}, "attention_sink_bias");
    refuses({{"attention_bias", true}}, "attention_bias");
    refuses({{"draft_vocab_size", 32000}}, "draft_vocab_size");
    refuses({{"is_causal", false}}, "windows in both directions");
    refuses(own({{"causal", false}}), "windows in both directions");
    refuses({{"layer_types", nullptr}, {"use_sliding_window", true}}, "layer_types: is missing");
    refuses({{"hidden_size", 2048}}, "hidden_size: is 2048, the model's is 1024");
    refuses({{"vocab_size", 151936}}, "vocab_size: is 151936, the model's is 248320");
    refuses({{"num_target_layers", 28}}, "num_target_layers: is 28, the model's is 24");
    refuses(own({{"mask_token_id", 248320}}), "mask_token_id");
    refuses(own({{"mask_token_id", nullptr}}), "mask_token_id");
    refuses(own({{"target_layer_ids", Json::array()}}), "names no layer");
    refuses(own({{"target_layer_ids", {4, 2}}}), "in ascending order");
    refuses(own({{"target_layer_ids", {1, 23}}}), "not the last");
    refuses({{"block_size", 1}}, "block_size");
    refuses({{"quantization_config", {{"quant_method", "awq"}}}}, "awq");
  }

  TEST_CASE("a head that is given for a model is refused with what to do") {
    const Config config = Config::from_folder(heads_folder / "llama-3-dflash");
    CHECK(contains(model_error([&] { plan_of(config, false); }), "give it to --draft-model"));
  }

  TEST_CASE("tensors that are missing, too many or of another shape are named") {
    const auto refuses = [](const CopiedHead& head, const std::string& text) {
      CHECK_MESSAGE(contains(head.error(), text), head.error());
    };
    CHECK(CopiedHead("gpt-oss-dflash").error().empty());
    refuses(CopiedHead("llama-3-dflash").renamed("hidden_norm.weight", "enorm.weight"),
            "1 tensors that config.json asks for are missing: hidden_norm.weight [48]");
    refuses(CopiedHead("llama-3-dflash").renamed("layers.1.self_attn.q_norm.weight", "q_norm"),
            "layers.1.self_attn.q_norm.weight [12]");
    refuses(CopiedHead("llama-3-dflash").with({{"intermediate_size", 45}}),
            "tensor \"layers.0.mlp.gate_proj.weight\" is BF16 [44, 48]: config.json asks for "
            "[45, 48]");
    refuses(CopiedHead("gpt-oss-dflash").renamed("embed_tokens.weight", "lm_head.weight"),
            "tensor \"lm_head.weight\" is of no DFlash head that hyb runs");
    refuses(CopiedHead("gpt-oss-dflash").with_tensors([](const Json& header, std::string& data) {
      data[header["embed_tokens.weight"]["data_offsets"][0].get<std::size_t>() + 5] ^= 1;
    }),
            "tensor embed_tokens.weight is not the model's embedding");
  }

  TEST_CASE("guesses of a block, after prompts and prefixes, are the float64 reference's") {
    check_golden_guesses(names);
  }

  TEST_CASE("answers, states and guesses are those of plain decoding, whatever was drafted") {
    check_drafts_change_nothing(names);
  }

  TEST_CASE("that a step does not rewrite the masks' keys and values shows in guesses") {
    bool is_found = false;
    for (unsigned seed = 1; seed < 4 && !is_found; ++seed) {
      DraftWorld world =
          world_with_head("qwen3_5-text-dflash", DType::bf16, kernels::best_isa(), false);
      world.fault = DraftFault::entries_of_drafting_kept;
      is_found = !drafts_change_nothing(world, seed, drafts_sampling());
    }
    CHECK(is_found);
  }
}

}  // namespace models_dflash_test
