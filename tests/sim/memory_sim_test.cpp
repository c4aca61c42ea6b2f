#include <doctest/doctest.h>

#include <exception>
#include <optional>
#include <string>

#include "tests/sim/memory_scenario.h"
#include "tests/sim/random.h"

using namespace hyb;
using namespace hyb::sim;

namespace {

/// Seeds needed until a fault shows; nullopt: none did.
std::optional<std::uint64_t> seeds_until_found(Bug bug, CallerBug caller_bug, bool checks_rules,
                                               std::uint64_t most) {
  for (std::uint64_t seed = 0; seed < most; ++seed) {
    try {
      run_memory_scenario(seed, bug, caller_bug, checks_rules);
    } catch (const std::exception&) {
      return seed + 1;
    }
  }
  return std::nullopt;
}

}  // namespace

TEST_SUITE("sim/memory") {
  TEST_CASE("the five verbs at random moments change no token and lose nothing") {
    MemoryCounts sum;
    const std::vector<std::uint64_t> all = seeds(400);
    for (const std::uint64_t seed : all) {
      try {
        const MemoryCounts counts = run_memory_scenario(seed);
        sum.steps += counts.steps;
        sum.checkpoints += counts.checkpoints;
        sum.resumes += counts.resumes;
        sum.refused += counts.refused;
        sum.rejected += counts.rejected;
      } catch (const std::exception& error) {
        FAIL("HYB_SIM_SEED=" << seed << " replays: " << error.what());
      }
    }
    MESSAGE("steps " << sum.steps << ", checkpoints " << sum.checkpoints << ", resumes "
                     << sum.resumes << ", refused " << sum.refused << ", rejected drafts "
                     << sum.rejected);
    if (all.size() == 1) return;
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
      CHECK(seeds_until_found(bug, CallerBug::none, true, 60).has_value());
      CHECK(seeds_until_found(bug, CallerBug::none, false, 60).has_value());
    }
  }

  TEST_CASE("a caller's bugs are found") {
    for (const CallerBug bug : {CallerBug::checkpoint_forgotten, CallerBug::rejected_tokens_kept,
                                CallerBug::orders_lost_on_release, CallerBug::foreign_page_table}) {
      CAPTURE(static_cast<int>(bug));
      CHECK(seeds_until_found(Bug::none, bug, true, 60).has_value());
    }
  }
}
