#include "app/chat/settings.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::app;
using testing::contains;

namespace {

const Json no_config = Json::object();

}  // namespace

TEST_SUITE("app/chat/settings") {
  TEST_CASE("a value is changed, shown and taken back") {
    const Json config = {{"do_sample", true}, {"temperature", 0.5}, {"top_k", 40}};
    Settings settings({}, config, 100);
    CHECK(contains(settings.set("temperature"), "0.5"));
    CHECK(contains(settings.set("temperature 0.25"), "0.25"));
    CHECK(settings.options().temperature == 0.25F);
    CHECK(contains(settings.set("temperature default"), "0.5"));
    CHECK_FALSE(settings.options().temperature);
    CHECK(contains(settings.set("seed=18446744073709551615"), "18446744073709551615"));
    CHECK(contains(settings.set("max_tokens 12"), "12"));
    CHECK(settings.options().max_tokens == 12);
    const std::string all = settings.set("");
    for (const char* name : {"temperature", "top_k", "top_p", "min_p", "repetition_penalty",
                             "frequency_penalty", "presence_penalty", "seed", "max_tokens"}) {
      CHECK(contains(all, name));
      CHECK(contains(settings.set(name), name));
    }
  }

  TEST_CASE("what is out of range or no number is refused, and changes nothing") {
    Settings settings({}, no_config, 100);
    settings.set("temperature 0.7");
    const std::string before = settings.set("");
    for (const char* bad :
         {"temperature -1", "temperature nan", "temperature inf", "temperature 1e99",
          "temperature 0.5x", "temperature 0,5", "top_p 0", "top_p 1.5", "top_k -1", "top_k 1.5",
          "min_p 2", "seed -1", "seed 99999999999999999999", "max_tokens 0", "max_tokens -5",
          "repetition_penalty 0", "frequency_penalty 1000", "colour red", "top_p 0.5 0.6"}) {
      CAPTURE(bad);
      try {
        settings.set(bad);
        FAIL("accepted");
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::usage);
      }
      CHECK(settings.set("") == before);
    }
  }

  TEST_CASE("flags are checked like /set") {
    GenerationOptions options;
    options.top_p = 7.0F;
    CHECK_THROWS_AS(Settings(options, no_config, 100), Error);
  }
}
