#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/tiny_gguf.h"

namespace surface_gguf_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

/// A home where ollama has a model.
struct GgufHome {
  GgufHome() {
    const std::string digest(64, 'd');
    folder.write(".ollama/models/blobs/sha256-" + digest, tiny_gguf(1));
    folder.write(".ollama/models/manifests/registry.ollama.ai/library/tiny/1m",
                 R"({"layers":[{"mediaType":"application/vnd.ollama.image.model",)"
                 R"("digest":"sha256:)" +
                     digest + "\"}]}");
  }

  ToolResult hyb(std::vector<std::string> arguments, const std::string& input = "") const {
    return run_tool({.arguments = std::move(arguments),
                     .input = input,
                     .environment = {{"HOME", folder.path().string()},
                                     {"XDG_CACHE_HOME", ""},
                                     {"OLLAMA_MODELS", ""},
                                     {"XDG_DATA_HOME", folder.path().string()}}});
  }

  TemporaryFolder folder;
  std::string file = folder.write("m/tiny-F32.gguf", tiny_gguf(1)).string();
};

}  // namespace

TEST_SUITE("app/surface_gguf") {
  TEST_CASE("a file, its folder and ollama's name for it are the same model") {
    const GgufHome home;
    const auto run = [&](const std::string& model) {
      return home.hyb({"run", model, "hello", "-n", "6", "--temp", "0"});
    };
    const ToolResult by_file = run(home.file);
    CHECK(by_file.exit_code == 0);
    CHECK_FALSE(by_file.out.empty());
    CHECK_FALSE(contains(by_file.err, " is /"));
    const std::string folder = std::filesystem::path(home.file).parent_path().string();
    const ToolResult by_folder = run(folder), by_name = run("tiny:1m");
    CHECK(by_folder.out == by_file.out);
    CHECK(contains(by_folder.err, "info: " + folder + " is " + home.file));
    CHECK(by_name.out == by_file.out);
    CHECK(contains(by_name.err, "info: tiny:1m is " + home.folder.path().string() +
                                    "/.ollama/models/blobs/sha256-ddd"));
    const ToolResult unknown = run("tiny:2m");
    CHECK(unknown.exit_code == 3);
    CHECK(contains(unknown.err, "\"tiny:2m\": not found; the nearest is tiny:1m; "));
  }

  TEST_CASE("commands that look at a model") {
    const GgufHome home;
    const ToolResult inspect = home.hyb({"inspect", home.file});
    CHECK(inspect.exit_code == 0);
    CHECK(contains(inspect.out, "11 F32"));
    CHECK(contains(inspect.out, "llama, tokenizer gpt2 gpt-2"));
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"fit", home.file},
          {"verify", home.file, "--length", "40", "-n", "2", "--prompts", "2"},
          {"tokenize", home.file, "ab"},
          {"render", home.file, "ab"}}) {
      CAPTURE(command.front());
      CHECK(home.hyb(command).exit_code == 0);
    }
    const auto choices = [&](const std::string& file) {
      return parse_json(home.hyb({"fit", file, "--json"}).out, "fit")["choices"];
    };
    CHECK(choices(home.file).size() == 3);
    const Json packed =
        choices(home.folder.write("p/p.gguf", tiny_gguf(1, {}, 0, {}, true)).string());
    for (const Json& choice : packed) {
      CHECK(choice["weights"] == "Q8_0");
      const bool is_plain = choice["quantize"] == "none";
      CHECK((is_plain || choice["weights_bytes"] < packed[0]["weights_bytes"]));
    }
    const Json list = parse_json(home.hyb({"list", "--json"}).out, "list");
    bool is_listed = false;
    for (const Json& model : list["models"]) {
      if (model["name"] != "tiny:1m") continue;
      is_listed = true;
      CHECK(model["model_type"] == "llama");
      CHECK(model["types"] == "F32");
      CHECK(model["complete"] == true);
    }
    CHECK(is_listed);
  }

  TEST_CASE("a session of another file is not taken for its own, and the file drafts for itself") {
    const GgufHome home;
    const auto chat = [&](const std::string& model, const std::string& input,
                          const std::vector<std::string>& more) {
      std::vector<std::string> arguments = {"chat", model, "-n", "6", "--temp", "0"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      return home.hyb(arguments, input);
    };
    const std::string whole = chat(home.file, "a\nb\n", {}).out;
    const std::string begin = chat(home.file, "a\n", {"--session", "s"}).out;
    const ToolResult rest = chat(home.file, "b\n", {"--session", "s"});
    CHECK(begin + rest.out == whole);
    CHECK_FALSE(contains(rest.err, " again"));
    // The same keys, sizes and name; other weights.
    const std::string other = home.folder.write("n/tiny-F32.gguf", tiny_gguf(2)).string();
    chat(home.file, "a\n", {"--session", "t"});
    CHECK(contains(chat(other, "b\n", {"--session", "t"}).err, "prefilled again"));
    // The same weights, another tokenizer: ids of the one say something else to the other.
    const std::string tokens =
        home.folder.write("o/tiny-F32.gguf", tiny_gguf(1, "tokenizer.ggml.eos_token_id", 256))
            .string();
    chat(home.file, "a\n", {"--session", "u"});
    CHECK(contains(chat(tokens, "b\n", {"--session", "u"}).err, "texts are encoded again"));
    const ToolResult drafted =
        chat(home.file, "a\nb\n", {"--spec", "draft", "--draft-model", "tiny:1m"});
    CHECK(drafted.exit_code == 0);
    CHECK(drafted.err.find("tiny:1m is ") == drafted.err.rfind("tiny:1m is "));
    CHECK(contains(drafted.err, "tiny:1m is "));
    CHECK(drafted.out == whole);
  }

  TEST_CASE("a file of which only the header counts, with a tensor that is not needed nor read") {
    const GgufHome home;
    const auto process_bytes = [&](const std::string& file) {
      return parse_json(home.hyb({"fit", file, "--json"}).out, "fit")["process_bytes"]
          .get<std::int64_t>();
    };
    const std::int64_t before = process_bytes(home.file);
    CHECK(before > 24 << 20);
    const std::string file =
        home.folder.write("x/x.gguf", tiny_gguf(1, {}, 0, "v.extra.weight")).string();
    std::filesystem::resize_file(file, 64 << 20);
    CHECK(process_bytes(file) < before + (1 << 20));
    const std::string questions = home.folder.write("q.txt", "a\nb\n").string();
    const ToolResult batch = home.hyb(
        {"batch", file, questions, "-o", (home.folder.path() / "a.jsonl").string(), "-n", "4"});
    CHECK(batch.exit_code == 0);
    CHECK_FALSE(contains(batch.err, "broken rule"));
  }

  TEST_CASE("a batch goes on with the same file by another name, and names changed metadata") {
    const GgufHome home;
    const std::string in = home.folder.write("in", "ab\nba\n").string(),
                      out = (home.folder.path() / "out").string();
    const auto batch = [&](const std::string& model) {
      return home.hyb({"batch", model, in, "-o", out, "-n", "2", "--threads", "1"});
    };
    REQUIRE(batch(home.file).exit_code == 0);
    const ToolResult same = batch(home.folder.write("other.gguf", tiny_gguf(1)).string());
    CHECK(same.exit_code == 0);
    CHECK(contains(same.err, "nothing left to do"));
    const std::string bytes = tiny_gguf(1, "tokenizer.ggml.eos_token_id", 65);
    const ToolResult changed = batch(home.folder.write("m/tiny-F32.gguf", bytes).string());
    CHECK(changed.exit_code == 2);
    CHECK(contains(changed.err, "the model's GGUF metadata was changed"));
    CHECK_FALSE(contains(changed.err, "weights were changed"));
  }

  TEST_CASE("files that are no language model are refused by name, with what to do") {
    const TemporaryFolder folder;
    const auto refusal = [&](const std::string& architecture, const std::string& type,
                             const std::string& tensor) {
      GgufBytes file;
      file.begin(tensor.empty() ? 0 : 1, 2)
          .key("general.architecture", architecture)
          .key("general.type", type);
      if (!tensor.empty()) file.tensor(tensor, {4}, 0, 0).pad().raw(std::string(16, 'x'));
      const auto path = folder.write("x.gguf", file.bytes());
      const ToolResult result = run_tool({.arguments = {"run", path.string(), "hi"}});
      CHECK(result.exit_code == 3);
      return result.err;
    };
    const std::string layer = "blk.0.attn_q.weight";
    CHECK(contains(refusal("clip", "mmproj", "v.blk.0.a"), "the vision or sound part of a model"));
    CHECK(contains(refusal("clip", "model", "v.blk.0.a"), "give the file of the text model"));
    CHECK(contains(refusal("llama", "adapter", layer), "an adapter (LoRA), which is not read"));
    CHECK(contains(refusal("llama", "imatrix", layer), "an importance matrix"));
    CHECK(contains(refusal("llama", "model", ""), "a vocabulary and no weights"));
    for (const char* drafts : {"eagle3", "dflash", "gemma4-assistant"}) {
      CHECK(contains(refusal(drafts, "model", layer), "it only drafts for another model"));
    }
    CHECK(contains(refusal("qwen35", "model", "blk.24.nextn.eh_proj.weight"), "--spec ngram"));
    CHECK(contains(refusal("martian", "model", layer), "\"martian\" is not read"));
  }

  TEST_CASE("what is wrong with a number is said with the key that the file has") {
    const GgufHome home;
    const auto error = [&](const std::string& key, std::uint32_t value) {
      const auto file = home.folder.write("bad.gguf", tiny_gguf(1, key, value));
      const ToolResult result = home.hyb({"run", file.string(), "hi"});
      CHECK(result.exit_code == 3);
      return result.err;
    };
    CHECK(
        contains(error("llama.block_count", 0), "\"llama.block_count\": must be 1 to 4096, is 0"));
    CHECK(contains(error("llama.feed_forward_length", 0),
                   "bad.gguf: key llama.feed_forward_length (intermediate_size): must be a whole"));
    CHECK(contains(error("llama.attention.head_count_kv", 3),
                   "key llama.attention.head_count (num_attention_heads): 2 is not a multiple"));
    CHECK(contains(error("llama.block_count", 2), "9 tensors that "));
    CHECK(contains(error("llama.feed_forward_length", 96), "the file's keys ask for [96, 32]"));
    CHECK(contains(error("tokenizer.ggml.eos_token_id", 999), "key \"tokenizer.ggml.eos_tok"));
    const ToolResult check = home.hyb({"inspect", "--check", (home.folder.path() / "bad.gguf")});
    CHECK(contains(check.out, "defect: the tokenizer: "));
    const ToolResult draft = home.hyb({"run", home.file, "hi", "--spec", "mtp"});
    CHECK(contains(draft.err, "has no draft layer (MTP), or none that hyb runs"));
    CHECK_FALSE(contains(draft.err, "config.json"));
  }
}

}  // namespace surface_gguf_test
