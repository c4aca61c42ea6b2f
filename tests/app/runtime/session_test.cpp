#include <string>

#include <doctest/doctest.h>
#include <CLI/CLI.hpp>

#include "app/runtime/fit.h"
#include "app/runtime/idle_memory.h"
#include "app/runtime/lanes.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/session.h"
#include "app/runtime/tiers.h"
#include "core/base/error.h"
#include "core/memory/pool/layout.h"
#include "models/families.h"
#include "tests/support/byte_runner.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace app_session_test {

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
      CHECK(text.find("--quantize q8 or q4 makes the weights smaller; a smaller --context") !=
            std::string::npos);
      CHECK(text.find("cuBLASLt") == std::string::npos);
    }
    Budget card(gib / 4);
    card.library = 32U << 20;
    models::GeometryOptions q4;
    q4.load.quantize = kernels::Quantize::q4;
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

  TEST_CASE("fixed pools hold the requested sequences") {
    const Shape shape("granite-4.0-h-350m");
    Budget budget(4 * gib);
    budget.mapping = mapping_of({.mode = kernels::MapMode::flat}, kernels::Device::cpu);
    for (const std::int32_t sequences : {1, 8}) {
      const MemoryPlan plan =
          plan_memory(shape.plan, shape.geometry, budget, 2000, 2, {.sequences_max = sequences});
      CHECK(plan.sequences == sequences);
      CHECK(plan.length_max == 2000);
      CHECK(plan.pools.layout.fixed_superblocks.size() == 4);
      CHECK(plan.total() <= plan.budget);
    }
    CHECK(mapping_of({}, kernels::Device::cpu).mode == kernels::MapMode::remap);
    CHECK(mapping_of({}, kernels::Device::cuda).mode == kernels::MapMode::flip);
    CHECK(mapping_of({.mode = {}, .strict_vmm = true}, kernels::Device::cpu).mode ==
          kernels::MapMode::flip);
    CHECK_THROWS_AS(
        mapping_of({.mode = kernels::MapMode::remap, .strict_vmm = true}, kernels::Device::cpu),
        Error);
  }

  TEST_CASE("on a card chunks are as large as its speed asks for and the memory allows") {
    Budget card(140 * gib);
    card.rates = {.bytes_per_s = 4.9e12, .flops_per_s = 1.07e15};
    const Shape tiny("granite-4.0-h-tiny"), dense("granite-4.0-h-350m");
    const auto plan = [](const Shape& shape, const Budget& budget, std::int32_t context,
                         const SessionShape& asked) {
      return plan_memory(shape.plan, shape.geometry, budget, context, 2, asked);
    };
    const MemoryPlan wide = plan(tiny, card, 0, {.sequences_max = 8});
    CHECK(wide.chunk_tokens == 16384);
    CHECK(wide.mixed_tokens == 16384);
    CHECK(chunk_text(wide) == "16384 tokens");
    CHECK(plan(dense, card, 0, {}).chunk_tokens == 2048);
    CHECK(wide.workspace > 8 * tiny.divide(card, 0, 8).workspace);

    const MemoryPlan nano = plan(Shape("nemotron-3-nano-30b-a3b"), card, 0, {});
    CHECK(chunk_text(nano) == "32768 tokens, 8192 where answers go on");
    CHECK(plan(tiny, card, 0, {.prefers_throughput = true}).mixed_tokens == 0);

    // -u has its way, the CPU and activations of f32 have what they had.
    const MemoryPlan asked = plan(tiny, card, 0, {.chunk_tokens = 700});
    CHECK(asked.chunk_tokens == 700);
    CHECK(asked.mixed_tokens == 0);
    CHECK(plan(tiny, 140 * gib, 0, {}).chunk_tokens == 512);
    CHECK(plan_memory(tiny.plan,
                      models::geometry_of(tiny.plan, {.load = {.activation = DType::f32}}), card, 0,
                      2, {})
              .chunk_tokens == 512);

    // No more than there is of all prompts, and in workspace an eighth of what the weights leave.
    CHECK(plan(tiny, card, 1000, {}).chunk_tokens == 1024);
    CHECK(plan(tiny, card, 1000, {.sequences_max = 4}).chunk_tokens == 4096);
    std::int32_t before = 512;
    for (const std::size_t spare : {gib / 2, 2 * gib, 8 * gib, 16 * gib, 64 * gib}) {
      card.bytes = wide.weights + spare;
      const MemoryPlan memory = plan(tiny, card, 0, {});
      CHECK(memory.chunk_tokens >= before);
      CHECK(memory.total() <= card.bytes);
      if (memory.chunk_tokens > 512) CHECK(memory.workspace <= spare / 8);
      CHECK(memory.workspace == [&] {
        models::RunnerOptions options = runner_options(tiny.plan, memory, {});
        return models::ModelRunner::workspace_bytes(kernels::Device::cpu, tiny.plan, tiny.geometry,
                                                    options, 2);
      }());
      before = memory.chunk_tokens;
    }
    CHECK(before == 16384);
    card.bytes = wide.weights + gib / 2;
    CHECK(plan(tiny, card, 0, {}).chunk_tokens < 16384);
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

using namespace hyb::testing;

TEST_SUITE("app/tiers") {
  TEST_CASE("sizes and folders that make no sense are refused with what to do") {
    const auto refused = [](const TierFlags& flags) {
      ModelOptions on_cpu;
      on_cpu.device = kernels::Device::cpu;
      return error_text([&] { check_tiers(flags, resolve(on_cpu, {})); });
    };
    CHECK(refused({}).empty());
    CHECK(refused({.disk_tier = 20'000'000'000, .disk_tier_folder = "/tmp", .host_tier = {}})
              .empty());
    for (const char* size : {"auto", "80%", "many", "-1GB"}) {
      CLI::App cli;
      TierFlags flags;
      add_tier_options(cli, flags);
      const auto words = std::string("--disk-tier=") + size;
      CHECK(contains(error_text([&] { cli.parse(std::vector<std::string>{words}); }),
                     "--disk-tier: '"));
    }
    CHECK(contains(refused({.disk_tier = {}, .disk_tier_folder = "", .host_tier = 8U << 20}),
                   "the pools are in the host's memory already"));
    CHECK(contains(refused({.disk_tier = {}, .disk_tier_folder = "/tmp", .host_tier = {}}),
                   "there is no --disk-tier"));
  }
}

using namespace std::chrono_literals;

namespace {

const FullAttention full;

/// A superblock is 4 pages of 4 tokens, or 2 slots.
MemoryLayout layout_of(std::int32_t superblocks) {
  MemoryLayout layout;
  layout.page_tokens = 4;
  layout.groups = {{.kind = &full, .page_bytes = 64, .pages_per_superblock = 4}};
  layout.slots = {.bytes = 128, .per_superblock = 2};
  layout.superblock_bytes = 256;
  layout.superblocks = superblocks;
  return layout;
}

struct World {
  ByteRunner runner{layout_of(20)};
  Engine engine{runner, nullptr, {.length_max = 100}};
  IdleMemory::Clock::time_point now{};

  Memory hold(std::int32_t tokens) {
    Memory memory = *engine.pool().start();
    REQUIRE(memory.reserve(tokens));
    engine.carry_out_orders();
    return memory;
  }
};

}  // namespace

TEST_SUITE("app/idle_memory") {
  TEST_CASE("memory that was unused for a while is released, but not what is in use now and then") {
    World world;
    IdleMemory idle(world.engine, 10.0, world.now);
    const auto look_after = [&](std::chrono::seconds time) { idle.poll(world.now += time); };
    {
      const Memory large = world.hold(96);  // 6 superblocks of pages and one of slots
      look_after(1s);
    }
    CHECK(world.engine.pool().superblocks().idle() == 7);
    look_after(8s);  // the large one held them when the time began
    look_after(1s);
    CHECK(world.engine.pool().superblocks().idle() == 7);
    for (int second = 1; second < 10; ++second) {
      const Memory small = world.hold(40);  // 3 and 1, every other one
      look_after(1s);
      CHECK(world.engine.pool().superblocks().idle() == 3);
    }
    look_after(1s);
    CHECK(world.engine.pool().superblocks().idle() == 4);  // the 3 left over went
    CHECK(world.engine.pool().orders().empty());
    look_after(10s);
    CHECK(world.engine.pool().superblocks().idle() == 0);
    const Memory again = world.hold(96);
    CHECK(world.engine.pool().superblocks().idle() == 0);
  }

  TEST_CASE("without seconds nothing is given back") {
    World world;
    IdleMemory idle(world.engine, std::nullopt, world.now);
    { const Memory large = world.hold(96); }
    for (int i = 0; i < 5; ++i) idle.poll(world.now += 1000s);
    CHECK(world.engine.pool().superblocks().idle() == 7);
  }

  TEST_CASE("while a person types nothing: first the work, then the time, then all that is free") {
    World world;
    { const Memory large = world.hold(96); }
    int pieces = 0;
    const auto work = release_memory_when_idle(world.engine, std::chrono::duration<double>(0.05),
                                               [&] { return ++pieces < 3; });
    const auto begin = std::chrono::steady_clock::now();
    while (work()) {
    }
    CHECK(std::chrono::steady_clock::now() - begin >= 50ms);
    CHECK(pieces == 3);
    CHECK(world.engine.pool().superblocks().idle() == 0);
  }

  TEST_CASE("while a person types nothing memory is prepared after the work") {
    ByteRunner runner{layout_of(20)};
    Engine engine(runner, nullptr, {.length_max = 100, .states_ahead = 3});
    int pieces = 0;
    const auto work = prepare_memory_when_idle(engine, [&] { return ++pieces < 3; });
    CHECK(work());
    CHECK(work());
    CHECK(engine.pool().superblocks().idle() == 0);
    CHECK_FALSE(work());
    CHECK(pieces == 3);
    CHECK(engine.pool().superblocks().idle() == 2);  // of 2 slots each
    CHECK(engine.pool().orders().empty());
    CHECK_FALSE(prepare_memory_when_idle(engine, {})());
    CHECK(engine.pool().superblocks().idle() == 2);
  }

  TEST_CASE("flat pools, and memory of prompts alone, are not given back, which is said") {
    ModelOptions options;
    options.device = kernels::Device::cpu;
    const auto check = [&](std::optional<double> seconds) {
      check_idle(seconds, resolve(options, {}));
    };
    CHECK_NOTHROW(check(5.0));
    options.pools.mode = kernels::MapMode::flat;
    CHECK_THROWS_AS(check(5.0), Error);
    CHECK_NOTHROW(check(std::nullopt));
    options.pools.mode.reset();
    options.lanes.is_on = true;
    CHECK_NOTHROW(check(5.0));
    options.lanes.prefill_device = "cpu:1";
    CHECK_THROWS_AS(check(5.0), Error);
  }
}

namespace {

/// Of bf16 as it is, on the CPU.
ModelOptions plain_weights(const std::string& name) {
  ModelOptions options;
  options.model = name;
  options.device = kernels::Device::cpu;
  options.types.lossless = false;
  return options;
}

}  // namespace

namespace {

class TokensOf final : public Sink {
 public:
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId, std::int32_t, const Completion& completion) override {
    tokens = completion.tokens;
  }
  std::vector<TokenId> tokens;
};

}  // namespace

TEST_SUITE("app/fit") {
  TEST_CASE("what is predicted is what opening the model sets aside") {
    const std::string golden = std::string(HYB_TESTS_DIR) + "/golden/";
    for (const std::string& name :
         {std::string("demo"), golden + "granite-dense-nope", golden + "granite-moe-nope",
          golden + "granite-mamba-only", golden + "granite-attention-only"}) {
      CAPTURE(name);
      ModelOptions options = plain_weights(name);
      options.memory = parse_memory("200MiB");
      options.context = 500;
      options.threads = 2;
      if (name.find("granite-mamba-only") != std::string::npos) {
        options.types.state = DType::bf16;
      } else if (name != "demo") {
        options.types.kv = DType::f8_e4m3;
      }
      const RunSettings settings = resolve(options, {});
      const ModelOutline predicted = outline_of(settings);
      const Fit fit(predicted, budget_of(settings), 2);
      const MemoryPlan plan = fit.plan(500, 3);
      Session session = Session::open(settings, {.sequences_max = 3, .chunk_tokens = 512});

      CHECK(plan.weights == session.model().weights.bytes());
      CHECK(plan.workspace == session.runner().workspace_bytes());
      CHECK(plan.pool_bytes() == session.runner().pool_bytes());
      CHECK(session.memory().total() == plan.total());
      CHECK(session.engine().length_max() == plan.length_max);
    }
  }

  TEST_CASE("with --disaggregate the second lane's workspace is part of the plan") {
    ModelOptions options = plain_weights("demo");
    options.memory = parse_memory("200MiB");
    options.context = 500;
    options.threads = 3;
    const auto plan_of = [&](const ModelOptions& of) {
      const RunSettings settings = resolve(of, {});
      return Fit(outline_of(settings), budget_of(settings), settings.threads).plan(500, 3);
    };
    const MemoryPlan alone = plan_of(options);
    options.lanes.is_on = true;
    const MemoryPlan plan = plan_of(options);
    CHECK(plan.workspace > 3 * alone.workspace / 2);
    CHECK(plan.pool_bytes() < alone.pool_bytes());
    Session session =
        Session::open(resolve(options, {}), {.sequences_max = 3, .chunk_tokens = 512});
    CHECK(session.memory().total() == plan.total());
    CHECK(session.memory().workspace == plan.workspace);
    CHECK(session.queue().threads() == 2);

    // Prompts are run there; answers are the same as with one lane.
    TokensOf first, second;
    Request request = session.request({});
    request.prompt.assign(300, TokenId{7});
    request.max_tokens = 20;
    const auto run = [&](TokensOf& sink) {
      session.engine().submit(request, sink);
      while (!session.engine().idle()) session.engine().step();
      CHECK(!sink.tokens.empty());
      return session.engine().usage().prefill_steps;
    };
    CHECK(run(first) == 1);
    session.set_disaggregated(false);
    CHECK(session.queue().threads() == 3);
    session.restart_engine({}, session.runner(), session.speculation());
    CHECK(run(second) == 0);
    CHECK(first.tokens == second.tokens);
  }

  TEST_CASE(
      "--disaggregate gives answers the larger half of the threads, unless flags say otherwise") {
    const auto lanes = [](int threads, int prefill, int decode) {
      ModelOptions options;
      options.device = kernels::Device::cpu;
      options.threads = threads;
      options.lanes = {.is_on = true, .prefill_threads = prefill, .decode_threads = decode};
      const RunSettings settings = resolve(options, {});
      const TwoLanes& both = *settings.lanes;
      CHECK(settings.threads == both.decode.threads + both.prefill.threads);
      return std::pair(both.prefill.threads, both.decode.threads);
    };
    CHECK(lanes(8, 0, 0) == std::pair(4, 4));
    CHECK(lanes(5, 0, 0) == std::pair(2, 3));
    CHECK(lanes(1, 0, 0) == std::pair(1, 1));
    CHECK(lanes(8, 6, 0) == std::pair(6, 2));
    CHECK(lanes(8, 0, 7) == std::pair(1, 7));
    CHECK(lanes(0, 2, 3) == std::pair(2, 3));
    CHECK(!resolve(plain_weights("demo"), {}).lanes.has_value());
  }

  TEST_CASE("the options' rule is read once") {
    const testing::TemporaryFolder folder;
    GenerationOptions options;
    options.rule.grammar = folder.write("g", "root ::= [a]").string();
    ModelOptions demo = plain_weights("demo");
    demo.context = 200;
    Session session = Session::open(resolve(demo, {}), {});
    const Constraint* const first = session.request(options).rule.get();
    CHECK(first != nullptr);
    std::filesystem::remove(*options.rule.grammar);
    CHECK(session.request(options).rule.get() == first);
  }

  TEST_CASE("weights in 12 bits take what samples of the files say") {
    ModelOptions options;
    options.types.lossless = true;
    options.device = kernels::Device::cpu;
    options.context = 500;
    const RunSettings settings = resolve(options, {});
    ModelOutline sampled = outline_of(settings);
    CHECK(!sample_lossless(settings, sampled).empty());
    const std::size_t predicted =
        weight_bytes(sampled.plan, kernels::Device::cpu, sampled.geometry.load);
    Session session = Session::open(settings, {});
    CHECK(static_cast<double>(predicted) ==
          doctest::Approx(static_cast<double>(session.model().weights.bytes())).epsilon(0.005));
  }

  TEST_CASE("as many sequences as are promised fit, and not one more") {
    for (const char* name : {"granite-4.0-h-350m", "granite-4.0-h-micro", "qwen3-next-80b-a3b"}) {
      const ModelOutline model = outline_of(resolve(plain_weights(name), {}));
      const std::size_t weights = models::packed_bytes(
          model.plan, kernels::Device::cpu, {.activation = model.geometry.load.activation});
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
    const ModelOutline model = outline_of(resolve(plain_weights("granite-4.0-h-micro"), {}));
    const Fit fit(model,
                  models::packed_bytes(model.plan, kernels::Device::cpu,
                                       {.activation = model.geometry.load.activation}) +
                      gib / 2,
                  2);
    const std::int32_t length = fit.length_max();
    CHECK(length < model.plan.positions_max);
    CHECK(fit.sequences_of(length) == 1);
    CHECK(fit.sequences_of(length + length / 25) == 0);
  }

  TEST_CASE("a model that does not fit is an error of memory") {
    const ModelOutline model = outline_of(resolve(plain_weights("qwen3-next-80b-a3b"), {}));
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
    const ModelOutline rope = outline_of(resolve(plain_weights("qwen3-next-80b-a3b"), {}));
    CHECK(!Fit(rope, gib, 2).has_positions(rope.plan.positions_max + 1));
    const ModelOutline nope = outline_of(resolve(plain_weights("granite-4.0-h-350m"), {}));
    CHECK(Fit(nope, gib, 2).has_positions(nope.plan.positions_max + 1));
  }
}

}  // namespace app_session_test
