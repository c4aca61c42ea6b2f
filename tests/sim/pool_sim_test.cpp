#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "tests/sim/pool_oracle.h"
#include "tests/sim/seeds.h"

using namespace hyb;
using namespace hyb::sim;

namespace {

struct Counts {
  std::int64_t steps = 0, checkpoints = 0, packed = 0, resumes = 0, shorter = 0, filled = 0,
               owner_changes = 0, compacted = 0, given_back = 0, fallen_pages = 0;
};

/// Random lives on a pool of random sizes. After every action the books are audited; in every step
/// all that a sequence may read is compared with what it wrote, and so is every checkpoint.
class Life {
 public:
  explicit Life(std::uint64_t seed)
      : random_(seed), sizes_(random_), pool_(sizes_.layout), store_(sizes_.layout) {
    if (random_.chance(20)) pool_.limit_compaction(0);
  }

  Counts run() {
    for (int round = 0; round < 40; ++round) {
      for (int i = random_.between(0, 5); i > 0; --i) {
        act();
        audit();
      }
      step();
      audit();
    }
    counts_.owner_changes = pool_.owner_changes();
    counts_.compacted = pool_.compacted_units();
    runs_.clear();
    saved_.clear();
    pool_.audit({}, {});
    require(pool_.all_free(), "something is still held");
    return counts_;
  }

 private:
  struct Run {
    Memory memory;
    History history;
  };
  struct Saved {
    Checkpoint checkpoint;
    History history;
  };

  void act() {
    switch (random_.between(0, 8)) {
      case 0:
      case 1:
        return start();
      case 2:
      case 3:
        return resume();
      case 4:
      case 5:
        return checkpoint();
      case 6:
        return release();
      case 7:
        if (!saved_.empty()) erase(saved_, random_.below(saved_.size()));
        return;
      default:
        return random_.chance(50) ? fill() : give_back();
    }
  }

  template <typename Entry>
  void erase(std::vector<Entry>& entries, std::size_t at) {
    std::swap(entries[at], entries.back());
    entries.pop_back();
  }

  Precision any_precision() {
    const bool packs = sizes_.layout.packed.per_superblock > 0 && random_.chance(40);
    return packs ? Precision::int8 : Precision::exact;
  }

  void start() {
    std::optional<Memory> memory = pool_.start();
    require(memory || pool_.slots_free() == 0, "refused though a slot was free");
    if (memory) runs_.push_back({std::move(*memory), {}});
  }

  void resume() {
    if (saved_.empty()) return;
    const Saved& saved = saved_[random_.below(saved_.size())];
    std::int32_t length = saved.checkpoint.length();
    if (random_.chance(50)) length = random_.between(0, length);
    if (!pool_.can_resume(saved.checkpoint, length)) return;
    std::optional<Memory> memory = pool_.resume(saved.checkpoint, length);
    if (!memory) return;
    ++counts_.resumes;
    counts_.shorter += length < saved.checkpoint.length() ? 1 : 0;
    const auto end = saved.history.begin() + length;
    runs_.push_back({std::move(*memory), History(saved.history.begin(), end)});
  }

  void checkpoint() {
    if (runs_.empty()) return;
    Run& run = runs_[random_.below(runs_.size())];
    if (run.memory.length() == 0) return;
    std::optional<Checkpoint> made = run.memory.checkpoint(any_precision());
    if (made) save(std::move(*made), run.history);
  }

  void save(Checkpoint checkpoint, const History& history) {
    ++counts_.checkpoints;
    counts_.packed += checkpoint.packed() != no_packed ? 1 : 0;
    saved_.push_back({std::move(checkpoint), history});
  }

  void release() {
    if (runs_.empty()) return;
    const std::size_t at = random_.below(runs_.size());
    Run& run = runs_[at];
    if (run.memory.length() > 0 && random_.chance(50)) {
      const Precision precision = any_precision();
      std::optional<Checkpoint> made = std::move(run.memory).conclude(precision);
      require(made || precision == Precision::int8, "an exact checkpoint of the end cannot fail");
      if (made) save(std::move(*made), run.history);
    }
    erase(runs_, at);
  }

