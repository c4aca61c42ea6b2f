#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "models/gguf.h"
#include "tests/models/golden_drafts.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/gguf_bytes.h"

namespace models_gguf_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;
using namespace hyb::testing;

namespace {

/// How a fixture's folder is read, and how far from its logits those of its GGUF file may be.
struct Expected {
  /// Keys of config.json with other values, as an object: what the file does not say.
  std::string config = "{}";
  /// Of the largest logit, in f32; 0: the same bytes, in f32 and in bf16.
  double bound = 0;
  /// Tokens that both know; 0: all.
  std::int32_t tokens = 0;
};

/// The other fixtures' logits are the folder's, byte for byte.
const std::map<std::string, Expected> expected = {
    // Divisors are f32 in the file: some frequencies are another rounding of the same numbers.
    {"llama-3", {.bound = 1e-5}},
    // Its factors are products with the weights, in f32; whether the norm is before the gate, the
    // file does not say.
    {"falcon-h1-groups", {.config = R"({"mamba_norm_before_gate":false})", .bound = 1e-5}},
    // Rows of q and k come in the order of a rope that these have not: sums of q.k in another one.
    {"granite-groups", {.bound = 1e-5}},
    {"granite-moe-rope-untied",
     {.config = R"({"position_embedding_type":"nope"})", .bound = 1e-5}},  // rope is not written
    {"nemotron-grouped", {.bound = 1e-5}},
    {"nemotron-latent", {.bound = 1e-5}},
    {"nemotron-moe", {.bound = 1e-5}},
    // Decays are -exp of the logarithms in f32.
    {"mamba", {.bound = 1e-5}},
    {"mamba2", {.bound = 1e-5}},
    {"falcon-mamba", {.bound = 1e-5}},
    {"jamba", {.bound = 1e-5}},
    {"kimi-linear", {.bound = 1e-5}},
    {"minimax-text", {}},
    // Heads of values come in another order, so do the columns of the output's sums.
    {"qwen3_5-dense", {.bound = 1e-5}},
    {"qwen3_5-moe", {.bound = 1e-5}},
    // The file says neither what scores are divided by nor which layers have windows.
    {"gemma2-odd", {.config = R"({"query_pre_attn_scalar":10,"layer_types":["sliding_attention",
                    "full_attention","sliding_attention","full_attention"]})"}},
    {"gemma3-odd", {.config = R"({"query_pre_attn_scalar":22,"layer_types":["sliding_attention",
                    "sliding_attention","sliding_attention"]})"}},
    // It does not say where gates are cut off.
    {"gpt-oss", {.config = R"({"swiglu_limit":7.0})"}},
    // It does not say which layers have no window.
    {"cohere2", {.config = R"({"sliding_window_pattern":4})"}},
    // Tokens without an embedding for every layer have zeros in the file, in the folder the first;
    // where gates are cut off is f32 in the file.
    {"gemma3n", {.bound = 1e-5, .tokens = 131}},
    // It does not say which layers have another rope.
    {"granite-swa-moe", {.config = R"({"layer_rope_theta":null})"}},
    // It says nothing that only Llama 4's own sizes have.
    {"llama4-odd", {.config = R"({"attention_chunk_size":8192,"attn_scale":0.1,"floor_scale":8192,
                    "no_rope_layer_interval":4,"use_qk_norm":true})"}},
    // In layers without positions the dims of a head come in another order, so do the sums.
    {"smollm3", {.bound = 1e-6}},
    // It does not say whether the weights of the chosen experts are normalised.
    {"mellum-yarn", {.config = R"({"norm_topk_prob":true})"}},
};

Config config_of(const std::filesystem::path& folder, const std::string& changes) {
  Json json = parse_json(read_whole_file(folder / "config.json", 1U << 20), "config.json",
                         {.python_numbers = true});
  json.update(parse_json(changes, "changes"));
  return Config::from_text(to_text(json), (folder / "config.json").string());
}

Loaded load_file(const std::filesystem::path& path, DType activation, kernels::Isa isa) {
  return Loaded(
      [&](kernels::Queue& queue) {
        GgufFiles files(path);
        const Config config = gguf_config(files);
        TensorFiles tensors = TensorFiles::of_gguf(std::move(files));
        return load_model(queue, config, tensors, {.load = {.activation = activation}});
      },
      kernels::Device::cpu, {.threads = 2, .isa = isa});
}

