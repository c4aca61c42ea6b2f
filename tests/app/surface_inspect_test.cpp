#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/io/file.h"
#include "kernels/device.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_inspect_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const std::filesystem::path golden =
    std::filesystem::path(HYB_TESTS_DIR) / "golden/granite-dense-nope";

ToolResult hyb_tool(std::vector<std::string> arguments,
                    std::map<std::string, std::string> environment = {}) {
  return run_tool({.arguments = std::move(arguments), .environment = std::move(environment)});
}

Json json_of(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const ToolResult result = hyb_tool(std::move(arguments));
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  return parse_json(result.out, "stdout");
}

void copy_config(const TemporaryFolder& folder) {
  folder.write("config.json", read_whole_file(golden / "config.json", 1U << 20));
}

}  // namespace

TEST_SUITE("app/surface_inspect") {
  TEST_CASE("the published shapes, from their configuration alone") {
    const Json tiny = json_of({"inspect", "granite-4.0-h-tiny"});
    CHECK(tiny["kv_bytes_per_token"] == 8192);
    CHECK(tiny["state_bytes_per_sequence"] == 36 * (48 * 64 * 128 * 4 + 3328 * 3 * 2));
    CHECK(tiny["parameters"] == 6'939'037'248);
    CHECK(tiny["model_type"] == "granitemoehybrid");
    CHECK(tiny["layers"]["ssd"] == 36);
    CHECK(tiny["tensors"].is_null());
    CHECK(tiny["has_tokenizer"] == false);
  }

  TEST_CASE("ranks: what each keeps, and what a hand-over to them sends") {
    const Json super =
        json_of({"inspect", "nemotron-3-super-120b-a12b", "--ranks", "1,4"})["ranks"];
    CHECK(super["to"] == 4);
    CHECK(super["state_bytes_per_sequence_of_rank"] == 40 * 1039 * 1024);
    CHECK(super["slot_sent"]["bytes"] == 4 * 40 * 1039 * 1024);
    // Two key heads for four ranks: half of a token's keys and values on each, twice as many sent.
    CHECK(super["kv_bytes_per_token_of_rank"] == 4096);
    CHECK(super["page_sent"]["bytes"] == 4 * 16 * 4096);
    CHECK(super["page_sent"]["runs"] == 4 * 8);
    CHECK(json_of({"inspect", "demo"})["ranks"].is_null());
    const ToolResult text = hyb_tool({"inspect", "nemotron-3-super-120b-a12b", "--ranks", "1,4"});
    CHECK(contains(text.out, "each of 4 ranks"));
    CHECK(contains(text.out, "40.6 MiB of state per sequence"));
    CHECK(contains(text.out, "1 rank to 4"));
    const ToolResult odd = hyb_tool({"inspect", "granite-4.0-h-350m", "--ranks", "1,5"});
    CHECK(odd.exit_code == 2);
    CHECK(contains(odd.err, "cannot be divided among 5 ranks"));
    CHECK(hyb_tool({"inspect", "demo", "--ranks", "2"}).exit_code == 2);
    CHECK(hyb_tool({"inspect", "demo", "--ranks", "0,2"}).exit_code == 2);
  }

  TEST_CASE("a folder: tensors, tokenizer, template; every tensor on demand") {
    const ToolResult text = hyb_tool({"inspect", golden});
    CHECK(text.exit_code == 0);
    for (const char* word :
         {"parameters", "ssd", "attention", "keys and values", "chat template"}) {
      CHECK(contains(text.out, word));
    }
    CHECK(!contains(text.out, "model.norm.weight"));
    const std::string tensors = hyb_tool({"inspect", golden, "--tensors"}).out;
    CHECK(contains(tensors, "model.norm.weight"));
    CHECK(!contains(tensors, "keys and values"));  // the overview is not said again
    const Json json = json_of({"inspect", golden, "--tensors"});
    CHECK(json["tensors"]["missing"] == 0);
    CHECK(json["tensors"]["ok"] == json["tensor_list"].size());
    CHECK(json["has_chat_template"] == true);
  }

  TEST_CASE("a folder with config.json alone") {
    const TemporaryFolder folder;
    copy_config(folder);
    const ToolResult result = hyb_tool({"inspect", folder.path()});
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out, "none in this folder"));
    CHECK(hyb_tool({"fit", folder.path()}).exit_code == 0);
  }

  TEST_CASE("missing tensors are listed, exit 3; a damaged tokenizer is reported") {
    const TemporaryFolder folder;
    copy_config(folder);
    std::string header =
        R"({"model.norm.weight":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    folder.write("model.safetensors", bytes + header + "xx");
    folder.write("tokenizer.json", "{");
    const ToolResult result = hyb_tool({"inspect", folder.path()});
    CHECK(result.exit_code == 3);
    CHECK(contains(result.out, "model.embed_tokens.weight"));
    CHECK(contains(result.out, "missing"));
    CHECK(contains(result.out, "config.json asks for"));
    CHECK(contains(result.out, "tokenizer.json"));
    CHECK(contains(result.err, "can't be loaded"));
  }

  TEST_CASE("a tokenizer or chat template that can't be read is in the table, and exit 3") {
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      const TemporaryFolder folder;
      copy_config(folder);
      std::filesystem::create_directory(folder.path() / file);
      const ToolResult result = hyb_tool({"inspect", folder.path()});
      CHECK(result.exit_code == 3);
      CHECK(contains(result.out, "is not a regular file"));
      CHECK(contains(result.err, "tokenizer, chat template"));
    }
  }

  TEST_CASE("a generation_config.json that no run takes is in the table, and exit 3") {
    const TemporaryFolder folder;
    copy_config(folder);
    const auto is_refused = [&](const std::string& why) {
      const ToolResult result = hyb_tool({"inspect", folder.path()});
      CHECK(result.exit_code == 3);
      CHECK(contains(result.out, why));
      CHECK(contains(result.err, "generation config"));
      const ToolResult json = hyb_tool({"inspect", folder.path(), "--json"});
      CHECK(json.exit_code == 3);
      const Json text = parse_json(json.out, "stdout")["generation_config"];
      CHECK(contains(text.get<std::string>(), why));
    };
    for (const auto& [text, why] :
         {std::pair("version https://git-lfs.github.com/spec/v1\n", "generation_config.json: "),
          std::pair("{", "generation_config.json: "), std::pair("[]", "is not an object"),
          std::pair(R"({"suppress_tokens":[-1]})", "suppress_tokens must be token ids, is [-1]"),
          std::pair(R"({"eos_token_id":"x"})", "eos_token_id must be a whole number"),
          std::pair(R"({"no_repeat_ngram_size":3})", "no_repeat_ngram_size 3 is not supported")}) {
      CAPTURE(text);
      folder.write("generation_config.json", text);
      is_refused(why);
    }
    folder.write("generation_config.json",
                 R"({"do_sample":true,"temperature":0.5,"suppress_tokens":[3]})");
    const Json taken = json_of({"inspect", folder.path()});
    CHECK(contains(taken["generation_config"].get<std::string>(), "temperature 0.5; "));
    CHECK(contains(taken["generation_config"].get<std::string>(), ", 1 token never drawn"));
    std::filesystem::remove(folder.path() / "generation_config.json");
    CHECK(json_of({"inspect", folder.path()})["generation_config"] == "none");
    std::filesystem::create_symlink("nowhere", folder.path() / "generation_config.json");
    is_refused("generation_config.json: ");
  }

  TEST_CASE("weights that are not there take what the format takes that they would be in") {
    const auto bytes = [](const std::string& command, const char* format) {
      std::vector<std::string> arguments = {command, "qwen3-next-80b-a3b", "--lossless",
                                            "off",   "--quantize",         format};
      if (command == "fit") arguments.insert(arguments.end(), {"--memory", "300GiB"});
      return json_of(arguments)["weights_bytes"].get<double>();
    };
    for (const char* command : {"fit", "inspect"}) {
      CAPTURE(command);
      const double plain = bytes(command, "none");
      CHECK(bytes(command, "fp8") > 0.51 * plain);
      CHECK(bytes(command, "fp8") < 0.53 * plain);
      CHECK(bytes(command, "mxfp4") > 0.28 * plain);
      CHECK(bytes(command, "mxfp4") < 0.31 * plain);
    }
  }

  TEST_CASE("a folder whose weights are not there yet is planned for; FP8 counts as FP8") {
    const std::filesystem::path published = golden.parent_path() / "nemotron-fp8";
    const TemporaryFolder folder;
    for (const char* file : {"config.json", "hf_quant_config.json"}) {
      folder.write(file, read_whole_file(published / file, 1U << 20));
    }
    const Json whole = json_of({"inspect", published, "--lossless", "off"});
    const Json alone = json_of({"inspect", folder.path(), "--lossless", "off"});
    CHECK(alone["weights_bytes"] == whole["weights_bytes"]);
    CHECK(alone["missing_files"].is_null());
    CHECK(hyb_tool({"inspect", folder.path()}).exit_code == 0);
    const ToolResult checked = hyb_tool({"inspect", folder.path(), "--check"});
    CHECK(checked.exit_code == 3);
    CHECK(contains(checked.out, "defect: weights: are not there"));
    CHECK(json_of({"fit", folder.path(), "--lossless", "off"})["weights_bytes"] ==
          json_of({"fit", published, "--lossless", "off"})["weights_bytes"]);

    folder.write("model.safetensors.index.json",
                 R"({"metadata":{"total_size":3221225472},"weight_map":{"a":"model-1.safetensors",
                     "b":"model-2.safetensors"}})");
    const std::string none =
        "none of the 2 files that the index lists is there; all of them are 3.0 GiB by the index";
    CHECK(json_of({"inspect", folder.path()})["missing_files"] == none);
    CHECK(contains(hyb_tool({"fit", folder.path()}).out, "not complete: none of the 2 files"));
    const ToolResult run = hyb_tool({"run", folder.path(), "-p", "x", "--raw"});
    CHECK(run.exit_code == 3);
    CHECK(contains(run.err, "2 of the 2 files that it lists are not in the folder"));

    folder.write("model-2.safetensors", "x");
    const ToolResult partial = hyb_tool({"inspect", folder.path()});
    CHECK(partial.exit_code == 3);
    CHECK(contains(partial.out,
                   "1 of the 2 files that the index lists are missing, the first is "
                   "\"model-1.safetensors\"; all of them are 3.0 GiB"));
    CHECK(contains(partial.err, "files are missing"));
    CHECK(hyb_tool({"fit", folder.path()}).exit_code == 0);
    folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"model-1.safetensors"}})");
    CHECK(contains(hyb_tool({"inspect", folder.path()}).out, " by config.json"));
  }

  TEST_CASE("a format that hyb does not read has its size, and is refused by name") {
    const TemporaryFolder folder;
    copy_config(folder);
    folder.write("hf_quant_config.json",
                 R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"MXFP8"}})");
    for (const char* command : {"inspect", "fit"}) {
      CAPTURE(command);
      const ToolResult result = hyb_tool({command, folder.path()});
      CHECK(result.exit_code == 3);
      CHECK(contains(result.out, "by config.json, MXFP8: hyb does not read it"));
      CHECK(contains(result.out, "in bf16"));
      CHECK(contains(result.err, "modelopt MXFP8\" are not supported"));
      const ToolResult as_json = hyb_tool({command, folder.path(), "--json"});
      CHECK(as_json.exit_code == 3);
      const Json json = parse_json(as_json.out, command);
      CHECK(json["published_format"] == "MXFP8");
      CHECK(json["published_bytes_by"] == "config.json");
      CHECK(json["published_bytes"].get<double>() < 0.6 * json["bf16_bytes"].get<double>());
    }
  }

  TEST_CASE("tensors that are not used are one line, by name on demand") {
    const TemporaryFolder folder;
    copy_config(folder);
    std::string entries;
    for (int i = 0; i < 30; ++i) {
      entries += R"("extra.)" + std::to_string(i) +
                 R"(":{"dtype":"F4","shape":[1],"data_offsets":[0,0]},)";
    }
    const std::string bytes = read_whole_file(golden / "model.safetensors", 64U << 20);
    const auto length = static_cast<std::size_t>(static_cast<unsigned char>(bytes[0]) |
                                                 static_cast<unsigned char>(bytes[1]) << 8);
    folder.write("model.safetensors", safetensors_bytes("{" + entries + bytes.substr(9, length - 1),
                                                        bytes.substr(8 + length)));
    const ToolResult text = hyb_tool({"inspect", folder.path()});
    CHECK(text.exit_code == 0);
    CHECK(contains(text.out, "30 tensors are not known, and not used; -v lists them\n"));
    CHECK(!contains(text.out, "extra.1"));
    const ToolResult verbose = hyb_tool({"inspect", folder.path(), "-v"});
    CHECK(contains(verbose.out, "extra.29"));
    CHECK(!contains(verbose.out, "model.norm.weight"));
  }

  TEST_CASE("--check reads the weights and tries the tokenizer; a defect is exit 3 with its name") {
    for (const std::string& model : {std::string("demo"), golden.string()}) {
      CAPTURE(model);
      const ToolResult good = hyb_tool({"inspect", model, "--check"});
      CHECK(good.exit_code == 0);
      CHECK(contains(good.out, "no defects"));
      CHECK(!contains(good.out, "keys and values"));
      CHECK(contains(good.out, "GB/s"));
    }
    const TemporaryFolder folder;
    for (const char* file : {"config.json", "tokenizer.json"}) {
      folder.write(file, read_whole_file(golden / file, 16U << 20));
    }
    std::string bytes = read_whole_file(golden / "model.safetensors", 64U << 20);
    bytes.replace(bytes.size() - 4, 4, "\xFF\xFF\xFF\xFF");
    folder.write("model.safetensors", bytes);
    CHECK(hyb_tool({"inspect", folder.path()}).exit_code == 0);
    const ToolResult bad = hyb_tool({"inspect", folder.path(), "--check"});
    CHECK(bad.exit_code == 3);
    CHECK(contains(bad.out, ": has NaN"));
    CHECK(contains(bad.err, "the model has defects"));
    const Json json =
        parse_json(hyb_tool({"inspect", folder.path(), "--check", "--json"}).out, "o");
    CHECK(json["check"]["defects"].size() == 1);
    CHECK(json["check"]["bytes"] == json["tensors"]["bytes"]);
  }

  TEST_CASE("no such model, unknown model_type") {
    CHECK(hyb_tool({"inspect", "/nowhere"}).exit_code == 3);
    CHECK(hyb_tool({"inspect"}).exit_code == 2);
    const TemporaryFolder folder;
    folder.write("config.json", R"({"model_type":"granitemoehybird"})");
    const ToolResult result = hyb_tool({"inspect", folder.path()});
    CHECK(result.exit_code == 3);
    CHECK(contains(result.err, "granitemoehybrid"));
  }

  TEST_CASE("fit: the numbers add up, exit 4 when nothing fits") {
    CHECK(hyb_tool({"fit", "demo", "--graphs", "eager"}).exit_code == 2);  // fit runs no model
    const Json json = json_of(
        {"fit", "granite-4.0-h-350m", "--memory", "2GiB", "--parallel", "8", "--context", "4096"});
    CHECK(json["total_bytes"].get<std::int64_t>() <= json["budget_bytes"].get<std::int64_t>());
    CHECK(json["total_bytes"] ==
          json["weights_bytes"].get<std::int64_t>() + json["workspace_bytes"].get<std::int64_t>() +
              json["process_bytes"].get<std::int64_t>() + json["pool_bytes"].get<std::int64_t>());
    CHECK(json["pool_bytes"] ==
          json["superblock_bytes"].get<std::int64_t>() * json["superblocks"].get<std::int64_t>());
    CHECK(json["views"].size() == 3);
    CHECK(json["views"][2]["view"] == "rings");
    CHECK(json["sequences"] == 8);
    CHECK(json["chunk_tokens"] == 512);
    CHECK(json["length_max"] == 4096);
    CHECK(json["fits"].size() == 4);

    const ToolResult text = hyb_tool({"fit", "granite-4.0-h-350m", "--memory", "2GiB"});
    CHECK(text.exit_code == 0);
    CHECK(contains(text.out, "sequences at once"));
    CHECK(contains(text.out, "fits: 1 sequence of 32768 tokens\n"));
    CHECK_FALSE(contains(text.out, "superblock"));
    const ToolResult four =
        hyb_tool({"fit", "granite-4.0-h-350m", "--memory", "760MiB", "--parallel", "4"});
    CHECK(four.exit_code == 0);
    CHECK(contains(four.out, "fits with --context 4096: 4 sequences of 4096 tokens each\n"));
    CHECK(contains(four.out, "  yes "));
    CHECK(contains(hyb_tool({"fit", "granite-4.0-h-350m", "--memory", "2GiB", "-v"}).out,
                   "of sequences with drafts"));
    CHECK_FALSE(contains(hyb_tool({"fit", "gemma-3-1b", "--memory", "2GiB"}).out, " -\n"));
    const ToolResult none =
        hyb_tool({"fit", "granite-4.0-h-tiny", "--memory", "1GB", "--lossless", "off"});
    CHECK(none.exit_code == 4);
    CHECK(contains(none.out, "does not fit in 953.7 MiB\n"));
    CHECK(contains(none.err, "12.9 GiB"));
    CHECK(contains(none.out, "predicted"));
    CHECK(contains(
        hyb_tool({"fit", "granite-4.0-h-350m", "--quantize", "q4", "--memory", "100MB"}).err,
        "; a smaller --context makes the workspace smaller"));
    const ToolResult demo = hyb_tool({"fit", "demo", "--memory", "2GiB"});
    CHECK(contains(demo.out, "longest single sequence: 4096 tokens\n"));
    CHECK(contains(demo.out, " 4k "));
    CHECK_FALSE(contains(demo.out, " 32k "));
    CHECK_FALSE(contains(hyb_tool({"fit", "granite-4.0-h-tiny", "--memory", "16MiB"}).out,
                         "predicted"));  // no more memory is read than it may take
    CHECK(hyb_tool({"fit", "demo", "--memory", "lots"}).exit_code == 2);
    CHECK(hyb_tool({"fit", "qwen3-next-80b-a3b", "--memory", "500GiB", "--context", "300000"})
              .exit_code == 2);
  }

  TEST_CASE("fit: what each way of holding the weights needs is true, also where none fits") {
    const std::string model = "lfm2-350m";
    const auto fit = [&](const std::string& quantize, const std::string& memory) {
      return hyb_tool({"fit", model, "--quantize", quantize, "--memory", memory, "--context",
                       "4096", "--parallel", "3", "--json"});
    };
    const ToolResult none = fit("q8", "64MiB");
    CHECK(none.exit_code == 4);
    CHECK(contains(none.err, "the model does not fit"));
    const Json small = parse_json(none.out, "fit");
    CHECK(small["runs"] == false);
    REQUIRE(small["choices"].size() == 3);
    for (const Json& choice : small["choices"]) {
      CAPTURE(choice.dump());
      CHECK(choice["fits"] == false);
      CHECK(choice["single_length_max"] == 0);
      CHECK(choice["predicted_tokens_per_s"].get<double>() > 0);
      const auto needs = choice["needs_bytes"].get<std::size_t>();
      for (const bool is_enough : {true, false}) {
        const std::size_t bytes =
            is_enough ? needs : choice["weights_bytes"].get<std::size_t>() + (1 << 20);
        const ToolResult result = fit(choice["quantize"], std::to_string(bytes) + "B");
        const Json json = parse_json(result.out, "fit");
        const bool fits =
            json["runs"] == true && json["sequences"] == 3 && json["length_max"] == 4096;
        CHECK(fits == is_enough);
        CHECK(json["fits_as_asked"] == fits);
        CHECK(result.exit_code == (fits ? 0 : 4));
        for (const Json& other : json["choices"]) {
          if (other["quantize"] == choice["quantize"]) CHECK(other["fits"] == is_enough);
        }
      }
    }
    const ToolResult many = hyb_tool(
        {"fit", "granite-4.0-h-350m", "--memory", "2GiB", "-c", "200000", "--parallel", "200"});
    CHECK(many.exit_code == 4);
    CHECK(contains(many.out, "does not fit: 200 sequences of 200000 tokens each; what fits: "));
    CHECK(contains(many.out, "longest single sequence: 200000 tokens\n"));
  }

  TEST_CASE("doctor says what there is, wherever it runs") {
    const Json json = json_of({"doctor"});
    CHECK(json["threads"].get<int>() >= 1);
    CHECK(json["cuda"]["in_this_build"] == kernels::has_cuda);
    CHECK(json["links"]["sockets"].get<int>() >= 0);
    const ToolResult bare =
        hyb_tool({"doctor"}, {{"HOME", ""}, {"XDG_CACHE_HOME", ""}, {"TERM", ""}});
    CHECK(bare.exit_code == 0);
    CHECK(contains(bare.out, "none: HF_HUB_CACHE"));
    CHECK(bare.err == "");
  }

  TEST_CASE("a limit on addresses is found, and bounds what --memory auto is") {
    const ToolResult limited = run_shell("ulimit -v 4000000; $HYB doctor --json");
    const Json limits = parse_json(limited.out, "stdout")["memory_limits"];
    bool is_named = false;
    for (const Json& limit : limits) {
      is_named |= limit["source"] == "ulimit -v" && limit["bytes"] == 4'096'000'000;
    }
    CHECK(is_named);
    const ToolResult run = run_shell("ulimit -v 4000000; $HYB run -n 2 -p Hello");
    CHECK(run.exit_code == 0);
    CHECK(run.err == "");
    const ToolResult fit = run_shell("ulimit -v 4000000; $HYB fit granite-4.0-h-tiny");
    CHECK(fit.exit_code == 4);
    CHECK(contains(fit.err, "; ulimit -v limits this process to 3.8 GiB, of which"));
  }

  TEST_CASE("a closed stdout is no error, a full one is") {
    CHECK(run_shell("{ $HYB inspect demo --tensors; echo $? >&2; } | head -c 1").err == "0\n");
    CHECK(run_shell("$HYB fit demo > /dev/full").exit_code == 1);
  }
}

}  // namespace surface_inspect_test
