#include <doctest/doctest.h>

#include "app/session.h"
#include "core/base/error.h"
#include "core/memory/footprint.h"
#include "models/families.h"

using namespace hyb;
using namespace hyb::app;

namespace {

struct Shape {
  explicit Shape(const std::string& name)
      : config(ModelSource::find(name, {}).config()),
        plan(models::family_of(config).plan(config)),
        geometry(models::geometry_of(plan)) {}

  MemoryPlan divide(const Budget& budget, std::int32_t context, std::int32_t sequences) const {
    return plan_memory(plan, geometry, budget, context, 2,
                       {.sequences_max = sequences, .chunk_tokens = 512});
  }

  /// Of a runner with these pools, whose sequences may have `length` tokens.
  std::size_t workspace_bytes(const MemoryPlan& memory, std::int32_t length,
                              std::int32_t sequences) const {
    models::RunnerOptions options =
        runner_options(plan, memory, {.sequences_max = sequences, .chunk_tokens = 512});
    options.positions_max = length;
    return models::ModelRunner::workspace_bytes(kernels::Device::cpu, plan, geometry, options, 2);
  }

  models::Config config;
  models::Plan plan;
  models::Geometry geometry;
};

std::int32_t wanted_length(const Shape& shape, std::int32_t context) {
  return context == 0 ? shape.plan.positions_max : context;
}

constexpr std::size_t gib = std::size_t{1} << 30;

}  // namespace

TEST_SUITE("app/memory_plan") {
  TEST_CASE("the parts never exceed the budget, and every sequence has a slot and room") {
    for (const char* name : {"granite-4.0-h-350m", "granite-4.0-h-tiny", "granite-4.0-h-micro"}) {
      const Shape shape(name);
      const std::size_t weights =
          models::packed_bytes(shape.plan, kernels::Device::cpu, {.activation = DType::bf16});
      for (const std::size_t spare : {gib / 4, gib, 8 * gib}) {
        for (const std::int32_t sequences : {1, 4, 64}) {
          for (const std::int32_t context : {0, 100, 5000}) {
            CAPTURE(name);
            CAPTURE(spare);
            CAPTURE(sequences);
            CAPTURE(context);
            const MemoryPlan plan = shape.divide(weights + spare, context, sequences);
            CHECK(plan.total() <= plan.budget);
            CHECK(can_ever_hold(plan.pools.layout, plan.length_max, 512));
            CHECK(sequences_at_once(plan.pools.layout, plan.length_max, sequences) <=
                  plan.sequences);
            // All that is left is theirs, but for what no superblock fits into, and tables of
            // positions that no sequence of these pools reaches.
            const std::size_t tables =
                shape.workspace_bytes(plan, wanted_length(shape, context), sequences) -
                plan.workspace;
            CHECK(plan.total() + tables <= plan.budget);
            CHECK(plan.total() + plan.pools.layout.superblock_bytes + tables > plan.budget);
            if (context != 0) CHECK(plan.length_max <= context);
          }
        }
      }
    }
  }

  TEST_CASE("a model that does not fit says what it needs and what it was given") {
    const Shape shape("granite-4.0-h-350m");
    try {
      shape.divide(gib / 4, 0, 1);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::memory);
      const std::string text = error.what();
      CHECK(text.find("256.0 MiB") != std::string::npos);
      CHECK(text.find("weights") != std::string::npos);
      CHECK(text.find("--quantize q8 or q4 makes the weights smaller, a smaller --context") !=
            std::string::npos);
      CHECK(text.find("cuBLASLt") == std::string::npos);
    }
    Budget card(gib / 4);
    card.library = 32U << 20;
    models::GeometryOptions q4;
    q4.quantize = kernels::Quantize::q4;
    try {
      plan_memory(shape.plan, models::geometry_of(shape.plan, q4), card, 0, 2, {});
      FAIL("no error");
    } catch (const Error& error) {
      const std::string text = error.what();
      CHECK(text.find("cuBLASLt 32.0 MiB") != std::string::npos);
      CHECK(text.find("--quantize") == std::string::npos);
      CHECK(text.find("; a smaller --context") != std::string::npos);
    }
  }

  TEST_CASE("--pool-memory bounds pages and slots, and says so when they cannot do with it") {
    const Shape shape("granite-4.0-h-350m");
    for (const std::size_t pool : {gib / 8, gib / 2, 4 * gib}) {
      const MemoryPlan plan = shape.divide({4 * gib, pool}, 0, 8);
      CHECK(plan.pool_bytes() <= pool);
      CHECK(plan.total() <= 4 * gib);
      CHECK(plan.sequences >= 1);
    }
    CHECK(shape.divide({4 * gib, 64 * gib}, 0, 8).pool_bytes() ==
          shape.divide(4 * gib, 0, 8).pool_bytes());
    try {
      shape.divide({4 * gib, std::size_t{1} << 20}, 0, 8);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::memory);
      CHECK(std::string(error.what()).find("--pool-memory allows 1.0 MiB") == 0);
    }
  }

  TEST_CASE("fixed pools hold the sequences that they were asked for") {
    const Shape shape("granite-4.0-h-350m");
    Budget budget(4 * gib);
    budget.mapping = mapping_of({.mode = "flat"}, kernels::Device::cpu);
    for (const std::int32_t sequences : {1, 8}) {
      const MemoryPlan plan =
          plan_memory(shape.plan, shape.geometry, budget, 2000, 2, {.sequences_max = sequences});
      CHECK(plan.sequences == sequences);
      CHECK(plan.length_max == 2000);
      CHECK(plan.pools.layout.fixed_superblocks.size() == 3);
      CHECK(plan.total() <= plan.budget);
    }
    CHECK(mapping_of({}, kernels::Device::cpu).mode == kernels::MapMode::remap);
    CHECK(mapping_of({}, kernels::Device::cuda).mode == kernels::MapMode::flip);
    CHECK(mapping_of({.strict_vmm = true}, kernels::Device::cpu).mode == kernels::MapMode::flip);
    CHECK_THROWS_AS(mapping_of({.mode = "remap", .strict_vmm = true}, kernels::Device::cpu), Error);
  }

  TEST_CASE("a small budget shortens the longest sequence before it refuses") {
    const Shape shape("granite-4.0-h-350m");
    const std::size_t fixed = shape.divide(4 * gib, 0, 1).weights +
                              shape.divide(4 * gib, 0, 1).workspace + 2 * shape.geometry.slot_bytes;
    const MemoryPlan tight = shape.divide(fixed + (std::size_t{64} << 20), 0, 1);
    CHECK(tight.length_max > 1000);
    CHECK(tight.length_max < shape.plan.positions_max);
    CHECK(shape.divide(4 * gib, 0, 1).length_max == shape.plan.positions_max);
  }
}
