#include "app/verify/snapshot_cost.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "app/runtime/model_outline.h"
#include "app/verify/passages.h"
#include "models/memory_layout.h"

namespace snapshot_cost_test {

using namespace hyb;
using namespace hyb::app;

namespace {

/// A tiny model on pools with packed snapshots.
struct Opened {
  explicit Opened(const std::string& name)
      : model([&] {
          ModelOptions options;
          options.model = std::string(HYB_TESTS_DIR) + "/golden/" + name;
          options.device = kernels::Device::cpu;
          options.threads = 1;
          return open_bare(resolve(options, {}));
        }()),
        layout(models::memory_layout_of(model.model.geometry,
                                        {.pool_bytes = 2 << 20, .packed = true, .flat = {}})),
        runner(model.queue, model.model.plan, model.model.weights, model.model.geometry,
               {.memory = layout,
                .step_tokens = 256,
                .sequences_max = 8,
                .positions_max = 80,
                .vocab_used = model.model.plan.vocab,
                .mapping = {.mode = kernels::MapMode::remap}}),
        passages(make_passages({.prompts = 5,
                                .answer_tokens = 6,
                                .length_max = 80,
                                .vocab = model.model.plan.vocab,
                                .seed = 3},
                               nullptr)) {}

  DivergenceSummary cost(std::int32_t snapshots) {
    SnapshotCost cost(runner, 7);
    for (const Passage& passage : passages) cost.measure(passage, snapshots);
    return cost.summary();
  }

  BareModel model;
  models::ModelMemoryLayout layout;
  models::ModelRunner runner;
  std::vector<Passage> passages;
};

}  // namespace

TEST_SUITE("app/verify/snapshot_cost") {
  TEST_CASE("int8 snapshots move distributions a little") {
    for (const char* name : {"granite-dense-nope", "granite-mamba-only", "granite-moe-nope"}) {
      CAPTURE(name);
      Opened opened(name);
      const DivergenceSummary once = opened.cost(1), often = opened.cost(8);
      CHECK(once.rows > 40);
      CHECK(often.rows > once.rows);
      for (const DivergenceSummary& sum : {once, often}) {
        CHECK(sum.mean > 0);
        CHECK(sum.mean < 0.01);
        CHECK(sum.mean <= sum.largest);
        CHECK(sum.p99 <= sum.largest);
        CHECK(sum.likeliest_differs < sum.rows / 10);
      }
      const DivergenceSummary again = opened.cost(1);
      CHECK(again.mean == once.mean);
      CHECK(again.rows == once.rows);
    }
  }

  TEST_CASE("without recurrent layers there is nothing to lose") {
    Opened opened("granite-attention-only");
    CHECK(opened.cost(8).rows > 40);
    CHECK(opened.cost(8).largest == 0);
  }

  TEST_CASE("one token has no row after a snapshot; no rows, no figures") {
    Opened opened("granite-mamba-only");
    opened.passages.resize(1);
    opened.passages[0].prompt.resize(1);
    opened.passages[0].answer_tokens = 1;
    CHECK(opened.cost(3).rows == 1);  // the token drawn is run, too
    CHECK(SnapshotCost(opened.runner, 1).summary().rows == 0);
    CHECK(SnapshotCost(opened.runner, 1).summary().mean == 0);
  }
}

}  // namespace snapshot_cost_test
