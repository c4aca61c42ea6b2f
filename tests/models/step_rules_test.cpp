#include "models/step_rules.h"

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <vector>

#include "core/base/error.h"

namespace step_rules_test {

using namespace hyb;
using namespace hyb::models;

namespace {

const FullAttention full;

/// 8 pages of 4 tokens, 6 slots and 2 rings of 3 entries.
MemoryLayout small_memory() {
  MemoryLayout layout;
  layout.page_tokens = 4;
  layout.groups = {{.kind = &full, .page_bytes = 1, .pages_per_superblock = 4}};
  layout.slots = {.bytes = 1, .per_superblock = 3};
  layout.rings = {.bytes = 1, .per_superblock = 1};
  layout.ring_tokens = 3;
  layout.superblocks = 2;
  return layout;
}

/// Two sequences: one goes on after 5 tokens with one and two drafts, the other begins with two.
struct Bench {
  Span first() const {
    return {.tokens = std::span(tokens).first(3),
            .position = 5,
            .tables = tables,
            .read_slot = SlotId{0},
            .write_slot = SlotId{1},
            .samples = {},
            .drafts = 2,
            .ring = RingId{1},
            .ring_entries = 1};
  }
  Span second() const {
    return {.tokens = std::span(tokens).first(2),
            .position = 0,
            .tables = other_tables,
            .read_slot = no_slot,
            .write_slot = SlotId{2}};
  }

  bool allows(const Step& step) const {
    try {
      rules.check(step);
      return true;
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::runtime);
      return false;
    }
  }
  /// Says whether the step is allowed after a change of one span.
  bool allows_first(const std::function<void(Span&)>& change) const {
    Step step = {.orders = {}, .spans = {first(), second()}};
    change(step.spans.front());
    return allows(step);
  }
  bool allows_second(const std::function<void(Span&)>& change) const {
    Step step = {.orders = {}, .spans = {first(), second()}};
    change(step.spans.back());
    return allows(step);
  }

  std::vector<TokenId> tokens = {TokenId{1}, TokenId{2}, TokenId{9}};
  std::array<PageTable, 1> tables = {PageTable{PageId{0}, PageId{7}, PageId{1}}};
  std::array<PageTable, 1> other_tables = {PageTable{PageId{3}}};
  StepRules rules{{.memory = small_memory(),
                   .step_tokens = 6,
                   .sequences_max = 2,
                   .vocab = 8,
                   .step_spans = 3,
                   .step_samples = 3,
                   .step_branches = 0},
                  8,
                  10};
};

}  // namespace

