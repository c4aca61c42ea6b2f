#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/gguf_bytes.h"

namespace surface_list_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const std::string commit = "0123456789abcdef0123456789abcdef01234567";

/// A Hugging Face cache.
struct Hub {
  /// A fixture as a model of the cache, on a branch; `skipped` was never downloaded.
  void add(const std::string& name, const std::string& fixture, const std::string& skipped = "",
           const std::string& branch = "main") const {
    const std::filesystem::path repository = "models--" + name;
    folder.write(repository / "refs" / branch, commit);
    for (const auto& entry :
         std::filesystem::directory_iterator(HYB_TESTS_DIR "/golden/" + fixture)) {
      const auto file = entry.path().filename();
      if (file == skipped) continue;
      folder.write(repository / "snapshots" / commit / file, content(entry.path()));
    }
  }

  ToolResult list(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"list"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool({.arguments = std::move(arguments),
                     .environment = {{"HF_HUB_CACHE", folder.path().string()},
                                     {"HOME", folder.path().string()}}});
  }

  TemporaryFolder folder;
};

}  // namespace

TEST_SUITE("app/surface_list") {
  TEST_CASE("models of the cache with their sizes and what is missing, then presets") {
    const Hub hub;
    hub.add("org--whole", "granite-dense-nope");
    hub.add("org--shards", "granite-odd", "model-00002-of-00002.safetensors");
    hub.add("org--mute", "granite-dense-nope", "tokenizer.json");
    hub.add("org--branch", "granite-dense-nope", "model.safetensors", "v1");
    hub.folder.write("models--org--other/refs/main", commit);
    hub.folder.write("models--org--other/snapshots/" + commit + "/config.json",
                     R"({"model_type":"martian","architectures":["Martian"]})");
    hub.folder.write("models--org--gguf/refs/main", commit);
    const std::filesystem::path ggufs = "models--org--gguf/snapshots/" + commit;
    hub.folder.write(ggufs / "m-Q4_0.gguf", "GGUF");
    hub.folder.write(ggufs / "m-Q8_0.gguf", GgufBytes()
                                                .begin(2, 1)
                                                .key("general.architecture", "martian")
                                                .tensor("blk.0.a", {32}, 8, 0)
                                                .tensor("b", {2}, 0, 64)
                                                .pad()
                                                .raw(std::string(72, 'x'))
                                                .bytes());
    hub.folder.write("datasets--org--data/refs/main", commit);
    // Other stores have these names as well.
    hub.folder.write(".lmstudio/models/org/whole/w-Q8_0.gguf", "GGUF");
    hub.folder.write("models--org--bare/refs/main", commit);
    hub.folder.write("models--org--bare/snapshots/" + commit + "/config.json", "{}");
    hub.folder.write(".lmstudio/models/org/bare/b-Q8_0.gguf", "GGUF");

    const ToolResult result = hub.list({"--json"});
    REQUIRE(result.exit_code == 0);
    CHECK(result.err == "");
    const Json json = parse_json(result.out, "stdout");
    CHECK(json["cache"] == hub.folder.path().string());
    const auto find = [&](const std::string& name) {
      for (const Json& model : json["models"]) {
        if (model["name"] == name) return model;
      }
      return Json(Json::object());
    };
    CHECK(json["models"].size() == 10);
    CHECK(find("org/whole:Q8_0")["complete"] == false);
    CHECK(contains(find("org/bare")["trouble"], "the version of 4 bytes"));  // what it runs
    CHECK(find("demo")["complete"] == true);
    const Json whole = find("org/whole");
    CHECK(whole["complete"] == true);
    CHECK(whole["model_type"] == "granitemoehybrid");
    CHECK(whole["bytes"] ==
          std::filesystem::file_size(HYB_TESTS_DIR "/golden/granite-dense-nope/model.safetensors"));
    const auto trouble = [&](const std::string& name) {
      const Json model = find(name);
      CHECK(model["complete"] == false);
      return model.value("trouble", "");
    };
    CHECK(
        contains(trouble("org/shards"), "1 of 2 shards missing or not whole, such as model-0000"));
    CHECK(trouble("org/mute") == "no tokenizer.json");
    CHECK(trouble("org/branch@v1") == "no weights");
    CHECK(trouble("org/other") == "model_type is not supported");
    CHECK(contains(trouble("org/gguf:Q4_0"), "the version of 4 bytes goes past the end"));
    CHECK(contains(trouble("org/gguf:Q8_0"), "the architecture \"martian\" is not read"));
    CHECK(find("org/gguf:Q8_0")["bytes"] == 42);
    CHECK(find("org/gguf:Q8_0")["types"] == "Q8_0, F32");
    CHECK(json["presets"].size() >= 10);
    CHECK(json["presets"][0]["parameters"] > 1'000'000);
    for (const Json& preset : json["presets"]) {
      const double bits = 8 * preset["bytes"].get<double>() / preset["parameters"].get<double>();
      const bool is_mxfp4 = contains(preset["name"].get<std::string>(), "gpt-oss");
      CAPTURE(preset["name"]);
      CHECK(preset["types"] == (is_mxfp4 ? "MXFP4" : "BF16"));
      CHECK(bits > (is_mxfp4 ? 4 : 15));
      CHECK(bits < (is_mxfp4 ? 6 : 18));
      CHECK(preset["bytes"] > preset["q4_bytes"]);
    }
    CHECK(json["memory_bytes"] > 0);

    const ToolResult table = hub.list();
    CHECK(table.exit_code == 0);
    CHECK(contains(table.out, "org/whole"));
    CHECK(contains(table.out, "complete"));
    CHECK(contains(table.out, "can't run\n"));  // short in the table, and why under it
    CHECK(contains(table.out, "\norg/mute: no tokenizer.json\n"));
    CHECK(contains(table.out, "Hugging Face cache: " + hub.folder.path().string()));
    CHECK(contains(table.out, "granite-4.0-h-350m"));
  }

  TEST_CASE("a name that is nowhere: what is near, how to fetch it, and no more") {
    const Hub hub;
    hub.add("org--whole", "granite-dense-nope");
    const auto error = [&](const std::string& name, const std::vector<std::string>& more = {}) {
      std::vector<std::string> arguments = {"inspect", name};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const ToolResult result = run_tool({.arguments = std::move(arguments),
                                          .environment = {{"HF_HUB_CACHE", hub.folder.path()},
                                                          {"OLLAMA_MODELS", "/o"},
                                                          {"HOME", hub.folder.path()}}});
      CHECK(result.exit_code == 3);
      return result.err;
    };
    CHECK(error("qwen3.5-0.9b") ==
          "hyb: error: model \"qwen3.5-0.9b\": not found; the nearest are qwen3.5-0.8b, "
          "qwen3-0.6b, qwen3.5-27b; hyb list shows what is there\n");
    CHECK(error("org/while@v2") ==
          "hyb: error: model \"org/while@v2\": not found; the nearest is org/whole; hf download "
          "org/while fetches it; hyb list shows what is there\n");
    CHECK(error("ibm-granite/Granite-4.0-H-350m") ==
          "hyb: error: model \"ibm-granite/Granite-4.0-H-350m\": not found; hf download "
          "ibm-granite/Granite-4.0-H-350m fetches it; hyb fit granite-4.0-h-350m shows whether it "
          "would fit; hyb list shows what is there\n");
    for (const std::string name : {"granite", "Granite4-H:Q4_K_M", "hf.co/ibm/granite-tiny:Q8_0"}) {
      CAPTURE(name);
      CHECK(contains(error(name), "; the nearest are granite-"));
    }
    const TemporaryFolder here;
    here.write("me/demo/config.json", "{}");
    here.write("me/other/notes.txt", "");
    CHECK(
        contains(run_tool({.arguments = {"-c", "cd " + here.path().string() + "; $HYB fit me/dem"},
                           .environment = {{"HYB", HYB_BINARY}, {"HOME", here.path()}},
                           .program = "/bin/sh"})
                     .err,
                 "not found; the nearest is me/demo; "));
    CHECK(contains(error("hf.co/org/z:Q8_0"), "; hf download org/z fetches it"));
    const std::string looked = error("qwen3.5-0.9b", {"--log-level", "debug"});
    CHECK(contains(looked, (hub.folder.path() / ".lmstudio/models").string()));
    CHECK(contains(looked, "/o/manifests/registry.ollama.ai/library/qwen3.5-0.9b"));
    const std::string path = error("/tmp/nowhere/x.gguf");
    CHECK(contains(path, "no such file or folder"));
    CHECK_FALSE(contains(path, "hyb list"));
  }

  TEST_CASE("a model that is listed as complete runs under that name") {
    const Hub hub;
    hub.add("org--whole", "granite-dense-nope");
    const ToolResult run =
        run_tool({.arguments = {"run", "org/whole", "Hello", "-n", "2"},
                  .environment = {{"HF_HUB_CACHE", hub.folder.path().string()}}});
    CHECK(run.exit_code == 0);
  }
}

}  // namespace surface_list_test
