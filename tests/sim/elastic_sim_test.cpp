#include <doctest/doctest.h>

#include <cstdlib>

#include "core/base/log.h"
#include "tests/sim/elastic_scenario.h"
#include "tests/sim/seeds.h"

using namespace hyb;
using namespace hyb::sim;

namespace {

/// Disks fail by the thousand here, and each is worth a warning.
struct Quiet {
  Quiet() { log::set_level(log::Level::error); }
  ~Quiet() { log::set_level(log::Level::info); }
};

/// HYB_SIM_SCHEDULES=100000 runs so many.
std::uint64_t schedules(std::uint64_t usual) {
  const char* wanted = std::getenv("HYB_SIM_SCHEDULES");
  return wanted == nullptr ? usual : std::strtoull(wanted, nullptr, 10);
}

void add(ElasticCounts& sum, const ElasticCounts& one) {
  sum.schedules += one.schedules;
  sum.steps += one.steps;
  sum.answers += one.answers;
  sum.requests += one.requests;
  sum.hits += one.hits;
  sum.evictions += one.evictions;
  sum.owner_changes += one.owner_changes;
  sum.preemptions += one.preemptions;
  sum.deferrals += one.deferrals;
  sum.prefix_waits += one.prefix_waits;
  sum.spills += one.spills;
  sum.fetches += one.fetches;
  sum.tier_waits += one.tier_waits;
  sum.dropped_fetches += one.dropped_fetches;
  sum.merges += one.merges;
  sum.failed_steps += one.failed_steps;
  sum.failed_reads += one.failed_reads;
  sum.failed_disks += one.failed_disks;
  sum.cancelled += one.cancelled;
  sum.packed += one.packed;
  sum.moved += one.moved;
  sum.withheld += one.withheld;
  sum.shrunk += one.shrunk;
  sum.short_of_memory += one.short_of_memory;
  sum.chained += one.chained;
}

bool is_found(Fault fault, bool checks_rules) {
  return any_seed_fails(
      500, [&](std::uint64_t seed) { run_elastic_scenario(seed, fault, checks_rules); });
}

}  // namespace

TEST_SUITE("sim/elastic") {
  TEST_CASE("every answer is the one that the request would get alone, whatever the memory does") {
    const Quiet quiet;
    ElasticCounts sum;
    const bool are_all = run_seeds(
        schedules(100'000), [&](std::uint64_t seed) { add(sum, run_elastic_scenario(seed)); });
    MESSAGE("schedules " << sum.schedules << ", steps " << sum.steps << ", requests "
                         << sum.requests << ", answers " << sum.answers << "; schedules with hits "
                         << sum.hits << ", evictions " << sum.evictions << ", owner changes "
                         << sum.owner_changes << ", preemptions " << sum.preemptions
                         << ", deferrals " << sum.deferrals << ", waits for a prefix "
                         << sum.prefix_waits << ", spills " << sum.spills << ", fetches "
                         << sum.fetches << ", waits for the tier " << sum.tier_waits
                         << ", dropped fetches " << sum.dropped_fetches << ", merged pages "
                         << sum.merges << ", failed steps " << sum.failed_steps << ", failed reads "
                         << sum.failed_reads << ", failed disks " << sum.failed_disks
                         << ", cancelled " << sum.cancelled << ", packed " << sum.packed
                         << ", moved " << sum.moved << ", superblocks withheld " << sum.withheld
                         << ", given back " << sum.shrunk << ", short of memory "
                         << sum.short_of_memory << ", chunks in pieces " << sum.chained);
    if (!are_all) return;
    const std::int64_t few = sum.schedules / 20;
    for (const std::int64_t count :
         {sum.hits, sum.evictions, sum.owner_changes, sum.preemptions, sum.deferrals,
          sum.prefix_waits, sum.spills, sum.fetches, sum.tier_waits, sum.failed_steps,
          sum.failed_reads, sum.failed_disks, sum.cancelled, sum.packed, sum.withheld, sum.shrunk,
          sum.chained}) {
      CHECK(count > few);
    }
    CHECK(sum.short_of_memory > sum.schedules / 100);
  }

  TEST_CASE("a sequence never stands before the state that its slot holds") {
    const Quiet quiet;
    // Nothing is drafted here, so this is no fault: a slot holds the state at its span's end alone,
    // as a real one does.
    run_seeds(5'000,
              [](std::uint64_t seed) { run_elastic_scenario(seed, Fault::rejected_token_kept); });
  }

  TEST_CASE("planted faults are found, by the rules and by the answers alone") {
    const Quiet quiet;
    for (const Fault fault :
         {Fault::partial_page_shared, Fault::slot_not_cleared, Fault::wrong_chunk_published,
          Fault::conv_window_cut_short, Fault::written_after_publishing,
          Fault::owner_changed_too_early, Fault::copies_of_one_group_lost,
          Fault::packed_without_pages, Fault::piece_starts_anew}) {
      CAPTURE(name_of(fault));
      CHECK(is_found(fault, true));
      CHECK(is_found(fault, false));
    }
    // Checksums keep its bytes out of every answer.
    CHECK(is_found(Fault::buffer_reused_too_early, true));
  }
}