TEST_SUITE("models/step_rules") {
  TEST_CASE("a step within the capacity, of memory that exists") {
    const Bench bench;
    CHECK(bench.allows_first([](Span&) {}));
    CHECK(bench.allows({}));
    CHECK(bench.rules.capacity().step_tokens == 6);
  }

  TEST_CASE("a step beyond the capacity") {
    const Bench bench;
    const std::vector<TokenId> many(4, TokenId{1});
    CHECK(bench.allows_second([&](Span& span) { span.tokens = std::span(many).first(3); }));
    CHECK(!bench.allows_second([&](Span& span) { span.tokens = std::span(many).first(4); }));
    CHECK(!bench.allows_first([](Span& span) { span.position = 6; }));
    CHECK(bench.allows_first([](Span& span) { span.samples.resize(3); }));
    CHECK(!bench.allows_first([](Span& span) { span.samples.resize(4); }));
    const std::vector<TokenId> unknown = {TokenId{10}};
    CHECK(!bench.allows_second([&](Span& span) { span.tokens = unknown; }));
    CHECK(!bench.allows_second([](Span& span) { span.tokens = {}; }));
    Step step = {.orders = {}, .spans = {bench.second()}};
    for (const std::int32_t slot : {3, 4, 5}) {
      CHECK(bench.allows(step));
      step.spans.push_back(bench.second());
      step.spans.back().tokens = step.spans.back().tokens.first(1);
      step.spans.back().write_slot = SlotId{slot};
    }
    CHECK(!bench.allows(step));  // four spans
  }

  TEST_CASE("pages exist where they are read, and have room") {
    const Bench bench;
    const auto with = [&](const std::vector<PageId>& pages) {
      const std::array<PageTable, 1> tables = {pages};
      return bench.allows_first([&](Span& span) { span.tables = tables; });
    };
    CHECK(with({PageId{0}, PageId{7}}));
    CHECK(!with({PageId{0}, PageId{8}}));
    CHECK(!with({PageId{0}}));
    CHECK(!with({no_page, PageId{7}}));  // full attention reads all
    CHECK(!bench.allows_first([](Span& span) { span.tables = {}; }));
  }

  TEST_CASE("slots exist; what one span writes another reads only where it continues it") {
    const Bench bench;
    CHECK(!bench.allows_first([](Span& span) { span.write_slot = SlotId{6}; }));
    CHECK(!bench.allows_first([](Span& span) { span.write_slot = no_slot; }));
    CHECK(!bench.allows_first([](Span& span) { span.read_slot = SlotId{6}; }));
    CHECK(!bench.allows_second([](Span& span) { span.write_slot = SlotId{1}; }));
    CHECK(!bench.allows_first([](Span& span) { span.read_slot = SlotId{2}; }));
    const auto continued = [&](std::int32_t position, const auto& tables) {
      Step step = {.orders = {}, .spans = {bench.second(), bench.second()}};
      step.spans.back().position = position;
      step.spans.back().tables = tables;
      step.spans.back().read_slot = SlotId{2};
      step.spans.back().write_slot = SlotId{3};
      return bench.allows(step);
    };
    CHECK(continued(2, bench.other_tables));
    CHECK(!continued(1, bench.other_tables));
    CHECK(!continued(2, bench.tables));
  }

  TEST_CASE("drafts are kept in a ring with room for them, those of a branch in its own") {
    const Bench bench;
    CHECK(!bench.allows_first([](Span& span) { span.ring = no_ring; }));
    CHECK(!bench.allows_first([](Span& span) { span.ring = RingId{2}; }));
    CHECK(!bench.allows_first([](Span& span) { span.ring_entries = 4; }));
    CHECK(!bench.allows_first([](Span& span) { span.drafts = 3; }));
    const auto branch = [](Span& span) {
      span.branch_ring = RingId{0};
      span.write_slot = no_slot;
    };
    CHECK(bench.allows_first(branch));
    CHECK(!bench.allows_first([&](Span& span) {
      branch(span);
      span.write_slot = SlotId{1};
    }));
    CHECK(!bench.allows_first([&](Span& span) {
      branch(span);
      span.branch_ring = RingId{2};
    }));
  }

  TEST_CASE("states move on by entries of a ring that exists") {
    const Bench bench;
    const AdvanceSlot order = {.from = SlotId{0}, .ring = RingId{1}, .entries = 3, .to = SlotId{5}};
    const auto is_refused = [&](const std::function<void(AdvanceSlot&)>& change) {
      AdvanceSlot changed = order;
      change(changed);
      CHECK_THROWS_AS(bench.rules.check(changed), Error);
    };
    bench.rules.check(order);
    is_refused([](AdvanceSlot& changed) { changed.from = SlotId{6}; });
    is_refused([](AdvanceSlot& changed) { changed.to = SlotId{6}; });
    is_refused([](AdvanceSlot& changed) { changed.ring = RingId{2}; });
    is_refused([](AdvanceSlot& changed) { changed.entries = 0; });
    is_refused([](AdvanceSlot& changed) { changed.entries = 4; });
  }

  TEST_CASE("drafts are made after what has run, up to the last position") {
    const Bench bench;
    const auto allows = [&](const std::function<void(Span&)>& change) {
      Span span = {.tokens = std::span(bench.tokens).first(1),
                   .position = 5,
                   .tables = bench.tables,
                   .read_slot = SlotId{0},
                   .write_slot = no_slot};
      span.samples.resize(1);
      span.drafts = 3;
      change(span);
      try {
        bench.rules.check_drafting({.orders = {}, .spans = {span}});
        return true;
      } catch (const Error&) {
        return false;
      }
    };
    CHECK(allows([](Span&) {}));
    CHECK(!allows([](Span& span) { span.drafts = 0; }));
    CHECK(!allows([](Span& span) { span.drafts = 4; }));  // 9 positions
    CHECK(!allows([](Span& span) { span.position = 0; }));
    CHECK(!allows([](Span& span) { span.read_slot = no_slot; }));
    CHECK(!allows([](Span& span) { span.write_slot = SlotId{1}; }));
    CHECK(!allows([](Span& span) { span.samples.clear(); }));
  }
}

}  // namespace step_rules_test
