#include <algorithm>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <CLI/CLI.hpp>

#include "app/base/texts.h"
#include "app/options/options.h"
#include "app/request/request_body.h"
#include "app/request/sampling_options.h"
#include "app/runtime/run_settings.h"
#include "core/base/error.h"
#include "tests/support/error_text.h"

namespace options_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/options") {
  TEST_CASE("memory sizes are read in decimal and binary units") {
    CHECK(parse_memory("8GiB").bytes == std::size_t{8} << 30);
    CHECK(parse_memory("500MB").bytes == 500'000'000);
    CHECK(parse_memory("1.5KiB").bytes == 1536);
    CHECK(parse_memory("123").bytes == 123);
    CHECK(parse_memory("80%").share == doctest::Approx(0.8));
    CHECK(parse_memory("auto").kind == MemoryBudget::Kind::automatic);
    for (const char* size : {"8GiB", "8G", "8g", "8gib", "8GIB"}) {
      CAPTURE(size);
      CHECK(parse_memory(size).bytes == std::size_t{8} << 30);
    }
    CHECK(parse_memory("8gb").bytes == 8'000'000'000);
    CHECK(parse_memory("500mb").bytes == 500'000'000);
    for (const char* bad : {"", "8 GiB", "GiB", "-1GiB", "0", "101%", "8gi", "1e5", "nan", "9e99TB",
                            "999999999999TiB"}) {
      CAPTURE(bad);
      CHECK_THROWS_AS(parse_memory(bad), Error);
    }
  }

  TEST_CASE("a size that can't be read names its flag") {
    CHECK_THROWS_WITH_AS(parse_memory("5x", "--pool-memory"),
                         "--pool-memory: '5x' is not a size like 8GiB, 500MB or 80%, and not auto",
                         Error);
  }

  TEST_CASE("types and page sizes that nothing can carry out are usage errors") {
    const auto refused = [](std::vector<std::string> arguments) {
      CLI::App cli;
      ModelOptions options;
      add_model_options(cli, options);
      std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
      try {
        cli.parse(arguments);
        return std::string();
      } catch (const CLI::ParseError& error) {
        return std::string(error.what());
      }
    };
    CHECK(refused({"--kv-dtype", "f32", "--state-dtype", "bf16", "--page-tokens", "128"}).empty());
    CHECK(refused({"--kv-dtype", "fp8"}).empty());
    CHECK(contains(refused({"--state-dtype", "fp8"}), "fp8"));
    CHECK(contains(refused({"--kv-dtype", "int8"}), "int8"));
    CHECK(contains(refused({"--state-dtype", "f16"}), "f16"));
    for (const char* tokens : {"0", "8", "24", "256", "-16"}) {
      CHECK(!refused({"--page-tokens", tokens}).empty());
    }
  }

  TEST_CASE("words and values of every table name each other") {
    const auto check = [](const auto& words) {
      for (const auto& one : words) {
        CAPTURE(one.word);
        CHECK(word_of(words, one.value) == one.word);
        CHECK(value_of(words, one.word).value() == one.value);
      }
      CHECK_FALSE(value_of(words, "").has_value());
    };
    check(words::on_off);
    check(words::device);
    check(words::dtype);
    check(words::kv_dtype);
    check(words::state_dtype);
    check(words::quantize);
    check(words::lossless);
    check(words::snapshots);
    check(words::eviction);
    check(words::memory_mode);
    check(words::spec);
    check(words::draft_steps);
    check(words::graphs);
  }

  TEST_CASE(
      "an option that takes a word shows its default, and refuses others with what it takes") {
    CLI::App cli;
    QuantizeChoice choice = QuantizeChoice::q4;
    const CLI::Option* const option = add_choice(cli, "--pack", choice, words::quantize, "weights");
    CHECK(option->get_default_str() == "q4");
    CHECK(contains(option->get_type_name(), "{none,q8,q4,fp8,mxfp4}"));
    const auto refused = [&](const std::string& word) {
      try {
        cli.parse(std::vector<std::string>{"--pack=" + word});
        return std::string();
      } catch (const CLI::ParseError& error) {
        return std::string(error.what());
      }
    };
    CHECK(contains(refused("int8"), "--pack: int8 not in {none,q8,q4,fp8,mxfp4}"));
    CHECK(choice == QuantizeChoice::q4);
    CHECK(refused("mxfp4").empty());
    CHECK(choice == QuantizeChoice::mxfp4);
  }

  TEST_CASE("drafts: what --spec, --draft-model and --draft-steps mean together") {
    ModelOptions options;
    options.device = kernels::Device::cpu;
    SpeculationFlags& flags = options.speculation;
    const auto drafts = [&] { return resolve(options, {}).drafts; };
    CHECK(drafts().source == DraftSource::automatic);
    CHECK(drafts().drafts_room == drafts_max);
    CHECK_FALSE(drafts().may_load_layer);
    flags.is_heeded = true;
    CHECK(drafts().may_load_layer);
    flags.draft_model = "demo";
    CHECK(drafts().source == DraftSource::draft);
    CHECK_FALSE(drafts().is_named);
    CHECK_FALSE(drafts().may_load_layer);
    flags.source = DraftSource::eagle3;
    CHECK(drafts().source == DraftSource::eagle3);
    CHECK(drafts().is_named);
    const auto refused = [&] { return error_text([&] { drafts(); }); };
    flags.source = DraftSource::ngram;
    CHECK(contains(refused(), "--draft-model: with --spec ngram it has nothing to do"));
    flags.draft_model.clear();
    flags.source = DraftSource::dflash;
    CHECK(contains(refused(), "--spec dflash: say which model with --draft-model"));
    flags.source = DraftSource::off;
    CHECK(drafts().drafts_room == 0);
    flags.branches = 2;
    CHECK(contains(refused(), "say how deep the tree is with --draft-steps"));
    flags.draft_steps = 3;
    CHECK(drafts().tree.rows == 8);
    flags.rows = 3;
    CHECK(contains(refused(), "--draft-tokens 3: --draft-steps 3 alone takes 4"));
  }

  TEST_CASE("memory of a machine is bytes once it is resolved, and says how it was given") {
    ModelOptions options;
    options.device = kernels::Device::cpu;
    options.pool_memory = parse_memory("auto");
    CHECK(resolve(options, {}).memory.bytes > 0);
    CHECK_FALSE(resolve(options, {}).pool_memory.has_value());
    options.memory = parse_memory("3GiB");
    options.pool_memory = parse_memory("1GiB");
    RunSettings settings = resolve(options, {});
    CHECK(settings.memory.bytes == std::size_t{3} << 30);
    CHECK(settings.memory.text == "3GiB");
    CHECK(settings.pool_memory == std::size_t{1} << 30);
    settings.set_memory(5);
    CHECK(settings.memory.kind == MemoryBudget::Kind::bytes);
    CHECK(settings.memory.text == "5");
  }

  TEST_CASE("a number out of range is refused the same way as an option and in a body") {
    const auto flag_error = [](const std::string& option) {
      CLI::App cli;
      GenerationOptions options;
      add_generation_options(cli, options);
      std::vector<std::string> words = {option};
      try {
        cli.parse(words);
        return std::string();
      } catch (const CLI::ParseError& error) {
        return std::string(error.what());
      }
    };
    const auto body_error = [](const std::string& text) {
      return error_text([&] {
        Request request;
        request.prompt = {TokenId{1}};
        apply_body(parse_json(text, "body"), request);
        check(request, {.vocab = 100, .length_max = 100, .has_text = true});
      });
    };
    struct Case {
      const char *option, *field, *value;
      bool is_good;
    };
    constexpr Case cases[] = {
        {"--temperature", "temperature", "0", true},
        {"--temp", "temperature", "100", true},
        {"--temperature", "temperature", "101", false},
        {"--temperature", "temperature", "-0.1", false},
        {"--top-p", "top_p", "1", true},
        {"--top-p", "top_p", "0", false},
        {"--top-p", "top_p", "1.5", false},
        {"--top-k", "top_k", "-1", true},
        {"--top-k", "top_k", "-2", false},
        {"--min-p", "min_p", "2", false},
        {"--repetition-penalty", "repetition_penalty", "0", false},
        {"--repeat-penalty", "repetition_penalty", "100", true},
        {"--frequency-penalty", "frequency_penalty", "101", false},
        {"--presence-penalty", "presence_penalty", "-100", true},
        {"--presence-penalty", "presence_penalty", "-101", false},
        {"--max-tokens", "max_tokens", "2147483647", true},
        {"--max-tokens", "max_tokens", "0", false},
        {"--n-predict", "max_tokens", "2147483648", false},
        {"--seed", "seed", "18446744073709551615", true},
        {"--seed", "seed", "18446744073709551616", false},
        {"--seed", "seed", "-1", false},
    };
    for (const Case& one : cases) {
      CAPTURE(one.option);
      CAPTURE(one.value);
      CHECK(flag_error(std::string(one.option) + "=" + one.value).empty() == one.is_good);
      const std::string body = std::string("{\"") + one.field + "\":" + one.value + "}";
      CHECK(body_error(body).empty() == one.is_good);
    }
    // Every parameter of the table is a flag and a field of bodies.
    for (const Parameter& parameter : sampling_parameters) {
      const std::string name(parameter.name);
      std::string flag = "--" + name + "=1";
      std::replace(flag.begin(), flag.end(), '_', '-');
      CHECK(flag_error(flag).empty());
      CHECK(body_error("{\"" + name + "\":1}").empty());
      CHECK(body_error("{\"" + name + "\":\"x\"}").starts_with(name + ": is a "));
    }
    CHECK(contains(flag_error("--top-p=0"), "--top-p: is above 0 and at most 1, got 0"));
    CHECK(contains(flag_error("-sBe brief"), "a system prompt is --system TEXT"));
  }

  TEST_CASE("flags win over generation_config.json, which wins over the defaults") {
    const Json config = parse_json(
        R"({"do_sample": true, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.1})", "f");
    CHECK(sampling_of({}, Json::object()).temperature == 0.0F);
    CHECK(sampling_of({}, config).temperature == 0.7F);
    CHECK(sampling_of({}, config).top_k == 20);
    GenerationOptions flags;
    flags.parameters = {{"temperature", 0.0F}, {"top_k", 5}};
    CHECK(sampling_of(flags, config).temperature == 0.0F);
    CHECK(sampling_of(flags, config).top_k == 5);
    CHECK(sampling_of(flags, config).repetition_penalty == 1.1F);
  }

  TEST_CASE("without do_sample a model is greedy whatever else its file says") {
    const Json config = parse_json(R"({"temperature": 0.7, "top_k": 20})", "f");
    CHECK(sampling_of({}, config).temperature == 0.0F);
  }

  TEST_CASE("an absurd value of generation_config.json is named, unless a flag overrides it") {
    const auto error_of = [](const std::string& text, const GenerationOptions& flags = {}) {
      const Json config = parse_json(text, "f", {.python_numbers = true});
      return model_error([&] { sampling_of(flags, config); });
    };
    const auto sampled = [&](const std::string& rest) {
      return error_of(R"({"do_sample": true, )" + rest + "}");
    };
    CHECK(contains(sampled(R"("temperature": "hot")"),
                   "generation_config.json: temperature must be a number, is \"hot\""));
    CHECK(contains(sampled(R"("temperature": NaN)"), "temperature must be a number"));
    CHECK(contains(sampled(R"("temperature": 1e300)"), "temperature must be a number"));
    CHECK(contains(sampled(R"("temperature": -1)"), "generation_config.json: sampling: temper"));
    CHECK(contains(sampled(R"("top_k": 1.5)"), "top_k must be a whole number, is 1.5"));
    CHECK(contains(sampled(R"("top_k": 1e30)"), "top_k must be a whole number"));
    CHECK(contains(sampled(R"("top_p": 2)"), "top_p is above 0 and at most 1: 2"));
    CHECK(contains(error_of(R"({"do_sample": "yes"})"), "do_sample must be true or false"));
    CHECK(contains(error_of(R"({"repetition_penalty": 0})"), "repetition_penalty is above 0"));
    CHECK(sampled(R"("temperature": null, "top_k": 50.0)").empty());
    CHECK(sampled(R"("top_k": -1)").empty());
    CHECK(error_of(R"({"temperature": "not read without do_sample"})").empty());
    GenerationOptions flags;
    flags.parameters["temperature"] = 0.5F;
    CHECK(error_of(R"({"do_sample": true, "temperature": -1})", flags).empty());
  }

  TEST_CASE("a logit bias is ID=BIAS") {
    GenerationOptions flags;
    flags.logit_bias = {"42=-1.5"};
    const SamplingParams params = sampling_of(flags, Json::object());
    REQUIRE(params.bias.size() == 1);
    CHECK(index(params.bias[0].token) == 42);
    CHECK(params.bias[0].bias == -1.5F);
    for (const char* bad : {"42", "=1", "x=1", "1=", "1=x"}) {
      flags.logit_bias = {bad};
      CHECK_THROWS_AS(sampling_of(flags, Json::object()), Error);
    }
  }

  TEST_CASE("sizes for people are in binary units") {
    CHECK(bytes_text(512) == "512 B");
    CHECK(bytes_text(1536) == "1.5 KiB");
    CHECK(bytes_text(std::size_t{3} << 30) == "3.0 GiB");
  }
}

}  // namespace options_test
