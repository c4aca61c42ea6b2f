#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

#include "core/base/error.h"
#include "core/text/chat_template.h"

using namespace hyb;

namespace {

/// A model folder that is gone when the test ends.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "hyb-template-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string error_of(const Folder& folder, std::string_view name, ErrorKind kind) {
  try {
    find_chat_template(folder.path(), name);
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("core/text/find_chat_template") {
  TEST_CASE("a folder without one has none") {
    const Folder folder;
    CHECK(find_chat_template(folder.path()) == std::nullopt);
    CHECK(find_chat_template(folder.path(), "tool_use") == std::nullopt);
    folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "x": Infinity})");
    CHECK(find_chat_template(folder.path()) == std::nullopt);
  }

  TEST_CASE("the file wins over the string in tokenizer_config.json") {
    const Folder folder;
    folder.write("tokenizer_config.json", R"({"chat_template": "from json"})");
    CHECK(find_chat_template(folder.path()) == "from json");
    CHECK(find_chat_template(folder.path(), "tool_use") == "from json");
    folder.write("chat_template.jinja", "from file\n");
    CHECK(find_chat_template(folder.path()) == "from file\n");
  }

  TEST_CASE("named templates") {
    const Folder folder;
    folder.write("tokenizer_config.json", R"({"chat_template": [
        {"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
    folder.write("additional_chat_templates/rag.jinja", "r");
    CHECK(find_chat_template(folder.path()) == "d");
    CHECK(find_chat_template(folder.path(), "tool_use") == "t");
    CHECK(find_chat_template(folder.path(), "rag") == "r");
    CHECK(error_of(folder, "nope", ErrorKind::usage).find("rag, default, tool_use") !=
          std::string::npos);
  }

  TEST_CASE("damaged folders are errors that name the file") {
    const Folder folder;
    folder.write("tokenizer_config.json", R"({"chat_template": 5})");
    CHECK(error_of(folder, "default", ErrorKind::model).find("tokenizer_config.json") !=
          std::string::npos);
    folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "x"}]})");
    CHECK(error_of(folder, "default", ErrorKind::model) != "");
    folder.write("tokenizer_config.json", "{");
    CHECK(error_of(folder, "default", ErrorKind::model) != "");
    folder.write("chat_template.jinja/inside", "");
    CHECK(error_of(folder, "default", ErrorKind::model).find("regular file") != std::string::npos);
    std::filesystem::remove_all(folder.path() / "chat_template.jinja");
    folder.write("chat_template.jinja", "");
    std::filesystem::resize_file(folder.path() / "chat_template.jinja", (16u << 20) + 1);
    CHECK(error_of(folder, "default", ErrorKind::model).find("at most 16777216") !=
          std::string::npos);
  }
}
