#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "app/request/template_probe.h"
#include "tests/app/chat/chat_texts.h"
#include "tests/support/error_text.h"

namespace template_probe_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/think_option") {
  TEST_CASE("no template variable is set unless requested") {
    CHECK(to_text(think_variables({})) == "{}");
    CHECK(to_text(think_variables(false)) == R"({"enable_thinking":false,"thinking":false})");
    CHECK(to_text(think_variables(true)) == R"({"enable_thinking":true,"thinking":true})");
  }

  TEST_CASE("asking a template for what it does not know is refused") {
    const Tokenizer tokenizer = fixture_tokenizer();
    const auto error = [&](const char* family, Think think) {
      const ChatTemplate chat_template = family_template(family);
      return error_text([&] { check_think(think, chat_template, tokenizer, "/think"); });
    };
    for (const char* family : {"nemotron3", "qwen35"}) {
      CAPTURE(family);
      CHECK(error(family, true).empty());
      CHECK(error(family, false).empty());
    }
    for (const char* family : {"chatml", "lfm2", "nemotron2", "harmony"}) {
      CAPTURE(family);
      CHECK(error(family, {}).empty());
      CHECK(error(family, true).starts_with("/think: "));
      CHECK(contains(error(family, false), "reads neither enable_thinking nor thinking"));
      CHECK(contains(error(family, false), "/no_think") ==
            (std::string_view(family) == "nemotron2"));
    }
  }
}

}  // namespace template_probe_test
