#include <map>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/pool/superblocks.h"
#include "tests/sim/random.h"

namespace pool_superblocks_test {

using namespace hyb;

namespace {

MemoryLayout layout_of(std::int32_t superblocks, std::vector<std::int32_t> units,
                       std::vector<std::int32_t> fixed = {}) {
  static const FullAttention full;
  MemoryLayout layout;
  layout.page_tokens = 4;
  for (std::size_t i = 0; i + 3 < units.size(); ++i) {
    layout.groups.push_back({.kind = &full, .page_bytes = 1, .pages_per_superblock = units[i]});
  }
  layout.slots = {.bytes = 1, .per_superblock = units[units.size() - 3]};
  layout.packed = {.bytes = 1, .per_superblock = units[units.size() - 2]};
  layout.rings = {.bytes = 1, .per_superblock = units[units.size() - 1]};
  layout.superblock_bytes = 1000;
  layout.superblocks = superblocks;
  layout.fixed_superblocks = std::move(fixed);
  return layout;
}

/// The same promises by plain search over a list of everything.
class Oracle {
 public:
  explicit Oracle(const MemoryLayout& layout) : layout_(&layout) {}

  bool is_dry(ViewId view) const {
    const std::int32_t units = layout_->units_per_superblock(view);
    for (std::int32_t at = 0; at < layout_->superblocks; ++at) {
      if (!may_use(view, at)) continue;
      for (std::int32_t unit = at * units; unit < (at + 1) * units; ++unit) {
        if (!users.contains({view, unit})) return false;
      }
    }
    return true;
  }

  /// Fixed ones are the view's, free ones anybody's.
  bool may_use(ViewId view, std::int32_t superblock) const {
    const auto& fixed = layout_->fixed_superblocks;
    if (!fixed.empty()) {
      std::int32_t first = 0;
      for (std::int32_t v = 0; v < index(view); ++v) first += fixed[static_cast<std::size_t>(v)];
      return superblock >= first &&
             superblock < first + fixed[static_cast<std::size_t>(index(view))];
    }
    const std::optional<ViewId> user = user_of(superblock);
    return !user || (*user == view && !closed.contains(superblock));
  }

  std::optional<ViewId> user_of(std::int32_t superblock) const {
    for (const auto& [who, count] : users) {
      if (who.second / layout_->units_per_superblock(who.first) == superblock) return who.first;
    }
    return std::nullopt;
  }

  std::map<std::pair<ViewId, std::int32_t>, std::int32_t> users;
  std::set<std::int32_t> closed;

 private:
  const MemoryLayout* layout_;
};

void run_random(std::uint64_t seed) {
  sim::Random random(seed);
  const std::int32_t superblocks = random.between(1, 8);
  std::vector<std::int32_t> units;
  for (int i = random.between(3, 5); i > 0; --i) units.push_back(random.between(0, 70));
  std::vector<std::int32_t> fixed;
  if (random.chance(30)) {
    fixed.assign(units.size(), 0);
    for (int i = 0; i < superblocks; ++i) ++fixed[random.below(fixed.size())];
  }
  const MemoryLayout layout = layout_of(superblocks, units, fixed);
  Superblocks books(layout);
  Oracle oracle(layout);
  std::vector<ViewId> owners(static_cast<std::size_t>(superblocks), no_view);
  const std::int32_t takes = random.between(30, 90);
  for (int i = 0; i < 600; ++i) {
    const ViewId view{static_cast<std::int32_t>(random.below(units.size()))};
    if (random.chance(takes)) {
      const std::int32_t after = random.chance(50) ? -1 : random.between(0, 100);
      const bool dry = oracle.is_dry(view);
      const std::optional<TakenUnit> taken = books.take(view, after);
      REQUIRE(taken.has_value() == !dry);
      if (!taken) continue;
      const std::int32_t superblock = index(books.superblock_of(view, taken->unit));
      REQUIRE(oracle.may_use(view, superblock));
      REQUIRE(oracle.users.insert({{view, taken->unit}, 1}).second);
      if (fixed.empty()) {
        ViewId& owner = owners[static_cast<std::size_t>(superblock)];
        REQUIRE(taken->owner_changed == (owner != view));
        if (taken->owner_changed) REQUIRE(taken->owner_before == owner);
        owner = view;
      }
    } else if (!oracle.users.empty()) {
      auto at = oracle.users.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(random.below(oracle.users.size())));
      const auto [who, unit] = at->first;
      if (random.chance(20)) {
        books.share(who, unit);
        ++at->second;
      } else if (random.chance(3) && fixed.empty()) {
        const SuperblockId superblock = books.superblock_of(who, unit);
        books.close(superblock);
        oracle.closed.insert(index(superblock));
      } else {
        const SuperblockId superblock = books.superblock_of(who, unit);
        books.drop(who, unit);
        if (--at->second == 0) oracle.users.erase(at);
        const bool is_free = !oracle.user_of(index(superblock));
        if (is_free) oracle.closed.erase(index(superblock));
        REQUIRE(books[superblock].is_free == (is_free && fixed.empty()));
      }
    }
    if (i % 20 == 0) books.audit();
  }
  while (!oracle.users.empty()) {
    const auto at = oracle.users.begin();
    REQUIRE(books.users(at->first.first, at->first.second) == at->second);
    for (; at->second > 0; --at->second) books.drop(at->first.first, at->first.second);
    oracle.users.erase(at);
  }
  books.audit();
  for (std::size_t view = 0; view < units.size(); ++view) {
    CHECK(books.units_used(ViewId{static_cast<std::int32_t>(view)}) == 0);
  }
}

constexpr ViewId pages{0}, slots{1};

}  // namespace