Loaded load_folder(const std::filesystem::path& folder, const std::string& changes,
                   DType activation, kernels::Isa isa) {
  return Loaded(
      [&](kernels::Queue& queue) {
        TensorFiles tensors(folder);
        return load_model(queue, config_of(folder, changes), tensors,
                          {.load = {.activation = activation}});
      },
      kernels::Device::cpu, {.threads = 2, .isa = isa});
}

using Rename = std::function<std::string(std::string)>;

/// Other names of keys, of tensors and of the architecture; the data stay.
std::string renamed(const std::string& fixture, const Rename& rename) {
  const std::filesystem::path path = golden_folder / fixture / "model.gguf";
  const GgufFiles files(path);
  std::vector<std::string> names = {std::string(*files.metadata().text("general.architecture"))};
  for (const std::string_view key : files.metadata().keys()) names.emplace_back(key);
  for (const GgufTensor* tensor : files.tensors()) names.push_back(tensor->name);
  const std::string bytes = content(path);
  const GgufTensor& last = *files.tensors().back();
  const std::size_t after_name =
      bytes.rfind(GgufBytes().text(last.name).bytes()) + 8 + last.name.size();
  const std::size_t end = after_name + 4 + 8 * last.shape.size() + 4 + 8;
  std::string header = bytes.substr(0, end);
  for (const std::string& name : names) {
    const std::string old = GgufBytes().text(name).bytes();
    header.replace(header.find(old), old.size(), GgufBytes().text(rename(name)).bytes());
  }
  return GgufBytes().raw(header).pad().bytes() + bytes.substr((end + 31) / 32 * 32);
}

std::string same(std::string name) { return name; }

/// One name in place of another.
Rename one(const std::string& from, const std::string& to) {
  return [=](const std::string& name) { return name == from ? to : name; };
}

/// Another value of a key, which has 32 bits.
std::string with_number(std::string bytes, const std::string& key, std::uint32_t value) {
  const std::string text = GgufBytes().text(key).bytes();
  std::memcpy(bytes.data() + bytes.find(text) + text.size() + 4, &value, sizeof value);
  return bytes;
}

std::string error_of(const std::string& bytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("model.gguf", bytes);
  std::string error = model_error([&] { load_file(path, DType::f32, kernels::best_isa()); });
  return contains(error, path.string()) ? error : "";
}

Config config_in(const std::string& bytes) {
  const TemporaryFolder folder;
  return gguf_config(GgufFiles(folder.write("model.gguf", bytes)));
}

std::vector<std::string> fixtures_in_gguf() {
  std::vector<std::string> names = fixtures();
  std::erase_if(names, [](const std::string& name) {
    return !std::filesystem::exists(golden_folder / name / "model.gguf");
  });
  return names;
}

}  // namespace

