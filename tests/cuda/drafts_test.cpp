#include "tests/models/drafts.h"
#include "tests/support/level.h"

namespace cuda_drafts_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

void check_world(const std::string& name, bool is_flat, const GraphOptions& graphs, unsigned seed,
                 bool with_drafts = false) {
  CAPTURE(name);
  DraftWorld world(
      [&](kernels::Queue& queue) {
        TensorFiles files(golden_folder / name);
        return load_model(queue, Config::from_folder(golden_folder / name), files,
                          {.activation = DType::bf16, .with_drafts = with_drafts});
      },
      kernels::Device::cuda, {.threads = 1, .isa = {}, .batch_invariant = true}, is_flat, graphs);
  CHECK(drafts_change_nothing(world, seed, drafts_sampling()));
}

}  // namespace

TEST_SUITE("cuda/drafts") {
  TEST_CASE("batch-invariant: answers and states with drafts are those of plain decoding") {
    unsigned seed = 3;
    std::vector<std::string> names = {"granite-dense-rope", "qwen3_5-dense", "lfm2-dense"};
    if (hyb::testing::is_full_level()) names = fixtures();
    for (const std::string& name : names) {
      check_world(name, seed % 2 == 0, {}, seed);
      ++seed;
    }
    check_world("granite-attention-only", true, {.decode = false, .mixed = false}, 1);
  }

  TEST_CASE("batch-invariant: with a draft layer, too, whose guesses are those without drafts") {
    check_world("qwen3_5-dense", true, {}, 5, true);
    check_world("nemotron-latent", false, {.decode = true, .mixed = false}, 7, true);
  }
}

}  // namespace cuda_drafts_test
