#include "app/request/generation_config.h"

#include <doctest/doctest.h>

#include <limits>

#include "app/request/model_texts.h"
#include "app/request/sampling_options.h"
#include "tests/support/error_text.h"

namespace generation_config_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

GenerationDefaults defaults_of(const std::string& members, const GenerationOptions& flags = {}) {
  return generation_defaults(parse_json("{" + members + "}", "f", {.python_numbers = true}), flags);
}

std::string error_of(const std::string& members) {
  return model_error([&] { defaults_of(members); });
}

}  // namespace

TEST_SUITE("app/generation_config") {
  TEST_CASE("where an answer ends, unless flags say otherwise") {
    const std::string members = R"("max_new_tokens": 40, "stop_strings": ["a", "b"])";
    CHECK(defaults_of(members).max_tokens == 40);
    CHECK(defaults_of(members).stop == std::vector<std::string>{"a", "b"});
    CHECK(defaults_of(R"("stop_strings": "end")").stop == std::vector<std::string>{"end"});
    GenerationOptions flags;
    flags.max_tokens = 7;
    flags.stop = {"c"};
    CHECK(!defaults_of(members, flags).max_tokens);
    CHECK(defaults_of(members, flags).stop.empty());
    CHECK(contains(error_of(R"("max_new_tokens": 0)"), "max_new_tokens must be 1 or more, is 0"));
    CHECK(contains(error_of(R"("stop_strings": [7])"), "stop_strings must be a text or a list"));
    CHECK(contains(error_of(R"("stop_strings": "")"), "stop_strings must be a text or a list"));

    ModelTexts texts;
    texts.generation_config = parse_json("{" + members + "}", "f");
    texts.banned_tokens = {TokenId{3}};
    const Request request = request_of({}, texts);
    CHECK(request.max_tokens == 40);
    CHECK(request.stop.size() == 2);
    CHECK(request.sampling.banned == texts.banned_tokens);
    CHECK(request_of(flags, texts).max_tokens == 7);
    CHECK(request_of(flags, texts).stop == flags.stop);
  }

  TEST_CASE("penalties count whether or not tokens are drawn at random") {
    const SamplingParams params =
        defaults_of(R"("frequency_penalty": 0.5, "presence_penalty": 1.5)").sampling;
    CHECK(params.frequency_penalty == 0.5F);
    CHECK(params.presence_penalty == 1.5F);
  }

  TEST_CASE("what would change answers and is not supported is refused by name") {
    for (const char* member : {R"("min_length": 5)",
                               R"("min_new_tokens": 5)",
                               R"("num_beams": 4)",
                               R"("num_beam_groups": 2)",
                               R"("diversity_penalty": 0.5)",
                               R"("num_return_sequences": 2)",
                               R"("penalty_alpha": 0.6)",
                               R"("encoder_repetition_penalty": 1.2)",
                               R"("no_repeat_ngram_size": 3)",
                               R"("encoder_no_repeat_ngram_size": 3)",
                               R"("guidance_scale": 1.5)",
                               R"("max_time": 5)",
                               R"("begin_suppress_tokens": [220])",
                               R"("forced_bos_token_id": 0)",
                               R"("forced_eos_token_id": 0)",
                               R"("forced_decoder_ids": [[1, 2]])",
                               R"("force_words_ids": [[1]])",
                               R"("constraints": ["x"])",
                               R"("sequence_bias": [[[1], 2.0]])",
                               R"("exponential_decay_length_penalty": [5, 1.1])",
                               R"("watermarking_config": {"bias": 2.5})",
                               R"("token_healing": true)",
                               R"("dola_layers": "low")"}) {
      CAPTURE(std::string(member));
      const std::string error = error_of(member), name = member;
      CHECK(contains(error, "generation_config.json: " + name.substr(1, name.find('"', 1) - 1)));
      CHECK(contains(error, "is not supported"));
    }
    for (const char* member : {R"("typical_p": 0.9)", R"("epsilon_cutoff": 0.001)",
                               R"("eta_cutoff": 0.001)", R"("top_h": 0.4)"}) {
      CAPTURE(std::string(member));
      CHECK(contains(error_of(R"("do_sample": true, )" + std::string(member)), "is not supported"));
      CHECK(contains(error_of(member), "is not supported"));  // a request may draw all the same
    }
  }

  TEST_CASE("what changes no answer is accepted, whatever its key") {
    for (const char* member :
         {R"("min_length": 0)", R"("min_new_tokens": null)", R"("num_beams": 1)",
          R"("diversity_penalty": 0.0)", R"("encoder_repetition_penalty": 1.0)",
          R"("no_repeat_ngram_size": 0)", R"("begin_suppress_tokens": [])",
          R"("sequence_bias": {})", R"("token_healing": false)", R"("guidance_scale": 1)",
          R"("do_sample": true, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0)",
          R"("_from_model_config": true)", R"("cache_implementation": "hybrid")",
          R"("use_cache": true)", R"("length_penalty": 2.0, "early_stopping": true)",
          R"("renormalize_logits": true)", R"("max_length": 262144)",
          R"("prompt_lookup_num_tokens": 10)",
          R"("transformers_version": "5.24.0", "trust_remote_code": true)"}) {
      CAPTURE(std::string(member));
      CHECK(error_of(member).empty());
    }
  }
}

}  // namespace generation_config_test
