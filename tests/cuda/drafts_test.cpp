#include "tests/models/drafts.h"
#include "tests/support/level.h"

namespace cuda_drafts_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

enum class Drafting { none, own_layer, eagle3, dflash };

void check_world(const std::string& name, bool is_flat, const GraphOptions& graphs, unsigned seed,
                 Drafting drafting = Drafting::none) {
  CAPTURE(name);
  DraftWorld world(
      [&](kernels::Queue& queue) {
        TensorFiles files(golden_folder / name);
        std::optional<HeadFolder> head;
        if (drafting == Drafting::eagle3 || drafting == Drafting::dflash) {
          const std::string end = drafting == Drafting::dflash ? "-dflash" : "";
          const std::filesystem::path folder = tests_folder() / "heads" / (name + end);
          head.emplace(Config::from_folder(folder), TensorFiles(folder));
        }
        return load_model(
            queue, Config::from_folder(golden_folder / name), files,
            {.activation = DType::bf16, .with_drafts = drafting == Drafting::own_layer}, {},
            head ? &*head : nullptr);
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
    check_world("qwen3_5-dense", true, {}, 5, Drafting::own_layer);
    check_world("nemotron-latent", false, {.decode = true, .mixed = false}, 7, Drafting::own_layer);
  }

  TEST_CASE("batch-invariant: with an EAGLE-3 head, whose guesses are those without drafts") {
    check_world("granite-odd", true, {}, 5, Drafting::eagle3);
    check_world("llama-3", false, {.decode = true, .mixed = false}, 7, Drafting::eagle3);
  }

  TEST_CASE("batch-invariant: with a DFlash head, whose guesses are those without drafts") {
    check_world("qwen3_5-text", true, {}, 5, Drafting::dflash);
    check_world("llama-3", false, {.decode = true, .mixed = false}, 7, Drafting::dflash);
  }
}

}  // namespace cuda_drafts_test
