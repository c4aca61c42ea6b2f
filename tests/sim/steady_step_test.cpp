#include <doctest/doctest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "core/engine/engine.h"
#include "core/memory/pool/layout.h"

namespace {

thread_local std::int64_t allocations = 0;

}  // namespace

// Replaces the library's for the whole program, so that a test can count.
void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

// That of std::stable_sort's buffer: what it gives, too, the deletes below take back.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes > 0 ? bytes : 1);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace steady_step_test {

using namespace hyb;

namespace {

constexpr std::int32_t sequences = 32, prompt_tokens = 600, page_tokens = 16;

const FullAttention full;
const SlidingWindow window(100);

/// Draws the same token everywhere, and knows what it allocates itself.
class NullRunner : public Runner {
 public:
  Capacity capacity() const override {
    MemoryLayout memory;
    memory.page_tokens = page_tokens;
    memory.groups = {{.kind = &full, .page_bytes = 64, .pages_per_superblock = 64},
                     {.kind = &window, .page_bytes = 64, .pages_per_superblock = 64}};
    memory.slots = {.bytes = 1024, .per_superblock = 4};
    memory.superblock_bytes = 4096;
    memory.superblocks = 400;
    return {.memory = memory, .step_tokens = 2048, .sequences_max = sequences, .vocab = 1000};
  }
  StepResult run(const Step& step) override {
    const std::int64_t before = allocations;
    StepResult result;
    std::size_t rows = 0;
    for (const Span& span : step.spans) rows += span.samples.size();
    result.sampled.resize(rows);
    own = allocations - before;
    return result;
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}

  std::int64_t own = 0;
};

class Silent : public Sink {
 public:
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId, std::int32_t, const Completion&) override {}
};

}  // namespace

TEST_SUITE("sim/steady_step") {
  TEST_CASE(
      "a step in which sequences only go on asks for no heap memory, pages taken and dropped") {
    NullRunner runner;
    Silent sink;
    Engine engine(runner, nullptr,
                  {.length_max = 2000, .sequences_max = sequences, .measures_prefill = true});
    for (std::int32_t i = 0; i < sequences + 5; ++i) {  // five of them wait all the time
      Request request;
      request.prompt.assign(prompt_tokens, TokenId{i});
      request.max_tokens = 1000;
      engine.submit(std::move(request), sink);
    }
    while (engine.running() < sequences) engine.step();
    for (int i = 0; i < 100; ++i) engine.step();
    const std::int64_t pages = engine.usage().pool.pages[0].units;
    // A page table of up to 64 entries has its room by now: it grows at 1,024 tokens only.
    for (int i = 0; i < 208; ++i) {
      const std::int64_t before = allocations;
      engine.step();
      CHECK(allocations - before == runner.own);
    }
    CHECK(engine.running() == sequences);
    CHECK(engine.usage().pool.pages[0].units - pages == sequences * 208 / page_tokens);
  }
}

}  // namespace steady_step_test
