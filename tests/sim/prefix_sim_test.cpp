#include <algorithm>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/memory/pool/layout.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"
#include "tests/sim/layered_runner.h"
#include "tests/sim/random.h"
#include "tests/sim/toy_runner.h"

namespace hyb::sim::prefix_sim {

/// Bugs of users of pool and tree, or of a kind; the simulation has to find each.
enum class Misuse {
  none,
  published_before_its_step,  ///< a snapshot can be resumed from in the step that makes it
  key_cut_at_the_lookup,      ///< looks up one token less than there is
  reference_leaked,           ///< a checkpoint is never given back
  page_owned_twice,           ///< two sequences write to one page
  window_freed_too_early,     ///< a kind gives up the last page that it needs
  tail_of_key_forgotten,      ///< a snapshot is in the tree one token too early
  every_use_twice,            ///< a hit refreshes the snapshots above the used one too
};

const char* name_of(Misuse misuse);

/// Claims to need one position less than the kind does.
class ShortSighted final : public MemoryKind {
 public:
  explicit ShortSighted(const MemoryKind& kind) : kind_(&kind) {}
  std::string_view name() const override { return kind_->name(); }
  bool needs(PositionRange positions, std::int32_t length) const override {
    return kind_->needs(positions, length + 1);
  }

 private:
  const MemoryKind* kind_;
};

const char* name_of(Misuse misuse) {
  static const char* const names[] = {"none",
                                      "snapshot visible before its step is done",
                                      "key cut at the lookup",
                                      "reference leaked",
                                      "page owned twice",
                                      "window page freed too early",
                                      "tail of a key forgotten",
                                      "whole path refreshed"};
  return names[static_cast<int>(misuse)];
}

/// Knows by plain lists which snapshots a prefix tree holds, what can be resumed from them and in
/// which order they were used.
class SnapshotOracle {
 public:
  explicit SnapshotOracle(const MemoryLayout& layout) : layout_(layout) {}

  void add(std::span<const TokenId> key);
  void use(std::span<const TokenId> key);
  void clear() { known_.clear(); }

  /// Takes one out. Throws Violation when there is none, or when `in_order` and others were used
  /// longer ago: one of those may be spared, because a request resumes from it.
  void evict(std::span<const TokenId> key, bool in_order);

  /// The most tokens of the prompt, one less than it has, that can be resumed.
  std::int32_t deepest(std::span<const TokenId> prompt) const;

 private:
  struct Known {
    std::vector<TokenId> key;
    std::int64_t used_at;
  };
  std::vector<Known>::iterator find(std::span<const TokenId> key);
  bool holds_all(std::int32_t length, std::int32_t at) const;

