#include "app/model_texts.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "app/environment.h"
#include "core/io/file.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

/// The demo's folder without weights, in which one file is replaced.
class TextFolder {
 public:
  TextFolder() {
    const std::filesystem::path demo =
        std::filesystem::path(HYB_TESTS_DIR).parent_path() / "models/demo";
    for (const char* name :
         {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      folder_.write(name, read_whole_file(demo / name, 16U << 20));
    }
  }

  void write(const std::string& name, const std::string& text) { folder_.write(name, text); }
  std::filesystem::path path() const { return folder_.path(); }

  ModelTexts read() const { return read_texts(ModelSource::find(path().string(), Environment{})); }
  std::string error() const {
    return model_error([&] { read(); });
  }

 private:
  TemporaryFolder folder_;
};

std::vector<int> stop_ids(const TextFolder& folder) {
  std::vector<int> ids;
  for (const TokenId token : folder.read().stop_tokens) ids.push_back(index(token));
  return ids;
}

}  // namespace

TEST_SUITE("app/model_texts") {
  TEST_CASE("end-of-answer tokens come from all three files, each once") {
    TextFolder folder;
    CHECK(stop_ids(folder) == std::vector<int>{0});
    folder.write("generation_config.json", R"({"eos_token_id": [7, 0, 7]})");
    CHECK(stop_ids(folder) == std::vector<int>{7, 0});
  }

  TEST_CASE("a model of text and pictures has its end-of-answer tokens in text_config") {
    TextFolder folder;
    const Json inner = parse_json(read_whole_file(folder.path() / "config.json", 1 << 20), "c");
    Json outer = {{"model_type", inner["model_type"]}, {"text_config", inner}};
    outer["text_config"]["eos_token_id"] = {9, 5};
    folder.write("config.json", to_text(outer));
    CHECK(stop_ids(folder) == std::vector<int>{9, 5, 0});
    outer["eos_token_id"] = 4;
    folder.write("config.json", to_text(outer));
    folder.write("generation_config.json", R"({"eos_token_id": 5})");
    CHECK(stop_ids(folder) == std::vector<int>{5, 4, 9, 0});
  }

  TEST_CASE("an end-of-answer token outside the vocabulary never wraps around to another one") {
    TextFolder folder;
    // 4294967303 is 7 in its lower 32 bits.
    folder.write("generation_config.json", R"({"eos_token_id": [-1, 1200, 4294967303, 1199]})");
    CHECK(stop_ids(folder) == std::vector<int>{1199, 0});
    for (const char* wrong : {"\"7\"", "1.5", "true", "[[7]]", "{}"}) {
      CAPTURE(wrong);
      folder.write("generation_config.json", std::string(R"({"eos_token_id": )") + wrong + "}");
      CHECK(contains(folder.error(), "generation_config.json: eos_token_id must be a whole"));
    }
    folder.write("generation_config.json", R"({"eos_token_id": null})");
    CHECK(stop_ids(folder) == std::vector<int>{0});
  }

  TEST_CASE("a link to a file that was never downloaded is an error, not an absent file") {
    for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                             "chat_template.jinja"}) {
      CAPTURE(name);
      const TextFolder folder;
      std::filesystem::remove(folder.path() / name);
      CHECK(folder.error().empty());
      std::filesystem::create_symlink("../blobs/123", folder.path() / name);
      CHECK(contains(folder.error(), std::string(name) + ": is a link to "));
    }
  }
}
