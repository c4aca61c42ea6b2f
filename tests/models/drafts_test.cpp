#include "tests/models/drafts.h"

namespace models_drafts_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

DraftWorld world_of(const std::string& name, DType activation, kernels::Isa isa, bool is_flat) {
  return DraftWorld(
      [&](kernels::Queue& queue) {
        TensorFiles files(golden_folder / name);
        return load_model(queue, Config::from_folder(golden_folder / name), files,
                          {.activation = activation});
      },
      kernels::Device::cpu, {.threads = 2, .isa = isa}, is_flat);
}

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
}

}  // namespace models_drafts_test
