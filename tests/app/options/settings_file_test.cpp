#include "app/options/settings_file.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

namespace settings_file_test {

using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/settings_file") {
  TEST_CASE("settings are read as TOML has them") {
    const std::vector<FileSetting> all = parse_settings(
        "# a comment\r\n"
        "model = \"org/na#me\" # after it\n"
        "top_k=40\n"
        "  'think' = true\n"
        "[ \"org/model-4.0\" ]\n"
        "system = \"\"\"\r\nFirst \"line\",\n\tsecond\\n\"\"\"\n"
        "stop = [\"a, b\", 'c\\d', # one\n  \"\\u00e9\\\"\",\n]\n"
        "[*qwen3*]\n"
        "temperature = 1e-1",
        "f");
    REQUIRE(all.size() == 6);
    CHECK(all[0].key == "model");
    CHECK(all[0].values == std::vector<std::string>{"org/na#me"});
    CHECK(all[0].section.empty());
    CHECK(all[1].key == "top-k");
    CHECK(all[1].values == std::vector<std::string>{"40"});
    CHECK(all[2].is_switch);
    CHECK(all[2].line == 4);
    CHECK(all[3].section == "org/model-4.0");
    CHECK(all[3].values == std::vector<std::string>{"First \"line\",\n\tsecond\n"});
    CHECK(all[4].values == std::vector<std::string>{"a, b", "c\\d", "\u00e9\""});
    CHECK(all[4].line == 9);
    CHECK(all[5].section == "*qwen3*");
    CHECK(all[5].values == std::vector<std::string>{"1e-1"});
    CHECK(all[5].line == 13);
    CHECK(parse_settings("\n# nothing\n\n", "f").empty());
  }

  TEST_CASE("what is malformed is named with its line") {
    const auto trouble = [](const std::string& text) {
      return model_error([&] { parse_settings(text, "f.toml"); });
    };
    CHECK(trouble("\nmodel = demo\n") == "f.toml:2: model: a text goes into quotes");
    CHECK(trouble("model = \"demo\n") == "f.toml:1: a quote is not closed");
    CHECK(trouble("model = \"\"\"demo\n\"") == "f.toml:2: a quote is not closed");
    CHECK(trouble("model\n") == "f.toml:1: a setting is KEY = VALUE");
    CHECK(trouble("model =") == "f.toml:1: model: a text goes into quotes");
    CHECK(trouble("[a\nb = 1") == "f.toml:1: a section is [NAME]");
    CHECK(trouble("[[a]]\n") ==
          "f.toml:1: after a value or a section the line ends, or has a comment");
    CHECK(trouble("a = 1 2\n") == "f.toml:1: a: a text goes into quotes");
    CHECK(trouble("a = \"1\" 2\n") ==
          "f.toml:1: after a value or a section the line ends, or has a comment");
    CHECK(trouble("a = [1, 2\nb = 3\n").starts_with("f.toml:2: a: "));
    CHECK(trouble("a = [1 2]\n") == "f.toml:1: a: a text goes into quotes");
    CHECK(trouble("a = [\"1\" \"2\"]\n") == "f.toml:1: a: a comma is missing");
    CHECK(trouble("a = \"\\x\"\n").starts_with("f.toml:1: a backslash in a text is none of"));
    CHECK(trouble("top-k = 1\ntop_k = 2\n") == "f.toml:2: top-k is in line 1 already");
    CHECK(trouble("a = 1\n[b]\na = 1\n").empty());
  }

  TEST_CASE("a section is for models of its name") {
    for (const char* model : {"org/name-1.0", "org/name-1.0@v2", "org/name-1.0:Q4_K_M",
                              "/models/name-1.0/", "name-1.0", "./name-1.0"}) {
      CAPTURE(model);
      CHECK(is_section_for("name-1.0", model));
      CHECK(is_section_for("name*", model));
      CHECK_FALSE(is_section_for("name", model));
    }
    CHECK(is_section_for("org/name", "org/name:Q4_K_M"));
    CHECK(is_section_for("small-Q4_0", "models/small-Q4_0.gguf"));
    CHECK(is_section_for("small-Q4_0.gguf", "models/small-Q4_0.gguf"));
    CHECK(is_section_for("gemma3:270m", "gemma3:270m"));
    CHECK_FALSE(is_section_for("gemma3:1b", "gemma3:270m"));
    CHECK_FALSE(is_section_for("other/name", "org/name"));
  }
}

}  // namespace settings_file_test