  MemoryLayout layout_;
  std::vector<Known> known_;
  std::int64_t clock_ = 0;
};

void SnapshotOracle::add(std::span<const TokenId> key) {
  known_.push_back({.key = {key.begin(), key.end()}, .used_at = ++clock_});
}

void SnapshotOracle::use(std::span<const TokenId> key) {
  const auto found = find(key);
  if (found != known_.end()) found->used_at = ++clock_;
}

void SnapshotOracle::evict(std::span<const TokenId> key, bool in_order) {
  const auto found = find(key);
  if (found == known_.end()) throw Violation("evicted what was not there");
  const auto older = std::count_if(known_.begin(), known_.end(), [&](const Known& other) {
    return other.used_at < found->used_at;
  });
  if (in_order && older > 1) throw Violation("evicted what was used later than others");
  known_.erase(found);
}

std::int32_t SnapshotOracle::deepest(std::span<const TokenId> prompt) const {
  const auto most = static_cast<std::int32_t>(prompt.size()) - 1;
  std::int32_t best = 0;
  for (const Known& known : known_) {
    const auto end =
        std::mismatch(prompt.begin(), prompt.end(), known.key.begin(), known.key.end());
    const auto common = std::min(static_cast<std::int32_t>(end.first - prompt.begin()), most);
    const auto length = static_cast<std::int32_t>(known.key.size());
    if (layout_.slots.per_superblock > 0) {
      if (common == length) best = std::max(best, length);
      continue;
    }
    for (std::int32_t at = common; at > best; --at) {
      if (holds_all(length, at)) best = at;
    }
  }
  return best;
}

/// Whether a snapshot at `length` has every page that is needed at `at`.
bool SnapshotOracle::holds_all(std::int32_t length, std::int32_t at) const {
  const std::int32_t size = layout_.page_tokens;
  for (const PageGroup& group : layout_.groups) {
    for (std::int32_t first = 0; first < at; first += size) {
      const PositionRange page{first, std::min(first + size, at)};
      const bool wanted = first + size > at || group.kind->needs(page, at);
      const bool held = first + size > length || group.kind->needs({first, first + size}, length);
      if (wanted && !held) return false;
    }
  }
  return true;
}

std::vector<SnapshotOracle::Known>::iterator SnapshotOracle::find(std::span<const TokenId> key) {
  return std::find_if(known_.begin(), known_.end(), [&](const Known& known) {
    return std::equal(key.begin(), key.end(), known.key.begin(), known.key.end());
  });
}

struct PrefixCounts {
  std::int64_t schedules = 0, steps = 0, draws = 0, hits = 0, published = 0, evicted = 0,
               owner_changes = 0, shortened = 0, dry = 0, failed_steps = 0, packed = 0,
               page_copies = 0, moved = 0, lookups = 0, deepest = 0;
};

/// A random life of a pool and a prefix tree under a driver without engine: sequences with common
/// prefixes that start, resume, run in chunks, keep fewer tokens than they ran, publish, end
/// and are given up at any time, in pools that are almost always dry. Every draw is compared with
/// the naive model, every lookup with all snapshots there are (where kinds give up pages the tree
/// tries the nearest ones only: it may find a shorter prefix, never a longer one), the pool is
/// audited after every step, and at the end every byte is back. Throws Violation at the first
/// fault.
PrefixCounts run_prefix_scenario(std::uint64_t seed, Fault fault = Fault::none,
                                 Misuse misuse = Misuse::none, bool checks_rules = true);

namespace {

using Tokens = std::vector<TokenId>;

/// One sequence: what is known of it, and how far it ran.
struct Run {
  Memory memory;
  Tokens tokens;        ///< prompt, then what was drawn
  std::int32_t prompt;  ///< tokens of it
  std::int32_t goal;    ///< its length at the end
  std::vector<Cut> cuts;
  NaiveLayered naive;  ///< has seen memory.length() tokens
};

struct Turn {
  Run* run;
  Tokens tokens;  ///< of the span; the known ones, then drafts
  std::int32_t kept;
  Tokens history;
  SamplingParams params;
  bool is_kept = false;  ///< by a driver that does not wait for the step
};

class Scenario {
 public:
  Scenario(std::uint64_t seed, Fault fault, Misuse misuse, bool checks_rules)
      : random_(seed),
        misuse_(misuse),
        model_(random_),
        capacity_{.memory = make_layout(),
                  .step_tokens = 24,
                  .sequences_max = 24,
                  .vocab = model_.vocab()},
        runner_(capacity_, model_, fault, checks_rules),
        pool_(capacity_.memory),
        cache_(pool_, make_options()) {
    is_rough_ = random_.chance(30);
    for (std::size_t group = 0; group < model_.groups(); ++group) {
      keeps_all_ = keeps_all_ && model_.kind_of(group).name() == "full";
    }
    if (random_.chance(50)) pool_.limit_compaction(0);
    runner_.fails = [this] { return is_rough_ && random_.chance(1); };
    cache_.on_evict([this](std::span<const TokenId> key, const Snapshot&) {
      oracle_.evict(key, cache_.options().eviction == EvictionRule::lru && model_.is_recurrent());
    });
  }

  PrefixCounts run() {
    const std::int32_t rounds = random_.between(50, 60);
    for (std::int32_t round = 0; round < rounds; ++round) {
      act();
      step();
      pool_.audit();
    }
    while (!runs_.empty()) end(runs_.begin());
    audit();
    while (cache_.evict()) audit();
    if (!pool_.all_free()) throw Violation("not every byte is back");
    const PrefixCacheStats& stats = cache_.stats();
    counts_.schedules = 1;
    counts_.hits = stats.hits;
    counts_.published = stats.published;
    counts_.evicted = stats.evicted;
    counts_.owner_changes = pool_.usage().owner_changes;
    counts_.moved = pool_.usage().compacted_units;
    counts_.packed = runner_.packed;
    counts_.page_copies = runner_.page_copies;
    return counts_;
  }

 private:
  MemoryLayout make_layout() {
    MemoryLayout layout = random_layout(random_, model_);
    if (misuse_ != Misuse::window_freed_too_early) return layout;
    for (PageGroup& group : layout.groups) {
      kinds_.emplace_back(*group.kind);
      group.kind = &kinds_.back();
    }
    return layout;
  }

