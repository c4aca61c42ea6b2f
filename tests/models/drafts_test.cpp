#include "tests/models/golden_drafts.h"

namespace models_drafts_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

DraftWorld world_of(const std::string& name, DType activation, kernels::Isa isa, bool is_flat,
                    bool with_drafts = false, std::int32_t page = page_tokens_default,
                    bool draft_head_q4 = false) {
  return DraftWorld(
      [&](kernels::Queue& queue) {
        TensorFiles files(golden_folder / name);
        return load_model(queue, Config::from_folder(golden_folder / name), files,
                          {.load = {.activation = activation, .draft_head_q4 = draft_head_q4},
                           .page_tokens = page,
                           .with_drafts = with_drafts});
      },
      kernels::Device::cpu, {.threads = 2, .isa = isa}, is_flat);
}

/// With a draft layer.
constexpr const char* drafting_models[] = {"qwen3_5-dense",  "qwen3_5-text", "qwen3-next",
                                           "qwen3-next-odd", "nemotron-moe", "nemotron-latent"};

}  // namespace

TEST_SUITE("models/drafts") {
  TEST_CASE("answers and states with drafts are those of plain decoding, in every model") {
    unsigned seed = 1;
    for (const std::string& name : fixtures()) {
      CAPTURE(name);
      DraftWorld world = world_of(name, DType::bf16, kernels::best_isa(), seed % 2 == 0);
      CHECK(drafts_change_nothing(world, seed++, drafts_sampling()));
    }
  }

  TEST_CASE("the same in every instruction set and in f32") {
    for (const std::string name :
         {"granite-dense-rope", "qwen3_5-dense", "lfm2-dense", "granite-attention-only"}) {
      for (const kernels::Isa isa : levels()) {
        for (const DType activation : {DType::bf16, DType::f32}) {
          CAPTURE(name);
          CAPTURE(static_cast<int>(isa));
          DraftWorld world = world_of(name, activation, isa, true);
          for (const unsigned seed : {1U, 2U}) {
            CHECK(drafts_change_nothing(world, seed, drafts_sampling()));
          }
        }
      }
    }
  }

  TEST_CASE("with a draft layer, too, whose guesses are those made without drafts before them") {
    unsigned seed = 1;
    for (const std::string name : drafting_models) {
      for (const DType activation : {DType::bf16, DType::f32}) {
        for (const bool is_flat : {true, false}) {
          for (const std::int32_t page : {16, 32}) {
            CAPTURE(name);
            CAPTURE(page);
            DraftWorld world = world_of(name, activation, kernels::best_isa(), is_flat, true, page);
            REQUIRE(world.model.plan.draft.has_value());
            CHECK(drafts_change_nothing(world, seed++, drafts_sampling()));
          }
        }
      }
    }
  }

  TEST_CASE("planted bugs of a draft layer's memory show in its guesses") {
    for (const DraftFault fault :
         {DraftFault::entries_of_drafting_kept, DraftFault::carry_of_another}) {
      CAPTURE(static_cast<int>(fault));
      bool is_found = false;
      for (unsigned seed = 1; seed < 4 && !is_found; ++seed) {
        DraftWorld world = world_of("qwen3_5-dense", DType::bf16, kernels::best_isa(), false, true);
        world.fault = fault;
        is_found = !drafts_change_nothing(world, seed, drafts_sampling());
      }
      CHECK(is_found);
    }
  }

  TEST_CASE("rows of tokens and states are the same with a draft layer as without") {
    for (const std::string name : drafting_models) {
      CAPTURE(name);
      std::vector<PlainRun> runs;
      for (const bool with_drafts : {false, true}) {
        DraftWorld world = world_of(name, DType::bf16, kernels::best_isa(), true, with_drafts);
        std::mt19937 random(3);
        runs.push_back(plain_run(world, 21, 60, drafts_sampling(), random));
      }
      CHECK(runs[0].rows == runs[1].rows);
      const std::size_t own = runs[0].state.size();
      REQUIRE(runs[1].state.size() > own);
      CHECK(std::equal(runs[0].state.begin(), runs[0].state.end(), runs[1].state.begin()));
    }
  }

  TEST_CASE(
      "with the head in q4 for its guesses, most of them stay, and no row of a token changes") {
    std::size_t same = 0, all = 0;
    for (const std::string name : drafting_models) {
      CAPTURE(name);
      std::vector<PlainRun> runs;
      for (const bool is_q4 : {false, true}) {
        DraftWorld world = world_of(name, DType::bf16, kernels::best_isa(), true, true,
                                    page_tokens_default, is_q4);
        const kernels::Weight& head = world.model.weights.draft->head;
        CHECK(head.rows() == (is_q4 ? world.model.plan.vocab : 0));
        if (is_q4) {
          CHECK(head.code() == kernels::WeightCode::q4);
          CHECK(drafts_change_nothing(world, 1, drafts_sampling()));
        }
        std::mt19937 random(3);
        runs.push_back(plain_run(world, 21, 60, {}, random));
      }
      CHECK(runs[0].rows == runs[1].rows);
      for (std::size_t at = 0; at < runs[0].drafts.size(); ++at) {
        const std::vector<DraftRow>&whole = runs[0].drafts[at][1], &q4 = runs[1].drafts[at][1];
        REQUIRE(whole.size() == q4.size());
        if (whole.empty()) continue;
        ++all;
        if (whole[0].token == q4[0].token) ++same;
      }
    }
    CHECK(same > all * 3 / 4);
    CHECK(same < all);  // it is another one
  }

  TEST_CASE("guesses of several steps, of prompts of many lengths, are the float64 reference's") {
    for (const std::string name : drafting_models) {
      const Golden golden(name);
      for (const kernels::Isa isa : levels()) {
        CAPTURE(name);
        DraftWorld world = world_of(name, DType::f32, isa, true, true);
        CHECK(largest_difference(world, golden, golden.folder) <= 2e-4);
      }
    }
  }
}

}  // namespace models_drafts_test