TEST_SUITE("core/memory/superblocks") {
  TEST_CASE("random loads: nothing is handed out twice, and refused only when there is none") {
    for (std::uint64_t seed = 0; seed < 120; ++seed) {
      CAPTURE(seed);
      run_random(seed);
    }
  }

  TEST_CASE("the unit after the last one is preferred, then the fullest superblock") {
    Superblocks books(layout_of(3, {4, 2, 0, 0}));
    CHECK(books.take(pages)->unit == 0);
    CHECK(books.take(pages)->unit == 1);
    CHECK(books.take(pages, 1)->unit == 2);
    CHECK(books.take(pages, 2)->unit == 3);
    CHECK(books.take(pages, 3)->unit == 4);  // another superblock, a run all the same
    books.drop(pages, 0);
    books.drop(pages, 1);
    books.drop(pages, 2);
    books.take(pages, 4);
    CHECK(books.take(pages)->unit == 6);  // 2 of 4 are in use there, 1 of 4 in the first
  }

  TEST_CASE("a free superblock goes back to its last owner without an order") {
    Superblocks books(layout_of(2, {4, 2, 0, 0}));
    CHECK(books.take(slots)->owner_changed);
    CHECK(books.take(pages)->owner_changed);
    books.drop(slots, 0);
    books.drop(pages, 4);
    CHECK(books.free() == 2);
    const TakenUnit again = *books.take(pages);
    CHECK_FALSE(again.owner_changed);
    CHECK(again.unit == 4);
    for (int i = 0; i < 3; ++i) CHECK_FALSE(books.take(pages)->owner_changed);
    const TakenUnit flipped = *books.take(pages);
    CHECK(flipped.owner_changed);
    CHECK(flipped.owner_before == slots);
    CHECK_FALSE(books.take(slots));
    CHECK(books.units_free(pages) == 3);
    CHECK(books.units_free(slots) == 0);
    CHECK(books.units_idle(pages) == 3);
  }

  TEST_CASE("the sparsest is named only when the others have room for its units") {
    Superblocks books(layout_of(2, {4, 2, 0, 0}));
    for (int i = 0; i < 8; ++i) books.take(pages);
    CHECK_FALSE(books.sparsest(pages));
    books.drop(pages, 0);
    books.drop(pages, 4);
    books.drop(pages, 5);
    CHECK_FALSE(books.sparsest(pages));  // 2 in use, room for 1
    books.drop(pages, 1);
    REQUIRE(books.sparsest(pages));
    const SuperblockId found = *books.sparsest(pages);
    CHECK(books[found].used == 2);
    CHECK(books.units_in_use(found).size() == 2);
  }

  TEST_CASE("a layout that does not add up is refused") {
    CHECK_THROWS_AS(Superblocks(layout_of(2, {4, 2, 0, 0}, {1, 0, 0, 0})), Error);
    CHECK_THROWS_AS(Superblocks(layout_of(2, {4000, 2, 0, 0})), Error);
    CHECK_THROWS_AS(Superblocks(layout_of(-1, {4, 2, 0, 0})), Error);
  }
}

}  // namespace pool_superblocks_test