  void fill() {
    History history;
    for (int i = random_.between(1, 30); i > 0; --i) history.push_back(random_.bits());
    std::optional<Checkpoint> made =
        pool_.vacant(static_cast<std::int32_t>(history.size()), any_precision());
    if (!made) return;
    store_.carry_out(pool_.take_orders());
    store_.fill(*made, history);
    ++counts_.filled;
    saved_.push_back({std::move(*made), std::move(history)});
  }

  void give_back() { counts_.given_back += pool_.give_back(random_.between(0, 3)); }

  void step() {
    struct Turn {
      Run* run;
      std::int32_t tokens;
    };
    std::vector<Turn> turns;
    for (Run& run : runs_) {
      if (random_.chance(30)) continue;
      const std::int32_t wanted = random_.between(1, 9);
      const bool has_room = run.memory.reserve(wanted);
      const std::int32_t tokens = std::min(wanted, run.memory.room() - run.memory.length());
      require(!has_room || tokens == wanted, "what was reserved is there");
      if (tokens > 0) turns.push_back({&run, tokens});
    }
    store_.carry_out(pool_.take_orders());
    ++counts_.steps;
    for (const Run& run : runs_) check(run);
    for (const Saved& saved : saved_) check(saved);
    for (const Turn& turn : turns) {
      Run& run = *turn.run;
      for (std::int32_t i = 0; i < turn.tokens; ++i) run.history.push_back(random_.bits());
      store_.run(run.memory, run.history, turn.tokens);
      const std::int32_t kept = random_.chance(70) ? turn.tokens : random_.between(0, turn.tokens);
      run.memory.keep(kept);
      run.history.resize(static_cast<std::size_t>(run.memory.length()));
    }
    std::erase_if(runs_, [](const Run& run) { return run.memory.length() > 60; });
  }

  void check(const Run& run) const {
    if (run.history.empty()) return;
    store_.check(pool_, run.memory.tables(), run.history);
    store_.check_slot(run.memory.read_slot(), run.history);
  }

  void check(const Saved& saved) const {
    store_.check(pool_, saved.checkpoint.tables(), saved.history);
    store_.check_slot(saved.checkpoint.slot(), saved.history);
    store_.check_packed(saved.checkpoint.packed(), saved.history);
  }

  void audit() {
    std::vector<const Memory*> memories;
    std::vector<const Checkpoint*> checkpoints;
    for (const Run& run : runs_) {
      memories.push_back(&run.memory);
      for (const PageTable& table : run.memory.tables()) {
        counts_.fallen_pages += std::count(table.begin(), table.end(), no_page);
      }
    }
    for (const Saved& saved : saved_) checkpoints.push_back(&saved.checkpoint);
    pool_.audit(memories, checkpoints);
  }

  Random random_;
  RandomLayout sizes_;
  MemoryPool pool_;
  ToyStore store_;
  std::vector<Run> runs_;
  std::vector<Saved> saved_;
  Counts counts_;
};

}  // namespace

TEST_SUITE("sim/pool") {
  TEST_CASE("every sequence and checkpoint of any kinds finds what it wrote") {
    Counts sum;
    const bool are_all = run_seeds(600, [&](std::uint64_t seed) {
      const Counts counts = Life(seed).run();
      sum.steps += counts.steps;
      sum.checkpoints += counts.checkpoints;
      sum.packed += counts.packed;
      sum.resumes += counts.resumes;
      sum.shorter += counts.shorter;
      sum.filled += counts.filled;
      sum.owner_changes += counts.owner_changes;
      sum.compacted += counts.compacted;
      sum.given_back += counts.given_back;
      sum.fallen_pages += counts.fallen_pages;
    });
    MESSAGE("steps " << sum.steps << ", checkpoints " << sum.checkpoints << ", packed "
                     << sum.packed << ", resumes " << sum.resumes << ", shorter " << sum.shorter
                     << ", filled " << sum.filled << ", owner changes " << sum.owner_changes
                     << ", compacted " << sum.compacted << ", given back " << sum.given_back);
    if (!are_all) return;
    CHECK(sum.checkpoints > 1000);
    CHECK(sum.packed > 1000);
    CHECK(sum.resumes > 1000);
    CHECK(sum.shorter > 100);
    CHECK(sum.filled > 500);
    CHECK(sum.owner_changes > 1000);
    CHECK(sum.compacted > 300);
    CHECK(sum.given_back > 300);
    CHECK(sum.fallen_pages > 1000);
  }
}
