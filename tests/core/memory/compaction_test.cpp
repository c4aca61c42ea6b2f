#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "core/memory/memory.h"
#include "tests/sim/random.h"

using namespace hyb;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

/// A hybrid model's superblock: slots or pages of 16 tokens.
struct Hybrid {
  std::size_t superblock_mib;
  std::int32_t slots, pages;
};

MemoryLayout layout_of(const Hybrid& model, std::size_t budget) {
  static const FullAttention full;
  MemoryLayout layout;
  layout.page_tokens = 16;
  layout.superblock_bytes = model.superblock_mib * mib;
  layout.groups = {{.kind = &full,
                    .page_bytes = layout.superblock_bytes / static_cast<std::size_t>(model.pages),
                    .pages_per_superblock = model.pages}};
  layout.slots = {.bytes = layout.superblock_bytes / static_cast<std::size_t>(model.slots),
                  .per_superblock = model.slots};
  layout.superblocks = static_cast<std::int32_t>(budget / layout.superblock_bytes);
  return layout;
}

struct Run {
  Memory memory;
  std::int32_t prompt, length;
};

/// Sequences of random lengths come as soon as there is a slot for them. In a step each that has
/// its prompt behind it runs one token, and the prompts share 2,048; when memory is dry the
/// youngest is sent away. Returns the largest share of the budget that lay idle while one more
/// waited.
double idle_share(MemoryPool& pool, sim::Random& random, int steps) {
  std::vector<Run> runs;
  const auto run = [&](std::size_t i, std::int32_t tokens) {
    while (i < runs.size() && !runs[i].memory.reserve(tokens)) runs.pop_back();
    if (i < runs.size()) runs[i].memory.keep(tokens);
  };
  double most = 0;
  for (int step = 0; step < steps; ++step) {
    while (std::optional<Memory> memory = pool.start()) {
      const std::int32_t prompt = random.between(100, 4000);
      runs.push_back({std::move(*memory), prompt, prompt + random.between(50, 1000)});
    }
    // One more was refused just now.
    const PoolUsage usage = pool.usage();
    const auto idle = static_cast<double>(usage.idle_bytes + usage.free_bytes);
    if (step > 100) most = std::max(most, idle / static_cast<double>(pool.layout().bytes()));
    std::int32_t left = 2048;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::int32_t missing = runs[i].prompt - runs[i].memory.length();
      if (missing <= 0) {
        run(i, 1);
      } else if (left > 0) {
        const std::int32_t tokens = std::min({missing, left, 512});
        left -= tokens;
        run(i, tokens);
      }
    }
    pool.take_orders();
    std::erase_if(runs, [](const Run& each) { return each.memory.length() == each.length; });
  }
  return most;
}

}  // namespace

TEST_SUITE("core/memory/compaction") {
  TEST_CASE("while somebody waits, less than 5 percent of the budget lies idle") {
    // granite-tiny, Nemotron-3-Nano, Nano-12B-v2, Qwen3-Next (memory.md 5.4).
    const Hybrid models[] = {{56, 1, 448}, {48, 1, 512}, {144, 1, 384}, {222, 3, 576}};
    for (const Hybrid& model : models) {
      CAPTURE(model.superblock_mib);
      MemoryPool pool(layout_of(model, std::size_t{40} << 30));
      sim::Random random(7);
      const double idle = idle_share(pool, random, 1500);
      MESSAGE("superblock " << model.superblock_mib << " MiB: " << 100 * idle << " % idle at most, "
                            << pool.compacted_units() << " units copied, " << pool.owner_changes()
                            << " changes of owner");
      CHECK(idle < 0.05);
    }
  }
}
