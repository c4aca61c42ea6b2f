#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/memory/pool/memory_pool.h"
#include "tests/sim/random.h"
#include "tests/sim/toy_runner.h"
#include "tests/support/free_units.h"

namespace hyb::sim::memory_sim {

/// Mistakes that a caller of the verbs, or the verbs themselves, could make.
enum class CallerBug {
  none,
  checkpoint_forgotten,    ///< never released
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
/// row is compared with the naive model and the pool is audited after every action. Throws
/// Violation at the first fault.
MemoryCounts run_memory_scenario(std::uint64_t seed, Bug bug = Bug::none,
                                 CallerBug caller_bug = CallerBug::none, bool checks_rules = true);

namespace {

struct Run {
  Memory memory;
  std::vector<TokenId> tokens;
  NaiveToy naive;
};

struct Saved {
  Checkpoint checkpoint;
  std::vector<TokenId> tokens;
  NaiveToy naive;
};

/// One run's part in a step; `history` is what its span points into.
struct Turn {
  std::size_t run;
  std::vector<TokenId> history;
  std::int32_t count;
};

class Scenario {
 public:
  Scenario(std::uint64_t seed, Bug bug, CallerBug caller_bug, bool checks_rules)
      : random_(seed),
        caller_bug_(caller_bug),
        model_(make_model(random_)),
        capacity_(make_capacity(random_, model_)),
        runner_(capacity_, model_, bug, checks_rules),
        pool_(capacity_.memory) {}

  MemoryCounts run() {
    for (int round = 0; round < 60; ++round) {
      for (int i = random_.between(0, 4); i > 0; --i) {
        act();
        audit();
      }
      step();
      audit();
    }
    while (!runs_.empty()) release();
    saved_.clear();
    pool_.audit({}, {});
    return counts_;
  }

 private:
  static ToyModel make_model(Random& random) {
    const std::int32_t kind = random.between(0, 5);
    return {.attention = kind != 0, .recurrence = kind != 1};
  }

  static MemoryLayout make_flat(Random& random, const ToyModel& model) {
    return flat_layout({.pages = model.attention ? random.between(2, 40) : 0,
                        .slots = model.recurrence ? random.between(1, 9) : 0,
                        .page_tokens = model.attention ? random.between(1, 5) : 0});
  }

  /// Pages, slots and packed snapshots share superblocks.
  static MemoryLayout make_elastic(Random& random, const ToyModel& model) {
    static const FullAttention full;
    MemoryLayout layout;
    layout.superblock_bytes = 100;
    layout.superblocks = random.between(2, 12);
    if (model.attention) {
      layout.page_tokens = random.between(1, 5);
      const std::int32_t pages = random.between(1, 8);
      layout.groups = {{.kind = &full,
                        .page_bytes = static_cast<std::size_t>(100 / pages),
                        .pages_per_superblock = pages}};
    }
    if (model.recurrence) {
      layout.slots = {.bytes = 31, .per_superblock = random.between(1, 3)};
      layout.packed = {.bytes = 12, .per_superblock = random.between(1, 8)};
    }
    return layout;
  }

  static Capacity make_capacity(Random& random, const ToyModel& model) {
    return {.memory = random.chance(50) ? make_flat(random, model) : make_elastic(random, model),
            .step_tokens = 24,
            .sequences_max = 24,
            .vocab = model.vocab};
  }

  void act() {
    switch (random_.between(0, 6)) {
      case 0:
        return start();
      case 1:
        return resume();
      case 2:
      case 3:
        return checkpoint();
      case 4:
        return release();
      case 5:
        return drop();
      default:
        return fork();
    }
  }

  void start() {
    std::optional<Memory> memory = pool_.start();
    if (!memory) return refuse(is_out_of_slots());
    ++counts_.starts;
    runs_.push_back({std::move(*memory), {}, NaiveToy(model_)});
  }

