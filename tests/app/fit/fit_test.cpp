#include "app/fit/fit.h"

#include <doctest/doctest.h>

#include <string>

#include "core/base/error.h"

using namespace hyb;
using namespace hyb::app;

namespace {

constexpr std::size_t gib = std::size_t{1} << 30;

ModelOutline outline(const std::string& name, const ModelOptions& options = {}) {
  return outline_of(ModelSource::find(name, {}), options);
}

}  // namespace

TEST_SUITE("app/fit") {
  TEST_CASE("what is predicted is what opening the model sets aside") {
    const std::string golden = std::string(HYB_TESTS_DIR) + "/golden/";
    for (const std::string& name :
         {std::string("demo"), golden + "granite-dense-nope", golden + "granite-moe-nope",
          golden + "granite-mamba-only", golden + "granite-attention-only"}) {
      CAPTURE(name);
      ModelOptions options;
      options.model = name;
      options.memory = "200MiB";
      options.context = 500;
      options.threads = 2;
      if (name != "demo") options.kv_dtype = "fp8";
      const ModelOutline predicted = outline(name, options);
      const Fit fit(predicted, 200U << 20, 2);
      const MemoryPlan plan = fit.plan(500, 3);
      Session session = Session::open(options, {.sequences_max = 3, .chunk_tokens = 512}, {});

      CHECK(plan.weights == session.model().weights.bytes());
      CHECK(plan.workspace == session.runner().workspace_bytes());
      CHECK(plan.pool_bytes() == session.runner().pool_bytes());
      CHECK(session.memory().total() == plan.total());
      CHECK(session.engine().length_max() == plan.length_max);
    }
  }

  TEST_CASE("as many sequences as are promised fit, and not one more") {
    for (const char* name : {"granite-4.0-h-350m", "granite-4.0-h-micro", "qwen3-next-80b-a3b"}) {
      const ModelOutline model = outline(name);
      const std::size_t weights =
          models::packed_bytes(model.plan, kernels::Device::cpu, {.activation = model.activation});
      for (const std::size_t spare : {gib / 2, 3 * gib}) {
        const Fit fit(model, weights + spare, 2);
        std::int32_t before = Fit::sequences_max;
        for (const std::int32_t length : {100, 1024, 4096, 32768}) {
          CAPTURE(name);
          CAPTURE(length);
          const std::int32_t count = fit.sequences_of(length);
          CHECK(count <= before);
          before = count;
          if (count == 0) continue;
          const MemoryPlan plan = fit.plan(length, count);
          CHECK(plan.sequences == count);
          CHECK(plan.length_max == length);
          CHECK(plan.total() <= plan.budget);
          // Bytes that one more would need are not there: neither a slot nor its pages.
          const std::size_t one =
              model.geometry.slot_bytes +
              static_cast<std::size_t>((length + 15) / 16) * model.geometry.page_bytes;
          CHECK(plan.total() + one + one / 8 > plan.budget);
        }
      }
    }
  }

  TEST_CASE("the longest sequence fits alone, and not when it is some percent longer") {
    const ModelOutline model = outline("granite-4.0-h-micro");
    const Fit fit(
        model,
        models::packed_bytes(model.plan, kernels::Device::cpu, {.activation = model.activation}) +
            gib / 2,
        2);
    const std::int32_t length = fit.length_max();
    CHECK(length < model.plan.positions_max);
    CHECK(fit.sequences_of(length) == 1);
    CHECK(fit.sequences_of(length + length / 25) == 0);
  }

  TEST_CASE("a model that does not fit is an error of memory") {
    const ModelOutline model = outline("qwen3-next-80b-a3b");
    const Fit fit(model, 20 * gib, 2);
    CHECK(fit.sequences_of(100) == 0);
    try {
      fit.plan(0, 1);
      FAIL("it fits");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::memory);
    }
  }

  TEST_CASE("positions end where rope ends") {
    const ModelOutline rope = outline("qwen3-next-80b-a3b");
    CHECK(!Fit(rope, gib, 2).has_positions(rope.plan.positions_max + 1));
    const ModelOutline nope = outline("granite-4.0-h-350m");
    CHECK(Fit(nope, gib, 2).has_positions(nope.plan.positions_max + 1));
  }
}
