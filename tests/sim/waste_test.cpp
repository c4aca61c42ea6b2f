#include <doctest/doctest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/engine/engine.h"

namespace waste_test {

using namespace hyb;

namespace {

const FullAttention full;

/// A published model: bytes per token of keys and values, bytes of a state, and how a
/// superblock holds them.
struct Shape {
  std::string name;
  std::size_t page_kib, slot_kib;  ///< of 16 tokens; of a sequence
  std::int32_t pages, slots;       ///< per superblock
};

MemoryLayout layout_of(const Shape& shape, std::size_t budget_bytes) {
  MemoryLayout layout;
  layout.page_tokens = 16;
  layout.groups = {
      {.kind = &full, .page_bytes = shape.page_kib << 10, .pages_per_superblock = shape.pages}};
  layout.slots = {.bytes = shape.slot_kib << 10, .per_superblock = shape.slots};
  layout.packed = {.bytes = (shape.slot_kib << 10) / 4, .per_superblock = 4 * shape.slots};
  layout.superblock_bytes =
      std::max(layout.groups[0].page_bytes * static_cast<std::size_t>(shape.pages),
               layout.slots.bytes * static_cast<std::size_t>(shape.slots));
  layout.superblocks = static_cast<std::int32_t>(budget_bytes / layout.superblock_bytes);
  return layout;
}

/// Draws the same token everywhere.
class NullRunner : public Runner {
 public:
  explicit NullRunner(MemoryLayout memory) : memory_(std::move(memory)) {}
  Capacity capacity() const override {
    return {.memory = memory_, .step_tokens = 8192, .sequences_max = 512, .vocab = 130000};
  }
  StepResult run(const Step& step) override {
    during_step();
    StepResult result;
    for (const Span& span : step.spans) {
      result.sampled.resize(result.sampled.size() + span.samples.size());
    }
    return result;
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}

  /// Called in every step, when all memory that it takes is taken.
  std::function<void()> during_step = [] {};

 private:
  MemoryLayout memory_;
};

class Silent : public Sink {
 public:
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId, std::int32_t, const Completion&) override {}
};

}  // namespace

TEST_SUITE("sim/waste") {
  TEST_CASE("while requests are queued, hardly a byte is idle in any step") {
    for (const Shape& shape :
         {Shape{"nemotron-nano-12b-v2", 384, 145379, 384, 1},
          Shape{"granite-4-tiny", 128, 56000, 448, 1}, Shape{"qwen3-next", 384, 75458, 576, 3},
          Shape{"nemotron-3-nano", 96, 48000, 512, 1}}) {
      for (const bool remembers : {true, false}) {
        NullRunner runner(layout_of(shape, std::size_t{16} << 30));
        Engine engine(runner, nullptr,
                      {.length_max = 40'000,
                       .sequences_max = 512,
                       .chunk_tokens = 2048,
                       .prefixes = {.enabled = remembers}});
        std::mt19937 random(3);
        Silent sink;
        const auto submit = [&] {
          Request request;
          request.prompt.resize(200 + random() % 3000);
          for (TokenId& token : request.prompt) {
            token = TokenId{static_cast<std::int32_t>(random() % 130000)};
          }
          request.max_tokens = static_cast<std::int32_t>(50 + random() % 400);
          engine.submit(std::move(request), sink);
        };
        // While the model runs: what sequences leave when they end is free between two steps.
        constexpr int steps_before = 1000, steps = 2000;
        double idle = 0, worst = 0;
        int step = 0;
        runner.during_step = [&] {
          if (step < steps_before) return;
          const PoolUsage usage = engine.usage().pool;
          const double share = static_cast<double>(usage.idle_bytes + usage.free_bytes) /
                               static_cast<double>(usage.total());
          idle += share / steps;
          worst = std::max(worst, share);
        };
        for (; step < steps_before + steps; ++step) {
          while (engine.waiting() < 20) submit();
          engine.step();
        }
        MESSAGE(std::string(shape.name) << std::string(remembers ? " with" : " without")
                                        << " prefixes: " << engine.running() << " run, idle "
                                        << idle * 100 << " % on average, " << worst * 100
                                        << " % at most, preempted " << engine.usage().preemptions);
        CHECK(worst < 0.05);
      }
    }
  }
}

}  // namespace waste_test