  void resume() {
    if (saved_.empty()) return;
    const Saved& saved = saved_[random_.below(saved_.size())];
    std::optional<Memory> memory = pool_.resume(saved.checkpoint);
    // A slot may have been free, but then no superblock for a page was left.
    if (!memory) return refuse(is_out_of_slots() || is_out_of_pages() || has_one_superblock());
    ++counts_.resumes;
    runs_.push_back({std::move(*memory), saved.tokens, saved.naive});
  }

  void checkpoint() {
    if (runs_.empty()) return;
    Run& run = runs_[random_.below(runs_.size())];
    if (run.memory.length() == 0) return;
    const bool packs = capacity_.memory.packed.per_superblock > 0 && random_.chance(40);
    std::optional<Checkpoint> checkpoint =
        run.memory.checkpoint(packs ? Precision::int8 : Precision::exact);
    if (!checkpoint) {
      const ViewId view = packs ? capacity_.memory.packed_view() : capacity_.memory.slot_view();
      return refuse(pool_.superblocks().units_free(view) == 0);
    }
    ++counts_.checkpoints;
    if (caller_bug_ == CallerBug::checkpoint_forgotten && random_.chance(5)) {
      forgotten_.push_back(std::move(*checkpoint));
      return;
    }
    saved_.push_back({std::move(*checkpoint), run.tokens, run.naive});
  }

  /// Several go on from one point, none of them having stepped yet.
  void fork() {
    checkpoint();
    resume();
    resume();
  }

  /// With a checkpoint of its end, or without.
  void release() {
    if (runs_.empty()) return;
    const std::size_t run = random_.below(runs_.size());
    if (runs_[run].memory.length() > 0 && random_.chance(50)) {
      const bool packs = capacity_.memory.packed.per_superblock > 0 && random_.chance(40);
      std::optional<Checkpoint> checkpoint =
          std::move(runs_[run].memory).final_checkpoint(packs ? Precision::int8 : Precision::exact);
      if (!checkpoint && !packs) throw Violation("an exact checkpoint of the end cannot fail");
      if (checkpoint) {
        ++counts_.checkpoints;
        saved_.push_back({std::move(*checkpoint), runs_[run].tokens, runs_[run].naive});
      }
    }
    runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(run));
    if (caller_bug_ == CallerBug::orders_lost_on_release) pool_.take_orders();
  }

