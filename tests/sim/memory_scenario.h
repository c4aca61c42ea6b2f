#pragma once

#include <cstdint>

#include "tests/sim/toy_runner.h"

namespace hyb::sim {

/// Mistakes that a caller of the verbs, or the verbs themselves, could make.
enum class CallerBug {
  none,
  checkpoint_forgotten,    ///< never given back
  rejected_tokens_kept,    ///< keep() counts a draft that was not accepted
  orders_lost_on_release,  ///< releasing a sequence throws open orders away
  foreign_page_table,      ///< a span shows the page table of another sequence
};

/// What happened, to see that a scenario did not miss its point.
struct MemoryCounts {
  std::int64_t steps = 0, starts = 0, checkpoints = 0, resumes = 0, refused = 0, rejected = 0;
};

/// Random lives of several sequences on the five verbs: starts, spans with rejected drafts,
/// checkpoints and resumes at any moment, releases in any order, pools that run dry. Every sampled
/// row is compared with the naive model and the books are audited after every action. Throws
/// Violation at the first fault.
MemoryCounts run_memory_scenario(std::uint64_t seed, Bug bug = Bug::none,
                                 CallerBug caller_bug = CallerBug::none, bool checks_rules = true);

}  // namespace hyb::sim
