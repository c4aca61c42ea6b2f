#include "models/drafting/eagle3.h"

#include "tests/models/heads.h"

namespace models_eagle3_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;
using hyb::testing::contains;
using hyb::testing::model_error;

namespace {

/// Models with a head in heads_folder: without slots and with; the head's vocabulary is a part of
/// the model's, or all of it.
const std::vector<std::string> names = {"gpt-oss", "granite-odd", "llama-3", "qwen3_5-text"};

/// What a config.json of a head for a model of 24 layers of width 1024 says.
DraftLayer read_head(const Json& values) {
  Json config = parse_json(R"({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
      "hidden_size": 1024, "intermediate_size": 64, "num_attention_heads": 8,
      "num_hidden_layers": 1, "hidden_act": "silu", "rms_norm_eps": 1e-6, "vocab_size": 248320,
      "draft_vocab_size": 32000})",
                           "head");
  config.merge_patch(values);
  return eagle3_of(Config::from_text(config.dump(), "head"), hyb::testing::plan_of("qwen3.5-0.8b"));
}

std::string head_error(const Json& values) {
  return model_error([&] { read_head(values); });
}

}  // namespace

TEST_SUITE("models/drafting/eagle3") {
  TEST_CASE("config.json says how the head is made and which layers it reads") {
    using Taps = std::vector<std::int32_t>;
    const DraftLayer head = read_head(Json::object());
    CHECK(head.eagle()->taps == Taps{2, 12, 21});
    CHECK(head.eagle()->vocab == 32000);
    CHECK(!head.eagle()->adds_to_normed);
    CHECK(std::get<Attention>(head.layers[0].blocks[0].parts[0]).rope->theta == 10000.0);
    CHECK(read_head({{"draft_vocab_size", nullptr}}).eagle()->vocab == 248320);
    CHECK(read_head({{"norm_before_residual", true}}).eagle()->adds_to_normed);
    const std::string key = "eagle_aux_hidden_state_layer_ids";
    CHECK(read_head({{key, {1, 5, 20}}}).eagle()->taps == Taps{1, 5, 20});
    CHECK(read_head({{"eagle_config", {{key, {1, 5, 20}}}}}).eagle()->taps == Taps{2, 6, 21});
    CHECK(read_head({{"eagle_config", {{key, Json::array()}}}}).eagle()->taps == Taps{2, 12, 21});
    for (const char* architecture : {"Eagle3LlamaForCausalLM", "LlamaForCausalLM"}) {
      CHECK(read_head({{"architectures", {architecture}}}).eagle()->vocab == 32000);
    }
  }

  TEST_CASE("what is not verified is refused by its name") {
    const std::string key = "eagle_aux_hidden_state_layer_ids";
    const auto refuses = [](const Json& values, const std::string& text) {
      CHECK_MESSAGE(contains(head_error(values), text), head_error(values));
    };
    refuses({{"hidden_size", 2048}}, "hidden_size: is 2048, the model's is 1024");
    refuses({{"target_hidden_size", 2048}}, "target_hidden_size: is 2048, the model's is 1024");
    refuses({{"vocab_size", 128256}}, "vocab_size: is 128256, the model has 248320 tokens");
    refuses({{"draft_vocab_size", 248321}}, "draft_vocab_size");
    refuses({{"num_hidden_layers", 2}}, "num_hidden_layers: is 2; a head has one layer");
    refuses({{"architectures", {"Eagle3DeepseekV2ForCausalLM"}}}, "is another kind of head");
    refuses({{"architectures", {"LlamaForCausalLM"}}, {"draft_vocab_size", nullptr}},
            "is no EAGLE-3 head's");
    for (const char* flag : {"attention_bias", "mlp_bias", "bias", "tie_word_embeddings", "fc_norm",
                             "norm_output", "parallel_drafting", "use_sliding_window"}) {
      refuses({{flag, true}}, flag);
    }
    refuses({{"eagle_config", {{"use_aux_hidden_state", false}}}}, "use_aux_hidden_state");
    refuses({{"hidden_act", "gelu"}}, "hidden_act");
    refuses({{key, {2, 12}}}, "three in ascending order");
    refuses({{key, {12, 2, 21}}}, "three in ascending order");
    refuses({{key, {2, 12, 24}}}, "would be 2, 12, 24");
    refuses({{"eagle_config", {{key, {1, 11, 23}}}}}, "would be 2, 12, 24");
    refuses({{key, {1, 2, 3}}, {"eagle_config", {{key, {1, 2, 3}}}}}, "is there twice");
    refuses({{"quantization_config", {{"quant_method", "awq"}}}}, "awq");
  }

  TEST_CASE("a head that is given for a model is refused with what to do") {
    const Config config = Config::from_folder(heads_folder / "llama-3");
    CHECK(contains(model_error([&] { plan_of(config, false); }), "give it to --draft-model"));
  }

  TEST_CASE("tensors that are missing, too many or of another shape are named") {
    const auto refuses = [](const CopiedHead& head, const std::string& text) {
      CHECK_MESSAGE(contains(head.error(), text), head.error());
    };
    CHECK(CopiedHead("llama-3").error().empty());
    refuses(CopiedHead("llama-3").renamed("norm.weight", "enorm.weight"),
            "1 tensors that config.json asks for are missing: norm.weight [48]");
    refuses(CopiedHead("llama-3").with({{"intermediate_size", 41}}),
            "tensor \"midlayer.mlp.gate_proj.weight\" is BF16 [40, 48]: config.json asks for "
            "[41, 48]");
    refuses(CopiedHead("gpt-oss").with_tensors([](Json& header, std::string&) {
      header["mask_hidden"] = header["norm.weight"];
      header["mask_hidden"]["shape"] = {32};
      header["mask_hidden"]["data_offsets"][1] =
          header["mask_hidden"]["data_offsets"][0].get<int>() + 64;
      header["norm.weight"]["shape"] = {32};
      header["norm.weight"]["data_offsets"][0] = header["mask_hidden"]["data_offsets"][1];
    }),
            "tensor \"norm.weight\" is BF16 [32]");
    refuses(CopiedHead("granite-odd").renamed("embed_tokens.weight", "mask_hidden"),
            "tensor \"mask_hidden\" is of no EAGLE-3 head that hyb runs");
    refuses(CopiedHead("granite-odd").with_tensors([](const Json& header, std::string& data) {
      data[header["embed_tokens.weight"]["data_offsets"][0].get<std::size_t>() + 5] ^= 1;
    }),
            "tensor embed_tokens.weight is not the model's embedding");
  }

  TEST_CASE("the table of tokens must name tokens of the model, each once") {
    const auto refuses = [](const CopiedHead& head, const std::string& text) {
      CHECK_MESSAGE(contains(head.error(), text), head.error());
    };
    refuses(CopiedHead("llama-3").with_offset(60, 151 - 60),
            "tensor d2t: entry 60 is 91: with 151 tokens the model has no such one");
    refuses(CopiedHead("llama-3").with_offset(0, -1), "tensor d2t: entry 0 is -1");
    refuses(CopiedHead("llama-3").with_offset(3, INT64_MAX), "tensor d2t: entry 3 is 9223");
    refuses(CopiedHead("llama-3").renamed("d2t", "t2d2"), "without tensor d2t");
    refuses(CopiedHead("llama-3").with_tensors(
                [](Json& header, std::string&) { header["d2t"]["dtype"] = "F64"; }),
            "tensor d2t: it is not [61] of I64 or I32");
    refuses(CopiedHead("llama-3").with_tensors([](const Json& header, std::string& data) {
      auto& entry = data[header["t2d"]["data_offsets"][0].get<std::size_t>() + 7];
      entry = static_cast<char>(1 - entry);
    }),
            "tensor t2d: of token 7 it says other than d2t");
    const auto tokens = [](const CopiedHead& head) {
      TensorFiles files(head.folder.path());
      files.map();
      Plan plan = family_of(Config::from_folder(golden_folder / head.model))
                      .plan(Config::from_folder(golden_folder / head.model));
      plan.draft = eagle3_of(Config::from_folder(head.folder.path()), plan);
      return eagle3_columns(plan, files);
    };
    const std::vector<std::int32_t> columns = tokens(CopiedHead("llama-3"));
    CHECK(columns.size() == 151);
    CHECK(std::ranges::count_if(columns, [](std::int32_t column) { return column >= 0; }) == 61);
    CHECK(tokens(CopiedHead("qwen3_5-text"))[287] == 287);
    const auto second = static_cast<std::int64_t>(std::ranges::find(columns, 1) - columns.begin());
    refuses(CopiedHead("llama-3").with_offset(0, second), "entries 0 and 1 both are token");
  }

  TEST_CASE("guesses of several steps, after prompts and prefixes, are the float64 reference's") {
    check_golden_guesses(names);
  }

  TEST_CASE("answers, states and guesses are those of plain decoding, whatever was drafted") {
    check_drafts_change_nothing(names);
    unsigned seed = static_cast<unsigned>(4 * names.size()) + 1;
    for (const DType kv : {DType::f8_e4m3, DType::f32}) {
      DraftWorld world = world_with_head("llama-3", DType::bf16, kernels::best_isa(), true, 16, kv);
      CHECK(drafts_change_nothing(world, seed++, drafts_sampling()));
    }
  }
}

}  // namespace models_eagle3_test
