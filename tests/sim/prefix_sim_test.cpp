#include <doctest/doctest.h>

#include "tests/sim/prefix_scenario.h"
#include "tests/sim/seeds.h"

using namespace hyb;
using namespace hyb::sim;

namespace {

void add(PrefixCounts& sum, const PrefixCounts& one) {
  sum.schedules += one.schedules;
  sum.steps += one.steps;
  sum.draws += one.draws;
  sum.lookups += one.lookups;
  sum.deepest += one.deepest;
  const auto count = [](std::int64_t& counter, std::int64_t value) {
    counter += value > 0 ? 1 : 0;
  };
  count(sum.hits, one.hits);
  count(sum.published, one.published);
  count(sum.evicted, one.evicted);
  count(sum.owner_changes, one.owner_changes);
  count(sum.shortened, one.shortened);
  count(sum.dry, one.dry);
  count(sum.failed_steps, one.failed_steps);
  count(sum.packed, one.packed);
  count(sum.page_copies, one.page_copies);
  count(sum.moved, one.moved);
}

bool is_found(Fault fault, Misuse misuse, bool checks_rules) {
  return any_seed_fails(
      300, [&](std::uint64_t seed) { run_prefix_scenario(seed, fault, misuse, checks_rules); });
}

}  // namespace

TEST_SUITE("sim/prefix") {
  TEST_CASE("whatever is resumed, packed, moved or given up, the answers stay") {
    PrefixCounts sum;
    const bool are_all =
        run_seeds(20'000, [&](std::uint64_t seed) { add(sum, run_prefix_scenario(seed)); });
    MESSAGE("schedules " << sum.schedules << ", steps " << sum.steps << ", draws " << sum.draws
                         << "; schedules with hits " << sum.hits << ", published " << sum.published
                         << ", evicted " << sum.evicted << ", owner changes " << sum.owner_changes
                         << ", shortened keeps " << sum.shortened << ", a dry pool " << sum.dry
                         << ", failed steps " << sum.failed_steps << ", packed " << sum.packed
                         << ", page copies " << sum.page_copies << ", moved units " << sum.moved
                         << "; lookups " << sum.lookups << ", deepest " << sum.deepest);
    if (!are_all) return;
    CHECK(sum.deepest > sum.lookups / 100 * 98);
    CHECK(sum.moved > sum.schedules / 400);  // compaction is the exception
    const std::int64_t few = sum.schedules / 20;
    for (const std::int64_t count :
         {sum.hits, sum.published, sum.evicted, sum.owner_changes, sum.shortened, sum.dry,
          sum.failed_steps, sum.packed, sum.page_copies}) {
      CHECK(count > few);
    }
  }

  TEST_CASE("planted faults are found, by the rules and by the answers alone") {
    for (const Fault fault :
         {Fault::partial_page_shared, Fault::slot_not_cleared, Fault::wrong_chunk_published,
          Fault::conv_window_cut_short, Fault::rejected_token_kept, Fault::written_after_publishing,
          Fault::owner_changed_too_early, Fault::copies_of_one_group_lost}) {
      CAPTURE(name_of(fault));
      CHECK(is_found(fault, Misuse::none, true));
      CHECK(is_found(fault, Misuse::none, false));
    }
  }

  TEST_CASE("misuse of pool, tree and kinds is found") {
    for (const Misuse misuse :
         {Misuse::published_before_its_step, Misuse::key_cut_at_the_lookup,
          Misuse::reference_leaked, Misuse::page_owned_twice, Misuse::window_freed_too_early,
          Misuse::tail_of_key_forgotten, Misuse::every_use_twice}) {
      CAPTURE(name_of(misuse));
      CHECK(is_found(Fault::none, misuse, true));
      CHECK(is_found(Fault::none, misuse, false));
    }
  }
}
