#include <doctest/doctest.h>

#include "tests/sim/memory_scenario.h"
#include "tests/sim/seeds.h"

using namespace hyb;
using namespace hyb::sim;

namespace {

bool is_found(Bug bug, CallerBug caller_bug, bool checks_rules) {
  return any_seed_fails(
      60, [&](std::uint64_t seed) { run_memory_scenario(seed, bug, caller_bug, checks_rules); });
}

}  // namespace

TEST_SUITE("sim/memory") {
  TEST_CASE("the five verbs at random moments change no token and lose nothing") {
    MemoryCounts sum;
    const bool are_all = run_seeds(400, [&](std::uint64_t seed) {
      const MemoryCounts counts = run_memory_scenario(seed);
      sum.steps += counts.steps;
      sum.checkpoints += counts.checkpoints;
      sum.resumes += counts.resumes;
      sum.refused += counts.refused;
      sum.rejected += counts.rejected;
    });
    MESSAGE("steps " << sum.steps << ", checkpoints " << sum.checkpoints << ", resumes "
                     << sum.resumes << ", refused " << sum.refused << ", rejected drafts "
                     << sum.rejected);
    if (!are_all) return;
    CHECK(sum.checkpoints > 1000);
    CHECK(sum.resumes > 1000);
    CHECK(sum.refused > 1000);
    CHECK(sum.rejected > 1000);
  }

  TEST_CASE("planted bugs are found, by the rules and by the tokens alone") {
    for (const Bug bug :
         {Bug::orders_ignored, Bug::orders_after_spans, Bug::orders_reversed, Bug::last_order_lost,
          Bug::copy_turned_round, Bug::copy_has_one_row, Bug::reads_write_slot,
          Bug::writes_read_slot, Bug::fresh_state_not_zero, Bug::chunk_forgets_state,
          Bug::rejected_tokens_kept, Bug::page_edge_off_by_one, Bug::neighbours_page_table,
          Bug::neighbours_state, Bug::answers_swapped, Bug::state_one_span_old,
          Bug::last_page_of_table_stale}) {
      CAPTURE(name_of(bug));
      CHECK(is_found(bug, CallerBug::none, true));
      CHECK(is_found(bug, CallerBug::none, false));
    }
  }

  TEST_CASE("a caller's bugs are found") {
    for (const CallerBug bug : {CallerBug::checkpoint_forgotten, CallerBug::rejected_tokens_kept,
                                CallerBug::orders_lost_on_release, CallerBug::foreign_page_table}) {
      CAPTURE(static_cast<int>(bug));
      CHECK(is_found(Bug::none, bug, true));
    }
  }
}
