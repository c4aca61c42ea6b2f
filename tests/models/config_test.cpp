#include "models/config.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace config_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

Config config(std::string_view text) { return Config::from_text(text, "config.json"); }

template <typename Read>
std::string error_of(std::string_view text, const Read& read) {
  return model_error([&] { read(config(text)); });
}

}  // namespace

TEST_SUITE("models/config") {
  TEST_CASE("numbers come in several spellings") {
    const Config c = config(R"({"a":4,"b":4.0,"c":1e3,"d":12,"e":0.5,"n":null})");
    CHECK(c.i("a") == 4);
    CHECK(c.i("b") == 4);
    CHECK(c.i("c") == 1000);
    CHECK(c.f("d") == 12.0);
    CHECK(c.f("e") == 0.5);
    CHECK(c.i({"x", "n", "b"}) == 4);
    CHECK(c.i("n", 7) == 7);
    CHECK(c.i({"x", "y"}, 8) == 8);
    CHECK(c.f("n", 0.25) == 0.25);
    CHECK(!c.has("n"));
    CHECK(c.has({"n", "a"}));
  }

  TEST_CASE("limits may be infinite, in every way Python writes that") {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (const char* text : {R"({"t":[0.0,Infinity]})", R"({"t":[0,"Infinity"]})",
                             R"({"t":[0,"inf"]})", R"({"t":[0,{"__float__":"Infinity"}]})"}) {
      CHECK(config(text).numbers("t") == std::vector<double>{0.0, infinity});
    }
    CHECK(contains(error_of(R"({"t":[0,NaN]})", [](auto c) { c.numbers("t"); }), "t: must hold"));
    CHECK(contains(error_of(R"({"t":Infinity})", [](auto c) { c.f("t"); }), "t: must be a finite"));
    CHECK(contains(error_of(R"({"t":1e39})", [](auto c) { c.f("t"); }), "must be a finite"));
    CHECK(contains(error_of(R"({"t":"1.5"})", [](auto c) { c.f("t"); }), "is \"1.5\""));
  }

  TEST_CASE("a wrong type or an absurd size is named with file, key and value") {
    const auto i = [](std::string_view value) {
      return error_of("{\"hidden_size\":" + std::string(value) + "}",
                      [](auto c) { c.i("hidden_size"); });
    };
    CHECK(i("-3") == "config.json: hidden_size: must be a whole number from 1 to 16777216, is -3");
    for (const char* value : {"0", "16777217", "1e300", "99999999999999999999", "2.5", "true",
                              "\"8\"", "[8]", "{}", "NaN", "Infinity"}) {
      CHECK(contains(i(value), "config.json: hidden_size: must be a whole number"));
    }
    CHECK(i("16777216") == "");
    CHECK(contains(i("null"), "hidden_size: is missing"));
    CHECK(contains(error_of("{}", [](auto c) { c.s({"x", "y"}); }), "x: is missing"));
    CHECK(contains(error_of(R"({"x":1})", [](auto c) { c.s("x"); }), "must be text, is 1"));
    CHECK(contains(error_of(R"({"x":1})", [](auto c) { c.b("x", true); }), "true or false, is 1"));
    CHECK(contains(error_of(R"({"x":1})", [](auto c) { c.strings("x"); }), "must be a list"));
    CHECK(contains(error_of(R"({"x":["a",1]})", [](auto c) { c.strings("x"); }), "holds 1"));
    CHECK(contains(error_of(R"({"x":[5]})", [](auto c) { c.integers("x", {0, 4}); }), "holds 5"));
    CHECK(contains(error_of(R"({"x":5})", [](auto c) { c.object("x"); }), "must be an object"));
    CHECK(contains(error_of(R"({"x":"\u001b[2J"})", [](auto c) { c.i("x"); }), "\\x1b[2J"));
  }

  TEST_CASE("nested objects name the whole way to a key") {
    const Config c = config(R"({"rope_parameters":{"rope_theta":"x"}})");
    REQUIRE(c.object("rope_parameters"));
    CHECK(contains(model_error([&] { c.object("rope_parameters")->f("rope_theta"); }),
                   "config.json: rope_parameters.rope_theta: must be"));
    CHECK(!c.object("other"));
  }

  TEST_CASE("text_config replaces the whole file, but for keys that concern both") {
    const Config c = config(R"({"model_type":"outer","hidden_size":1,"tie_word_embeddings":true,
        "text_config":{"model_type":"inner","hidden_size":2}})");
    CHECK(c.model_type() == "inner");
    CHECK(c.i("hidden_size") == 2);
    CHECK(c.b("tie_word_embeddings", false));
  }

  TEST_CASE("dtypes") {
    CHECK(config(R"({"dtype":"bfloat16"})").dtype({"dtype", "torch_dtype"}, DType::f32) ==
          DType::bf16);
    CHECK(
        config(R"({"torch_dtype":"torch.float32"})").dtype({"dtype", "torch_dtype"}, DType::bf16) ==
        DType::f32);
    CHECK(config("{}").dtype("dtype", DType::f16) == DType::f16);
    CHECK(contains(error_of(R"({"dtype":"int3"})", [](auto c) { c.dtype("dtype", DType::f32); }),
                   "dtype: must be bfloat16"));
  }

  TEST_CASE("what is no config at all") {
    CHECK(contains(model_error([] { config("[]"); }), "config.json: must be a JSON object"));
    CHECK(contains(model_error([] { config("{"); }), "config.json: not valid JSON"));
    CHECK(contains(model_error([] { config(std::string(500, '[')); }), "nested deeper"));
    const TemporaryFolder folder;
    CHECK(contains(model_error([&] { Config::from_folder(folder.path()); }), "config.json"));
    folder.write("config.json", R"({"a":1})");
    CHECK(Config::from_folder(folder.path()).i("a") == 1);
  }

  TEST_CASE("hf_quant_config.json counts until the quantisation is left out") {
    const TemporaryFolder folder;
    folder.write("config.json", R"({"a":1,"b":2})");
    folder.write("hf_quant_config.json",
                 R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"NVFP4"}})");
    const Config config = Config::from_folder(folder.path());
    REQUIRE(config.quantization());
    CHECK(config.without("a").quantization());
    CHECK_FALSE(config.without("a").has("a"));
    CHECK(config.with_defaults(R"({"c":3})").quantization());
    CHECK_FALSE(config.without("a").without_quantization().quantization());
  }
}

}  // namespace config_test