TEST_SUITE("models/gguf") {
  TEST_CASE("what llama.cpp's converter made of a folder has the folder's logits") {
    REQUIRE(fixtures_in_gguf().size() >= 10);
    for (const std::string& name : fixtures_in_gguf()) {
      const Golden golden(name);
      const auto found = expected.find(name);
      const Expected wanted = found == expected.end() ? Expected{} : found->second;
      for (const DType activation : {DType::f32, DType::bf16}) {
        if (activation == DType::bf16 && wanted.bound > 0) continue;
        CAPTURE(name);
        CAPTURE(static_cast<int>(activation));
        Loaded folder = load_folder(golden.folder, wanted.config, activation, kernels::best_isa());
        Loaded file = load_file(golden.folder / "model.gguf", activation, kernels::best_isa());
        Distance distance{static_cast<std::size_t>(folder.model.plan.vocab)};
        bool are_equal = true;
        for (std::vector<TokenId> prompt : golden.prompts) {
          for (TokenId& token : prompt) {
            if (wanted.tokens > 0) token = TokenId{index(token) % wanted.tokens};
          }
          const std::vector<float> of_file = file.run(prompt, 0), of_folder = folder.run(prompt, 0);
          distance.add(of_file, of_folder);
          are_equal &= of_file == of_folder;
        }
        MESSAGE(name, ": ", are_equal ? "equal" : fmt::format("{:.1e}", distance.relative_max()));
        if (wanted.bound == 0) CHECK(are_equal);
        CHECK(distance.relative_max() <= wanted.bound);
      }
    }
  }

  TEST_CASE("a file of Mamba says how many positions it was trained on") {
    for (const char* name : {"mamba", "mamba2", "falcon-mamba"}) {
      GgufFiles files(golden_folder / name / "model.gguf");
      CHECK(plan_of(gguf_config(files), false).positions_max > 0);
    }
  }

  TEST_CASE("the draft layer in a file guesses as the float64 reference does") {
    for (const std::string name :
         {"qwen3_5-dense", "qwen3-next-odd", "nemotron-moe", "nemotron-latent"}) {
      CAPTURE(name);
      const Golden golden(name);
      DraftWorld world(
          [&](kernels::Queue& queue) {
            GgufFiles files(golden.folder / "model.gguf");
            const Config config = gguf_config(files);
            TensorFiles tensors = TensorFiles::of_gguf(std::move(files));
            return load_model(queue, config, tensors,
                              {.load = {.activation = DType::f32}, .with_drafts = true});
          },
          kernels::Device::cpu, {.threads = 2, .isa = kernels::best_isa()}, true);
      // Of a draft layer the converter rounds the router to bf16, which is f32 in this fixture.
      const double bound = name == "nemotron-moe" ? 1e-3 : 2e-4;
      CHECK(largest_difference(world, golden, golden.folder) <= bound);
    }
  }

  TEST_CASE("without drafts the blocks of a draft layer are known and not used") {
    GgufFiles files(golden_folder / "qwen3_5-dense/model.gguf");
    const Config config = gguf_config(files);
    const TensorFiles tensors = TensorFiles::of_gguf(std::move(files));
    const Family& family = family_of(config);
    CHECK(has_draft_layer(family, tensors));
    CHECK(WeightIndex(plan_of(config, false), family, tensors).extra().empty());
    CHECK(is_known_unused(plan_of(config, false), family, "blk.4.attn_norm.weight"));
    CHECK_FALSE(is_known_unused(plan_of(config, false), family, "blk.3.attn_norm.weight"));
  }

  TEST_CASE("what is refused is named") {
    const TemporaryFolder folder;
    const auto changed = [&](const char* fixture, std::string_view key, char value) {
      std::string bytes =
          read_whole_file(golden_folder / fixture / "model.gguf", std::size_t{1} << 24);
      bytes.at(bytes.find(key) + key.size() + 4) = value;  // after its type
      return folder.write("changed.gguf", bytes);
    };
    const auto fault = [](const std::filesystem::path& path) {
      return model_error([&] { load_file(path, DType::f32, kernels::best_isa()); });
    };
    CHECK(contains(fault(changed("granite-groups", "granitehybrid.rope.scaling.finetuned", 1)),
                   "are a Bamba's"));
    CHECK(contains(fault(changed("qwen3_5-dense", "qwen35.block_count", 4)),
                   "there are tensors of block 4"));
    CHECK(contains(fault(changed("qwen3_5-dense", "qwen35.ssm.time_step_rank", 5)),
                   "5 heads do not divide 64 values"));
    CHECK(
        contains(fault(changed("lfm2-moe", "lfm2moe.expert_gating_func", 1)), "only 2 (sigmoid)"));
    // A decay that grows.
    const std::filesystem::path whole = golden_folder / "granite-groups/model.gguf";
    std::string bytes = read_whole_file(whole, std::size_t{1} << 24);
    const auto header = parse_gguf_header(bytes, bytes.size(), whole);
    for (const GgufTensor& tensor : header->tensors) {
      if (tensor.name == "blk.1.ssm_a") bytes.at(header->data_offset + tensor.begin + 3) ^= '\x80';
    }
    CHECK(contains(fault(folder.write("grows.gguf", bytes)),
                   "\"blk.1.ssm_a\" is to have numbers below 0 alone"));
  }

  TEST_CASE("gpt-oss in ollama's spelling is the same model, but for its first form") {
    const auto to_ollama = [](std::string name) {
      const std::pair<std::string, std::string> spellings[] = {{"gpt-oss", "gptoss"},
                                                               {"rope.scaling.type", "not.there"},
                                                               {"attn_output", "attn_out"},
                                                               {"attn_sinks.weight", "attn_sinks"},
                                                               {"post_attention_norm", "ffn_norm"}};
      for (const auto& [from, to] : spellings) {
        if (const auto found = name.find(from); found != std::string::npos) {
          name.replace(found, from.size(), to);
        }
      }
      return name;
    };
    const TemporaryFolder folder;
    const auto path = folder.write("model.gguf", renamed("gpt-oss", to_ollama));
    Loaded ours =
        load_file(golden_folder / "gpt-oss" / "model.gguf", DType::f32, kernels::best_isa());
    Loaded ollamas = load_file(path, DType::f32, kernels::best_isa());
    const Golden golden("gpt-oss");
    CHECK(ollamas.run(golden.prompts.back(), 0) == ours.run(golden.prompts.back(), 0));
    CHECK(contains(error_of(renamed("gpt-oss",
                                    [&](std::string name) {
                                      name = to_ollama(name);
                                      return name == "blk.0.ffn_gate_exps.weight"
                                                 ? "blk.0.ffn_gate_up_exps.weight"
                                                 : name;
                                    })),
                   "ollama's first form of gpt-oss is not supported; pull the model again"));
  }

  TEST_CASE("ollama's spelling of delta nets and of LFM2 is the same model") {
    const auto same_model = [](const std::string& fixture, const std::string& bytes) {
      const TemporaryFolder folder;
      Loaded ours =
          load_file(golden_folder / fixture / "model.gguf", DType::f32, kernels::best_isa());
      Loaded ollamas =
          load_file(folder.write("model.gguf", bytes), DType::f32, kernels::best_isa());
      const Golden golden(fixture);
      CHECK(ollamas.run(golden.prompts.back(), 0) == ours.run(golden.prompts.back(), 0));
    };
    same_model("qwen3_5-dense", renamed("qwen3_5-dense", [](std::string name) {
                 const auto found = name.find("ssm_dt.bias");
                 return found == std::string::npos ? name : name.substr(0, found) + "ssm_dt";
               }));
    // The width before it was adjusted, and the norm's usual name.
    same_model(
        "lfm2-dense",
        with_number(renamed("lfm2-dense", one("token_embd_norm.weight", "output_norm.weight")),
                    "lfm2.feed_forward_length", 4096));
  }

  TEST_CASE("keys and tensors that are missing or disagree are errors by name") {
    const std::string qwen2 = renamed("qwen2", same);
    CHECK(qwen2 == content(golden_folder / "qwen2" / "model.gguf"));
    const auto error_with = [&](const std::string& key, std::uint32_t value) {
      return error_of(with_number(qwen2, "qwen2." + key, value));
    };
    CHECK(contains(
        error_with("feed_forward_length", 57),
        "tensor \"blk.0.ffn_gate.weight\" is BF16 [56, 40]: the file's keys ask for [57, 40]"));
    CHECK(contains(
        error_with("attention.head_count_kv", 4),
        "tensor \"blk.0.attn_k.weight\" is BF16 [20, 40]: the file's keys ask for [40, 40]"));
    CHECK(contains(
        error_with("block_count", 4),
        "12 tensors that its metadata asks for are missing: blk.3.attn_norm.weight [40], "));
    CHECK(contains(error_with("block_count", 2), "is 2, but there are tensors of block 2"));
    CHECK(contains(
        error_with("embedding_length", 48),
        "tensor \"token_embd.weight\" is BF16 [151, 40]: the file's keys ask for [151, 48]"));
    CHECK(contains(error_of(renamed("qwen2", one("blk.1.attn_k.bias", "blk.1.attn_k.bits"))),
                   "1 tensors that its metadata asks for are missing: blk.1.attn_k.bias [20]"));
    CHECK(contains(error_of(renamed("qwen2", one("qwen2.attention.head_count", "qwen2.heads"))),
                   "key \"qwen2.attention.head_count\": it is missing"));
    CHECK(contains(error_of(renamed("qwen2", one("token_embd.weight", "embd.weight"))),
                   "it has no token_embd.weight, so it is no whole model"));
    const std::string experts = renamed("qwen3-moe", same);
    CHECK(contains(
        error_of(with_number(experts, "qwen3moe.expert_count", 5)),
        "tensor \"blk.0.ffn_gate_inp.weight\" is F32 [6, 48]: the file's keys ask for [5, 48]"));
    CHECK(contains(error_of(with_number(experts, "qwen3moe.expert_used_count", 7)),
                   "expert_used_count (num_experts_per_tok): is 7, only 6 experts can be chosen"));
    CHECK(contains(error_of(renamed("qwen3-moe",
                                    one("blk.2.ffn_up_exps.weight", "blk.2.ffn_top_exps.weight"))),
                   "are missing: blk.2.ffn_up_exps.weight [6, 16, 48]"));
    CHECK(contains(error_of(renamed("qwen3-moe", one("qwen3moe.expert_count", "qwen3moe.count"))),
                   "key \"qwen3moe.expert_count\": it is missing"));
    // Experts of an architecture whose experts hyb does not run.
    CHECK(contains(error_of(renamed("llama-3", one("llama.vocab_size", "llama.expert_count"))),
                   "key \"llama.expert_count\": experts of this architecture are not supported"));
  }

  TEST_CASE("keys that are missing, or spelled by ollama or by llama.cpp itself") {
    const auto renamed_key = [](const std::string& fixture, const std::string& from,
                                const std::string& to) { return renamed(fixture, one(from, to)); };
    const auto float_bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
    // Gemma 2 of its first days has no window in the file, gpt-oss always one.
    CHECK(config_in(renamed_key("gemma2-odd", "gemma2.attention.sliding_window", "gemma2.window"))
              .i("sliding_window") == 4096);
    CHECK(contains(error_of(renamed_key("gpt-oss", "gpt-oss.attention.sliding_window", "window")),
                   "attention.sliding_window\": it is missing"));
    const Config granite =
        config_in(renamed_key("granite-llama", "granite.attention.scale", "granite.scale"));
    CHECK(granite.f("attention_multiplier") == doctest::Approx(1 / std::sqrt(12.0)));
    // ollama's converter of Gemma 3
    const auto to_ollama = [](const std::string& name) {
      if (name == "gemma3.rope.freq_base") return std::string("gemma3.rope.global.freq_base");
      if (name == "gemma3.rope.freq_base_swa") return std::string("gemma3.rope.local.freq_base");
      return name == "gemma3.attention.layer_norm_rms_epsilon" ? "gemma3.epsilon" : name;
    };
    const std::string of_ollama = renamed("gemma3-odd", to_ollama);
    const Config gemma = config_in(of_ollama);
    CHECK(gemma.f("rope_theta") == 5000.0);
    CHECK(gemma.f("rope_local_base_freq") == 10000.0);
    CHECK(gemma.f("rms_norm_eps") == 1e-6);
    CHECK_FALSE(gemma.has("rope_scaling"));
    const Config long_gemma = config_in(with_number(of_ollama, "gemma3.context_length", 131072));
    CHECK(long_gemma.object("rope_scaling")->f("factor") == 8.0);
    // A factor of llama.cpp multiplies what follows from the rope's own; the converter's replaces
    // it.
    const auto yarn = [&](const std::string& key, float value) {
      const std::string name = "gpt-oss.rope.scaling." + key;
      const std::string bytes = renamed_key("gpt-oss", "gpt-oss.rope.scaling.yarn_beta_slow", name);
      return config_in(with_number(bytes, name, float_bits(value))).object("rope_scaling").value();
    };
    CHECK_FALSE(yarn("attn_factor", 1.0F).has("attention_factor"));
    CHECK(yarn("attn_factor", 2.0F).f("attention_factor") ==
          doctest::Approx(2 * (0.1 * std::log(8.0) + 1)));
    CHECK(yarn("yarn_attn_factor", 1.5F).f("attention_factor") == doctest::Approx(1.5));
    // A factor of 0, which llama.cpp saves, is none.
    const std::string linear =
        renamed_key("granite-llama", "granite.logit_scale", "granite.rope.scaling.factor");
    CHECK_FALSE(
        config_in(with_number(linear, "granite.rope.scaling.factor", 0)).has("rope_scaling"));
    CHECK(contains(error_of(with_number(renamed_key("granite-llama", "granite.vocab_size",
                                                    "granite.attention.causal"),
                                        "granite.attention.causal", 0)),
                   "it makes embeddings of texts"));
  }

  TEST_CASE("a tensor that the architecture has no place for is an error, not a warning") {
    const auto to_llama = [](std::string name) {
      return name.starts_with("qwen2") ? "llama" + name.substr(5) : name;
    };
    CHECK(contains(error_of(renamed("qwen2", to_llama)), "hyb has no place for it"));
  }

  TEST_CASE("divisors of frequencies must be one for each pair, above 0") {
    const std::string llama = renamed("llama-3", same);
    CHECK(contains(error_of(with_number(llama, "llama.rope.dimension_count", 8)),
                   "tensor rope_freqs.weight: it must be 4 numbers of F32"));
    GgufFiles files(golden_folder / "llama-3" / "model.gguf");
    files.map();
    const auto divisors = files.view("rope_freqs.weight");
    const std::string old(reinterpret_cast<const char*>(divisors.data()), divisors.size());
    std::string wrong = llama;
    std::memset(wrong.data() + wrong.find(old) + 4, 0, 4);
    CHECK(contains(error_of(wrong),
                   "tensor rope_freqs.weight: number 1 is 0, which divides no frequency"));
  }

  TEST_CASE("ropes and windows are read where an architecture has keys of its own for them") {
    const std::string granite = renamed(
        "granite-swa-moe",
        one("granite_swa.expert_shared_feed_forward_length", "granite_swa.attention.rope_pattern"));
    CHECK(config_in(granite).numbers("layer_rope_theta") == std::vector<double>{10000});
    const std::string none = with_number(granite, "granite_swa.attention.rope_pattern", 0);
    CHECK(config_in(none).numbers("layer_rope_theta") == std::vector<double>{0});
    const auto fault = [](const std::string& fixture, const std::string& from,
                          const std::string& to) {
      return error_of(renamed(fixture, one(from, to)));
    };
    CHECK(
        contains(fault("granite-swa-moe", "granite_swa.attention.sliding_window_pattern", "other"),
                 "sliding_window_pattern\": it is missing"));
    CHECK(config_in(renamed("ministral3", one("mistral3.attention.temperature_scale", "other")))
              .model_type() == "llama");
    for (const std::string name : {"cohere2", "granite_swa", "gemma3n", "gemma4"}) {
      const std::string fixture = name == "granite_swa" ? "granite-swa-moe"
                                  : name == "gemma4"    ? "gemma4-moe"
                                                        : name;
      CHECK(contains(fault(fixture, name + ".attention.sliding_window", "other"),
                     "attention.sliding_window\": it is missing"));
    }
    CHECK(contains(fault("ministral3", "mistral3.rope.scaling.type", "other"),
                   "beside mistral3.attention.temperature_scale it must be yarn"));
    CHECK(contains(fault("llama4-odd", "llama4.vocab_size", "llama4.attention.sliding_window"),
                   "only Scout's and Maverick's layers are supported"));
    CHECK(contains(fault("gemma3n", "gemma3n.activation_sparsity_scale", "other"),
                   "activation_sparsity_scale\": it is missing"));
    CHECK(contains(
        error_of(with_number(renamed("gemma4-moe", same), "gemma4.rope.dimension_count_swa", 8)),
        "must be 16, as gemma4.attention.key_length_swa"));
  }

  TEST_CASE("a factor beside a weight, as llama.cpp writes NVFP4, is refused") {
    CHECK(contains(error_of(renamed("llama-3", one("rope_freqs.weight", "blk.0.ffn_up.scale"))),
                   "tensor \"blk.0.ffn_up.scale\" is F32 [8]: hyb has no place for it"));
  }

  TEST_CASE("other architectures are refused by name, with what to do") {
    const auto refusal = [](const std::string& name) {
      return error_of(renamed("qwen2", one("qwen2", name)));
    };
    CHECK(contains(refusal("rwkv7"),
                   "the architecture \"rwkv7\" is not read from GGUF files, of which cohere2, "));
    CHECK(contains(refusal("rwkv7"), "give the folder of its safetensors"));
  }
}

}  // namespace models_gguf_test
