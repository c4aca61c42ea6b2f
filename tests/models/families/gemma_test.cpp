#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace gemma_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

std::string error_of(const std::string& name, const std::string& key, const std::string& value) {
  return model_error([&] { fixture_plan(name, {{key, value}}); });
}

const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/gemma") {
  TEST_CASE("norms before and after every block, an embedding times the root of the width") {
    const Plan plan = fixture_plan("gemma3");
    CHECK(plan.tied_head);
    CHECK(plan.final_norm == Norm::rms_1p);
    CHECK(plan.embedding_times_root);
    CHECK(plan.logits_cap == 0.0F);
    for (const Layer& layer : plan.layers) {
      REQUIRE(layer.blocks.size() == 2);
      for (const Block& block : layer.blocks) {
        CHECK(block.norm == Norm::rms_1p);
        CHECK(block.post_norm == Norm::rms_1p);
      }
    }
    CHECK(attention(plan, 0).scale == doctest::Approx(1 / std::sqrt(24.0)));
    CHECK(attention(plan, 0).qk_norm == Norm::rms_1p);
  }

  TEST_CASE("gemma3: another rope where a layer sees everything, in both spellings") {
    const Plan plan = fixture_plan("gemma3");
    for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
      CAPTURE(layer);
      const bool is_full = layer % 3 == 2;
      CHECK(attention(plan, layer).window == (is_full ? 0 : 8));
      CHECK(attention(plan, layer).rope->theta == (is_full ? 1e6 : 500.0));
      CHECK(contains(attention(plan, layer).text().text, "linear") == is_full);
    }
    const Plan listed = fixture_plan("gemma3-odd");
    CHECK(attention(listed, 1).window == 0);
    CHECK(attention(listed, 1).rope->theta == 5000.0);
    CHECK(attention(listed, 2).window == 19);
    CHECK(attention(listed, 2).rope->theta == 10000.0);
  }

  TEST_CASE("gemma3: what published files leave out is what transformers takes") {
    const Plan plan = fixture_plan("gemma3", {{"sliding_window_pattern", ""},
                                              {"sliding_window", ""},
                                              {"rope_local_base_freq", ""},
                                              {"rope_theta", ""},
                                              {"rope_scaling", ""},
                                              {"query_pre_attn_scalar", ""},
                                              {"num_key_value_heads", ""},
                                              {"vocab_size", ""}});
    CHECK(plan.vocab == 262208);
    CHECK(attention(plan, 0).window == 4096);
    CHECK(attention(plan, 0).rope->theta == 1e4);
    CHECK(attention(plan, 0).scale == 1 / 16.0F);
    CHECK(attention(plan, 0).kv_heads == 4);
    CHECK(attention(plan, 5).window == 0);
    CHECK(attention(plan, 5).rope->theta == 1e6);
  }

  TEST_CASE("gemma2: scores and logits have limits, every other layer a window") {
    const Plan plan = fixture_plan("gemma2");
    CHECK(plan.logits_cap == 3.0F);
    CHECK(!plan.tied_head);
    for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
      CAPTURE(layer);
      CHECK(attention(plan, layer).window == (layer % 2 == 0 ? 8 : 0));
      CHECK(attention(plan, layer).score_cap == 2.0F);
      CHECK(!attention(plan, layer).qk_norm);
    }
    CHECK(contains(attention(plan, 0).text().text, "scores below 2"));
    const Plan unsaid = fixture_plan("gemma2", {{"attn_logit_softcapping", ""},
                                                {"final_logit_softcapping", ""},
                                                {"sliding_window", ""},
                                                {"tie_word_embeddings", ""}});
    CHECK(unsaid.logits_cap == 30.0F);
    CHECK(unsaid.tied_head);
    CHECK(attention(unsaid, 0).score_cap == 50.0F);
    CHECK(attention(unsaid, 0).window == 4096);
    const Plan none = fixture_plan(
        "gemma2", {{"attn_logit_softcapping", "null"}, {"final_logit_softcapping", "null"}});
    CHECK(none.logits_cap == 0.0F);
    CHECK(attention(none, 0).score_cap == 0.0F);
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of("gemma3", "hidden_activation", "\"gelu\""), "hidden_activation"));
    CHECK(contains(error_of("gemma3", "attention_bias", "true"), "attention_bias"));
    CHECK(contains(error_of("gemma3", "attn_logit_softcapping", "50"), "attn_logit_softcapping"));
    CHECK(contains(error_of("gemma3", "use_bidirectional_attention", "true"),
                   "use_bidirectional_attention"));
    CHECK(contains(error_of("gemma2", "attn_logit_softcapping", "-1"), "attn_logit_softcapping"));
    CHECK(contains(error_of("gemma2", "final_logit_softcapping", "0"), "final_logit_softcapping"));
    CHECK(contains(error_of("gemma3", "query_pre_attn_scalar", "0"), "must be above 0"));
    CHECK(contains(error_of("gemma3", "sliding_window_pattern", "0"), "sliding_window_pattern"));
    CHECK(
        contains(error_of("gemma3-odd", "layer_types", R"(["sliding_attention"])"), "layer_types"));
  }
}

}  // namespace gemma_test