  PrefixCacheOptions make_options() {
    PrefixCacheOptions options;
    if (model_.is_recurrent() && random_.chance(40)) options.precision = Precision::int8;
    if (random_.chance(50)) options.eviction = EvictionRule::lru;
    options.branch_tokens_min = random_.between(1, 4);
    return options;
  }

  void audit() {
    std::vector<const Memory*> memories;
    for (const Run& run : runs_) memories.push_back(&run.memory);
    pool_.audit(memories, cache_.checkpoints());
    cache_.audit();
  }

  void act() {
    if (runs_.size() < 4 && (runs_.empty() || random_.chance(40))) start(make_prompt());
    if (random_.chance(10)) end(any_run());
    if (random_.chance(5)) cache_.evict();
    if (random_.chance(10)) audit();
  }

  std::list<Run>::iterator any_run() {
    return runs_.empty()
               ? runs_.end()
               : std::next(runs_.begin(), static_cast<std::ptrdiff_t>(random_.below(runs_.size())));
  }

  TokenId any_token() { return TokenId{random_.between(0, model_.vocab() - 1)}; }

  /// A prompt that begins as something seen before, more often than not.
  Tokens make_prompt() {
    Tokens prompt;
    if (!seen_.empty() && random_.chance(80)) {
      prompt = seen_[random_.below(seen_.size())];
      if (random_.chance(60)) prompt.resize(random_.below(prompt.size()) + 1);
    }
    if (prompt.size() > 40) prompt.resize(40);
    for (int i = random_.between(prompt.empty() ? 1 : 0, 6); i > 0; --i) {
      prompt.push_back(any_token());
    }
    return prompt;
  }

  void start(const Tokens& prompt) {
    Lookup lookup = look_up(prompt);
    std::optional<Memory> memory = cache_.resume(lookup);
    while (!memory) {
      ++counts_.dry;
      if (!cache_.evict(lookup.snapshot)) return;
      lookup = look_up(prompt);
      memory = cache_.resume(lookup);
    }
    note_use(lookup);
    const auto prompt_tokens = static_cast<std::int32_t>(prompt.size());
    const std::int32_t message_end = random_.between(0, prompt_tokens);
    Run& run = runs_.emplace_back(Run{.memory = *std::move(memory),
                                      .tokens = prompt,
                                      .prompt = prompt_tokens,
                                      .goal = prompt_tokens + random_.between(1, 12),
                                      .cuts = cache_.cuts(lookup, prompt, {&message_end, 1}),
                                      .naive = NaiveLayered(model_)});
    for (std::int32_t i = 0; i < run.memory.length(); ++i) {
      run.naive.push(prompt[static_cast<std::size_t>(i)]);
    }
  }

  Lookup look_up(const Tokens& prompt) {
    const std::span<const TokenId> whole(prompt);
    const bool cut = misuse_ == Misuse::key_cut_at_the_lookup && prompt.size() > 1;
    const Lookup lookup = cache_.look_up(cut ? whole.first(whole.size() - 1) : whole);
    const std::int32_t most = oracle_.deepest(prompt);
    const bool must_be_deepest = model_.is_recurrent() || keeps_all_;
    if (must_be_deepest ? lookup.resumable != most : lookup.resumable > most) {
      throw Violation("not the deepest snapshot was found");
    }
    ++counts_.lookups;
    if (lookup.resumable == most) ++counts_.deepest;
    return lookup;
  }

  void note_use(const Lookup& lookup) {
    if (lookup.snapshot == nullptr) return;
    const auto key = PrefixTree::key(*lookup.snapshot);
    oracle_.use(key);
    if (misuse_ != Misuse::every_use_twice) return;
    const Tokens copy(key.begin(), key.end());
    const Lookup above = cache_.look_up(copy);
    if (above.snapshot != nullptr && above.snapshot != lookup.snapshot) {
      Memory dropped = cache_.resume(above).value_or(Memory());
    }
  }

  void step();
  Span span_of(Turn& turn);
  void resume_too_early(std::vector<Turn>& turns, Step& step);
  std::optional<Turn> turn_of(Run& run, std::int32_t tokens_left);
  void settle(std::span<Turn> turns, const StepResult& result);
  void finish(Run& run, std::int32_t length_before);
  void publish(Run& run, SnapshotPlace place);
  void fail();

