#include <set>

#include <doctest/doctest.h>

#include "app/bench/kernel_bench.h"
#include "app/machine/environment.h"

namespace kernel_bench_test {

using namespace hyb;
using namespace hyb::app;

namespace {

BareModel tiny_model() {
  ModelOptions options;
  options.model = HYB_TESTS_DIR "/golden/granite-moe-nope";
  options.device = kernels::Device::cpu;
  options.threads = 1;
  return open_bare(resolve(options, {}));
}

/// What the sequences draw after their depth when these are all tokens that the runner ever saw.
std::vector<TokenId> drawn_from_scratch(BareModel& model, const BenchCase& test,
                                        const std::vector<std::vector<TokenId>>& tokens) {
  CaseRoom room;
  room.include(test);
  room.longest_span = test.length();
  models::ModelRunner runner(model.queue, model.model.plan, model.model.weights,
                             model.model.geometry, CaseRun::needs(model, room, test.length()));
  const MemoryLayout layout = runner.capacity().memory;
  const std::int32_t slot = layout.first_unit(layout.slot_view());
  const SamplingParams greedy;
  std::vector<TokenId> drawn;
  for (const std::vector<TokenId>& sequence : tokens) {
    std::vector<PageTable> tables(layout.groups.size());
    for (std::int32_t page = 0; page * layout.page_tokens < test.length(); ++page) {
      tables[0].push_back(PageId{page});
    }
    Step step;
    step.spans.push_back({.tokens = sequence,
                          .position = 0,
                          .tables = tables,
                          .read_slot = no_slot,
                          .write_slot = SlotId{slot},
                          .samples = {{.token = static_cast<std::int32_t>(sequence.size()) - 1,
                                       .params = &greedy,
                                       .draw = 0,
                                       .history = {},
                                       .prompt_tokens = 0}}});
    drawn.push_back(runner.run(step).sampled.front().token);
  }
  return drawn;
}

}  // namespace

TEST_SUITE("app/bench/case_run") {
  TEST_CASE("a deeper case goes on from a shallower one as if it had begun at 0") {
    BareModel model = tiny_model();
    const BenchCase shallow = {.generate = 3, .depth = 21, .batch = 3};
    const BenchCase deep = {.generate = 5, .depth = 90, .batch = 3};
    CaseRoom room;
    room.include(shallow);
    room.include(deep);
    CaseRun run(model, room, 16);
    std::set<TokenId> seen;
    for (const BenchCase& test : {shallow, deep, deep}) {
      run.choose(test);
      REQUIRE(run.reach_depth());
      REQUIRE(run.repeat() > 0);
      std::vector<std::vector<TokenId>> tokens;
      std::vector<TokenId> drawn;
      for (std::int32_t i = 0; i < test.batch; ++i) {
        const auto all = run.tokens(i);
        tokens.emplace_back(all.begin(), all.end());
        drawn.push_back(run.drawn()[static_cast<std::size_t>(i)].token);
      }
      CHECK(drawn == drawn_from_scratch(model, test, tokens));
      seen.insert(drawn.begin(), drawn.end());
    }
    CHECK(seen.size() > 3);  // a model that always draws one token would show nothing
  }

  TEST_CASE("with probes once, all rows have the ceilings of the first") {
    BareModel model = tiny_model();
    model.settings.set_memory(std::size_t{1} << 30);  // no room for the read probe: it takes long
    KernelBench bench(model, {.repetitions = 1, .probes_once = true});
    const Ceilings first = bench.run({.prompt = 4}).ceilings;
    CHECK(first.flops_per_s > 0);
    CHECK(bench.run({.prompt = 4}).ceilings.flops_per_s == first.flops_per_s);
  }
}

}  // namespace kernel_bench_test
