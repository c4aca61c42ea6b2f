#include "app/template_probe.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "tests/app/chat/chat_texts.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/template_probe") {
  TEST_CASE("families that keep past answers as they were, and families that do not") {
    using P = PlacementPrior;
    const std::map<std::string, PlacementPrior> families = {
        {"chatml", P::answers_stay},
        {"falcon_h1", P::answers_stay},
        {"gemma", P::answers_stay},
        {"granite33", P::answers_stay},
        {"granite4", P::answers_stay},
        {"jamba", P::answers_stay},
        {"llama2", P::answers_stay},
        {"plamo_zamba", P::answers_stay},
        {"harmony", P::answers_change},  // moves the thinking to a channel of its own
        {"kimi2", P::answers_change},    // puts empty thinking before past answers
        {"lfm2", P::unknown},            // drops the thinking of all answers but the last
        {"nemotron2", P::answers_change},
        {"nemotron3", P::answers_change},
        {"qwen35", P::answers_change}};
    const Tokenizer tokenizer = fixture_tokenizer();
    for (const auto& [name, prior] : families) {
      CAPTURE(name);
      CHECK(placement_prior(family_template(name), tokenizer) == prior);
    }
  }

  TEST_CASE("what templates do about thoughts and tools") {
    struct Row {
      const char* name;
      Thinking thinking;
      bool obeys, reasoning, tools;
    };
    using T = Thinking;
    const Tokenizer tokenizer = fixture_tokenizer();
    for (const Row& row :
         {Row{"chatml", T::none, false, false, false}, Row{"lfm2", T::none, false, false, true},
          Row{"nemotron2", T::always, false, false, true},
          Row{"nemotron3", T::on, true, true, true}, Row{"qwen35", T::on, true, true, true}}) {
      CAPTURE(row.name);
      const TemplateTraits traits = template_traits(family_template(row.name), tokenizer);
      CHECK(traits.thinking == row.thinking);
      CHECK(traits.obeys_think == row.obeys);
      CHECK(traits.takes_reasoning == row.reasoning);
      CHECK(traits.takes_tools == row.tools);
    }
    const auto thinking = [&](const char* source) {
      return template_traits(ChatTemplate::parse(source, "t"), tokenizer).thinking;
    };
    CHECK(thinking("{{ messages[0].content }}{% if thinking %}<think>{% endif %}") == T::off);
    // A member of that name is no variable.
    CHECK(thinking("{{ messages[0].content }}{{ messages[0].thinking }}") == T::none);
    CHECK(thinking("{{ raise_exception('no') }}") == T::none);
  }

  TEST_CASE("a template that refuses or says nothing of answers") {
    const Tokenizer tokenizer = fixture_tokenizer();
    const auto prior = [&](const char* source) {
      return placement_prior(ChatTemplate::parse(source, "t"), tokenizer);
    };
    CHECK(prior("{{ raise_exception('no') }}") == PlacementPrior::unknown);
    CHECK(prior("{{ messages[-1].content }}") == PlacementPrior::answers_change);
    CHECK(prior("{% for m in messages %}{{ m.content }}{% endfor %}") ==
          PlacementPrior::answers_stay);
  }
}