  void drop() {
    if (saved_.empty()) return;
    const std::size_t at = random_.below(saved_.size());
    saved_.erase(saved_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  bool is_out_of_slots() const { return pool_.layout().has_slots() && slots_free(pool_) == 0; }
  bool is_out_of_pages() const {
    return pool_.layout().group_count() > 0 && pages_free(pool_) == 0;
  }
  bool has_one_superblock() const {
    return capacity_.memory.fixed_superblocks.empty() && pool_.usage().superblocks_free == 1;
  }

  void refuse(bool with_reason) {
    ++counts_.refused;
    if (!with_reason) throw Violation("memory was refused though there was some");
  }

  void step() {
    std::vector<Turn> turns;
    std::int32_t left = capacity_.step_tokens;
    for (std::size_t i = 0; i < runs_.size() && left > 0; ++i) {
      if (random_.chance(25)) continue;
      std::optional<Turn> turn = prepare(i, std::min(left, random_.between(1, 6)));
      if (!turn) continue;
      left -= turn->count;
      turns.push_back(std::move(*turn));
    }
    if (turns.empty()) return;
    std::shuffle(turns.begin(), turns.end(), std::mt19937_64(random_.bits()));
    Step step = {.orders = pool_.take_orders(), .spans = {}};
    for (const Turn& turn : turns) step.spans.push_back(span_of(turn));
    const StepResult result = runner_.run(step);
    ++counts_.steps;
    auto sampled = result.sampled.begin();
    for (const Turn& turn : turns) {
      compare_and_keep(turn, std::span(&*sampled, static_cast<std::size_t>(turn.count)));
      sampled += turn.count;
    }
    std::erase_if(runs_, [](const Run& run) { return run.memory.length() > 40; });
  }

  std::optional<Turn> prepare(std::size_t at, std::int32_t count) {
    Run& run = runs_[at];
    Turn turn = {.run = at, .history = run.tokens, .count = count};
    if (!run.memory.reserve(count)) {
      ++counts_.refused;
      turn.count = std::min(count, run.memory.room() - run.memory.length());
      if (turn.count <= 0) return std::nullopt;
    }
    for (std::int32_t i = 0; i < turn.count; ++i) {
      turn.history.push_back(TokenId{random_.between(0, model_.vocab - 1)});
    }
    return turn;
  }

  Span span_of(const Turn& turn) {
    const Memory& memory = runs_[turn.run].memory;
    const std::size_t before = turn.history.size() - static_cast<std::size_t>(turn.count);
    Span span = {.tokens = std::span(turn.history).subspan(before),
                 .position = memory.length(),
                 .tables = memory.tables(),
                 .read_slot = memory.read_slot(),
                 .write_slot = memory.write_slot(),
                 .samples = {}};
    if (caller_bug_ == CallerBug::foreign_page_table && turn.run > 0) {
      const std::span<const PageTable> other = runs_[turn.run - 1].memory.tables();
      if (!other.empty() && other[0].size() >= span.tables[0].size()) span.tables = other;
    }
    for (std::int32_t i = 0; i < turn.count; ++i) {
      span.samples.push_back({.token = i,
                              .params = &sampling_,
                              .draw = 0,
                              .history = turn.history,
                              .prompt_tokens = static_cast<std::int32_t>(turn.history.size())});
    }
    return span;
  }

  /// Any number of the tokens may turn out to be rejected drafts, even all.
  void compare_and_keep(const Turn& turn, std::span<const SampledToken> sampled) {
    Run& run = runs_[turn.run];
    const std::int32_t kept = random_.chance(60) ? turn.count : random_.between(0, turn.count);
    NaiveToy naive = run.naive;
    const std::size_t before = run.tokens.size();
    for (std::int32_t i = 0; i < turn.count; ++i) {
      const TokenId token = turn.history[before + static_cast<std::size_t>(i)];
      naive.push(token);
      const TokenId expected = draw(model_, naive.output(), sampling_, 0).token;
      if (sampled[static_cast<std::size_t>(i)].token != expected) {
        throw Violation("another token than the naive model's");
      }
      if (i >= kept) continue;
      run.tokens.push_back(token);
      run.naive = naive;
    }
    counts_.rejected += turn.count - kept;
    const bool too_many =
        caller_bug_ == CallerBug::rejected_tokens_kept && kept < turn.count && random_.chance(20);
    run.memory.keep(kept + (too_many ? 1 : 0));
    if (too_many) run.tokens.push_back(TokenId{0});
  }

  void audit() const {
    std::vector<const Memory*> memories;
    std::vector<const Checkpoint*> checkpoints;
    for (const Run& run : runs_) {
      memories.push_back(&run.memory);
      if (run.memory.length() != static_cast<std::int32_t>(run.tokens.size())) {
        throw Violation("length() is not what was kept");
      }
    }
    for (const Saved& saved : saved_) checkpoints.push_back(&saved.checkpoint);
    pool_.audit(memories, checkpoints);
  }

  Random random_;
  CallerBug caller_bug_;
  ToyModel model_;
  Capacity capacity_;
  ToyRunner runner_;
  MemoryPool pool_;
  SamplingParams sampling_;
  std::vector<Run> runs_;
  std::vector<Saved> saved_;
  std::vector<Checkpoint> forgotten_;
  MemoryCounts counts_;
};

}  // namespace

MemoryCounts run_memory_scenario(std::uint64_t seed, Bug bug, CallerBug caller_bug,
                                 bool checks_rules) {
  return Scenario(seed, bug, caller_bug, checks_rules).run();
}

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

}  // namespace hyb::sim::memory_sim
