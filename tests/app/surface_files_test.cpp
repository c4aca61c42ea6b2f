// Model folders as they are published, which are not always as one would write them.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/io/file.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_files_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

/// A fixture whose head is the embedding.
struct Folder {
  Folder() {
    std::filesystem::copy(HYB_TESTS_DIR "/golden/granite-dense-nope", folder.path());
    // Copies of read-only files would be read-only.
    for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
      std::filesystem::permissions(folder.path() / name, std::filesystem::perms::owner_write,
                                   std::filesystem::perm_options::add);
    }
  }

  std::string text(const char* file) const {
    return read_whole_file(folder.path() / file, 16U << 20);
  }
  Json json(const char* file) const { return parse_json(text(file), file); }
  void write(const char* file, const Json& json) const { folder.write(file, to_text(json)); }

  /// config.json as the text part of a larger model's.
  void wrap(bool own_tie, bool outer_tie) const {
    Json inner = json("config.json");
    inner["tie_word_embeddings"] = own_tie;
    write("config.json", {{"model_type", inner["model_type"]},
                          {"text_config", inner},
                          {"tie_word_embeddings", outer_tie}});
  }

  /// The embedding is stored under the head's name.
  void store_head_alone() const {
    std::string bytes = text("model.safetensors");
    const std::string before = R"("model.embed_tokens.weight":)";
    std::string after = R"("lm_head.weight":)";
    after.resize(before.size(), ' ');
    bytes.replace(bytes.find(before), before.size(), after);
    folder.write("model.safetensors", bytes);
  }

  ToolResult run(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"run", folder.path().string(), "-n", "6", "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool({.arguments = std::move(arguments)});
  }

  /// Ids of the answers to two prompts, four each.
  std::vector<int> drawn(const std::vector<std::string>& more = {}) const {
    std::string input;
    for (const char* prompt : {"Hello", "abcabcabcabc"}) {
      input += std::string(R"({"custom_id":")") + prompt + R"(","body":{"prompt":")" + prompt +
               R"(","max_tokens":12,"n":4,"temperature":1,"seed":3,"logprobs":0,)" +
               R"("ignore_eos":true},"url":"/v1/completions"})" + "\n";
    }
    std::vector<std::string> arguments = {
        "batch", folder.path().string(), "-", "-o", "-", "--ordered", "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ToolResult result = run_tool({.arguments = std::move(arguments), .input = input});
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    std::vector<int> ids;
    for (std::size_t at = 0; at < result.out.size();) {
      const std::size_t end = result.out.find('\n', at);
      const Json line = parse_json(result.out.substr(at, end - at), "out");
      for (const Json& choice : line["response"]["body"]["choices"]) {
        for (const Json& token : choice["logprobs"]["content"]) ids.push_back(token["id"]);
      }
      at = end + 1;
    }
    return ids;
  }

  TemporaryFolder folder;
};

}  // namespace

TEST_SUITE("app/surface_files") {
  TEST_CASE("suppressed tokens are never drawn: with choices, drafts, lanes or without") {
    const Folder model;
    const std::vector<int> free = model.drawn();
    REQUIRE(free.size() == 96);
    std::set<int> banned(free.begin(), free.end());
    model.write("generation_config.json", {{"eos_token_id", 261}, {"suppress_tokens", banned}});
    const std::vector<int> left = model.drawn({"--spec", "off"});
    CHECK(left.size() == 96);
    CHECK(std::ranges::none_of(left, [&](int id) { return banned.contains(id); }));
    CHECK(model.drawn({"--spec", "ngram"}) == left);
    CHECK(model.drawn({"--disaggregate", "-t", "2"}) == left);
  }

  TEST_CASE("what generation_config.json asks for and hyb has not is an error of the model") {
    const Folder model;
    model.write("generation_config.json", {{"eos_token_id", 261}, {"no_repeat_ngram_size", 3}});
    const ToolResult result = model.run({"-p", "Hello"});
    CHECK(result.exit_code == 3);
    CHECK(contains(result.err, "generation_config.json: no_repeat_ngram_size 3 is not supported"));
  }

  TEST_CASE("ids past the embedding matter to the prompts that hold one, and to no other") {
    const Folder model;
    const std::string answer = model.run({"-p", "Hello"}).out;
    Json tokenizer = model.json("tokenizer.json");
    const int rows = model.json("config.json")["vocab_size"];
    Json token = {{"id", rows + 1}, {"content", "<image>"}};
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) token[flag] = false;
    token["special"] = true;
    tokenizer["added_tokens"].push_back(token);
    model.write("tokenizer.json", tokenizer);
    const ToolResult result = model.run({"-p", "Hello"});
    CHECK(result.exit_code == 0);
    CHECK(result.out == answer);
    const ToolResult refused = model.run({"--raw", "--allow-special", "-p", "a<image>b"});
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, "the prompt holds token " + std::to_string(rows + 1) +
                                    ", but the model knows tokens 0 to " +
                                    std::to_string(rows - 1)));
  }

  TEST_CASE("where two flags say different things of the head, the files decide") {
    const std::string answer = Folder().run({"-p", "Hello"}).out;
    for (const bool own_tie : {false, true}) {
      for (const bool stores_head : {false, true}) {
        CAPTURE(own_tie);
        CAPTURE(stores_head);
        const Folder model;
        model.wrap(own_tie, !own_tie);
        if (stores_head) model.store_head_alone();
        const ToolResult result = model.run({"-p", "Hello"});
        CHECK(result.exit_code == 0);
        CHECK(result.out == answer);
      }
    }
  }

  TEST_CASE("of an embedding and a head that are tied either may be stored") {
    const Folder model;
    const std::string answer = model.run({"-p", "Hello"}).out;
    model.store_head_alone();
    const ToolResult result = model.run({"-p", "Hello"});
    CHECK(result.exit_code == 0);
    CHECK(result.out == answer);
  }
}

}  // namespace surface_files_test