  void end(std::list<Run>::iterator run) {
    if (run == runs_.end()) return;
    if (seen_.size() > 6) seen_.erase(seen_.begin());
    seen_.push_back(run->tokens);
    runs_.erase(run);
  }

  void conclude(std::list<Run>::iterator run) {
    const std::int32_t length = run->memory.length();
    const Tokens key(run->tokens.begin(), run->tokens.begin() + length);
    const auto before = cache_.stats().published;
    cache_.publish_final(key, std::move(run->memory));
    if (cache_.stats().published > before) oracle_.add(key);
    end(run);
  }

  Random random_;
  Misuse misuse_;
  std::list<ShortSighted> kinds_;
  LayeredModel model_;
  Capacity capacity_;
  LayeredRunner runner_;
  MemoryPool pool_;
  std::vector<Checkpoint> leaked_;
  PrefixCache cache_;
  std::list<Run> runs_;
  std::vector<Tokens> seen_;
  SnapshotOracle oracle_{capacity_.memory};
  bool keeps_all_ = true;  ///< no kind ever gives up a page
  bool is_rough_ = false;
  PrefixCounts counts_;
};

/// The next chunk, up to the next cut; after the last known token some drafts, most of them wrong.
std::optional<Turn> Scenario::turn_of(Run& run, std::int32_t tokens_left) {
  const std::int32_t at = run.memory.length();
  std::int32_t known = static_cast<std::int32_t>(run.tokens.size()) - at;
  for (const Cut& cut : run.cuts) {
    if (cut.length > at) {
      known = std::min(known, cut.length - at);
      break;
    }
  }
  known = std::min({known, random_.between(1, 8), tokens_left});
  if (known <= 0) return std::nullopt;
  const bool reaches_end = at + known == static_cast<std::int32_t>(run.tokens.size());
  const std::int32_t drafts =
      reaches_end && random_.chance(30) ? std::min(random_.between(1, 3), tokens_left - known) : 0;
  while (!run.memory.reserve(known + drafts)) {
    ++counts_.dry;
    if (!cache_.evict()) return std::nullopt;
  }
  Turn turn{.run = &run, .tokens = {}, .kept = known, .history = {}, .params = {}};
  turn.tokens.assign(run.tokens.begin() + at, run.tokens.begin() + at + known);
  for (std::int32_t i = 0; i < drafts; ++i) turn.tokens.push_back(any_token());
  if (drafts > 0) ++counts_.shortened;
  turn.history.assign(run.tokens.begin(), run.tokens.begin() + at);
  turn.history.insert(turn.history.end(), turn.tokens.begin(), turn.tokens.end());
  return turn;
}

Span Scenario::span_of(Turn& turn) {
  Memory& memory = turn.run->memory;
  Span span{.tokens = turn.tokens,
            .position = memory.length(),
            .tables = memory.tables(),
            .read_slot = memory.read_slot(),
            .write_slot = memory.write_slot(),
            .samples = {}};
  span.samples.push_back({.token = turn.kept - 1,
                          .params = &turn.params,
                          .draw = 0,
                          .history = turn.history,
                          .prompt_tokens = 1});
  return span;
}

void Scenario::step() {
  std::vector<Turn> turns;
  std::int32_t tokens_left = capacity_.step_tokens;
  for (auto run = runs_.begin(); run != runs_.end();) {
    const auto next = std::next(run);
    if (random_.chance(85)) {
      std::optional<Turn> turn = turn_of(*run, tokens_left);
      if (turn) {
        tokens_left -= static_cast<std::int32_t>(turn->tokens.size());
        turns.push_back(*std::move(turn));
      } else if (tokens_left > 0 && turns.empty()) {
        end(run);  // nothing fits, and no other sequence will free memory: preempted
      }
    }
    run = next;
  }
  if (turns.empty() && pool_.orders().empty()) return;
  Step step;
  for (Turn& turn : turns) step.spans.push_back(span_of(turn));
  std::vector<PageTable> shared;
  if (misuse_ == Misuse::page_owned_twice && step.spans.size() > 1 && model_.groups() > 0) {
    shared.assign(step.spans[1].tables.begin(), step.spans[1].tables.end());
    shared[0].back() = step.spans[0].tables[0].back();
    step.spans[1].tables = shared;
  }
  if (misuse_ == Misuse::published_before_its_step) resume_too_early(turns, step);
  step.orders = pool_.take_orders();
  ++counts_.steps;
  try {
    settle(turns, runner_.run(step));
  } catch (const StepFailure&) {
    fail();
  }
}

/// Publishes what the first span is still to write, and resumes from it in the same step.
void Scenario::resume_too_early(std::vector<Turn>& turns, Step& step) {
  if (turns.empty() || !model_.is_recurrent()) return;
  Run& run = *turns.front().run;
  run.memory.keep(turns.front().kept);
  turns.front().is_kept = true;
  publish(run, SnapshotPlace::branch);
  Tokens prompt(run.tokens.begin(), run.tokens.begin() + run.memory.length());
  prompt.push_back(any_token());
  const std::size_t before = runs_.size();
  start(prompt);
  if (runs_.size() == before) return;
  std::optional<Turn> turn = turn_of(runs_.back(), 8);
  if (!turn) return;
  turns.push_back(*std::move(turn));
  for (std::size_t i = 0; i + 1 < turns.size(); ++i) step.spans[i].tokens = turns[i].tokens;
  for (std::size_t i = 0; i + 1 < turns.size(); ++i) {
    step.spans[i].samples.front().history = turns[i].history;
    step.spans[i].samples.front().params = &turns[i].params;
  }
  step.spans.push_back(span_of(turns.back()));
}

void Scenario::settle(std::span<Turn> turns, const StepResult& result) {
  for (std::size_t i = 0; i < turns.size(); ++i) {
    Turn& turn = turns[i];
    Run& run = *turn.run;
    for (std::int32_t t = 0; t < turn.kept; ++t) {
      run.naive.push(turn.tokens[static_cast<std::size_t>(t)]);
    }
    const SampledToken expected = model_.draw(run.naive.output(), turn.params, 0);
    const SampledToken& got = result.sampled.at(i);
    ++counts_.draws;
    if (got.token != expected.token || got.logprob != expected.logprob) {
      throw Violation("another answer than the naive model's");
    }
    const std::int32_t before = run.memory.length();
    if (!turn.is_kept) run.memory.keep(turn.kept);
    if (run.memory.length() == static_cast<std::int32_t>(run.tokens.size())) {
      run.tokens.push_back(got.token);
    }
    finish(run, before);
  }
}

void Scenario::finish(Run& run, std::int32_t length_before) {
  const std::int32_t length = run.memory.length();
  for (const Cut& cut : run.cuts) {
    if (cut.length > length_before && cut.length == length) publish(run, cut.place);
  }
  if (random_.chance(5)) publish(run, SnapshotPlace::branch);
  if (static_cast<std::int32_t>(run.tokens.size()) < run.goal) return;
  const auto found =
      std::find_if(runs_.begin(), runs_.end(), [&](const Run& other) { return &other == &run; });
  conclude(found);
}

void Scenario::publish(Run& run, SnapshotPlace place) {
  const auto length = static_cast<std::size_t>(run.memory.length());
  std::span<const TokenId> key = std::span<const TokenId>(run.tokens).first(length);
  if (misuse_ == Misuse::reference_leaked && random_.chance(20)) {
    std::optional<Checkpoint> leaked = run.memory.checkpoint();
    if (leaked) leaked_.push_back(*std::move(leaked));
  }
  if (misuse_ == Misuse::tail_of_key_forgotten && length > 1) {
    std::optional<Checkpoint> checkpoint = run.memory.checkpoint();
    if (!checkpoint) return;
    Tokens moved(run.tokens.begin(), run.tokens.begin() + static_cast<std::ptrdiff_t>(length));
    std::swap(moved.front(), moved.back());
    if (cache_.insert(moved, *std::move(checkpoint), place)) oracle_.add(moved);
    return;
  }
  if (cache_.publish(key, run.memory, place)) oracle_.add(key);
}

/// No sequence's memory can be trusted.
void Scenario::fail() {
  ++counts_.failed_steps;
  while (!runs_.empty()) end(runs_.begin());
  cache_.clear();
  oracle_.clear();
  pool_.resync_owners();
}

}  // namespace

PrefixCounts run_prefix_scenario(std::uint64_t seed, Fault fault, Misuse misuse,
                                 bool checks_rules) {
  return Scenario(seed, fault, misuse, checks_rules).run();
}

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
    const bool are_all = run_seeds(
        schedules(20'000), [&](std::uint64_t seed) { add(sum, run_prefix_scenario(seed)); });
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

}  // namespace hyb::sim::prefix_sim
