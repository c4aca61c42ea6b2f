#include "core/memory/appraisal.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "core/memory/kind.h"
#include "tests/support/prefix_keys.h"

using namespace hyb;
using namespace hyb::testing;

namespace {

const FullAttention full;
const SlidingWindow window(9);

/// A tree whose checkpoints share pages as far as their keys go: each is resumed from the nearest
/// above, or from one that diverges later, as running sequences would.
struct Shared {
  explicit Shared(const ToyShape& shape) : pool(toy_layout(shape)) {}

  Snapshot& insert(const char* text, const char* resumed_from = nullptr) {
    const Key key = key_of(text);
    std::optional<Memory> memory = pool.start();
    if (resumed_from != nullptr) {
      memory = pool.resume(snapshots.at(resumed_from)->checkpoint);
    }
    REQUIRE(memory);
    go_on(*memory, length_of(key) - memory->length());
    Snapshot* const snapshot =
        tree.insert(key, std::move(*std::move(*memory).conclude()), SnapshotPlace::turn_end);
    REQUIRE(snapshot != nullptr);
    snapshots[text] = snapshot;
    return *snapshot;
  }

  /// Bytes that really come free.
  std::size_t erase(const char* text) {
    const auto held = [&] {
      const PoolUsage usage = pool.usage();
      std::size_t bytes = usage.snapshot_slots.bytes;
      for (const PoolUsage::Group& group : usage.groups) bytes += group.pages.bytes;
      return bytes;
    };
    const std::size_t before = held();
    tree.erase(*snapshots.at(text));
    snapshots.erase(text);
    return before - held();
  }

  MemoryPool pool;
  PrefixTree tree;
  std::map<std::string, Snapshot*> snapshots;
};

}  // namespace

TEST_SUITE("core/memory/appraisal") {
  TEST_CASE("bytes are those that really come free") {
    for (const bool recurrent : {true, false}) {
      for (const auto& kinds :
           std::vector<std::vector<const MemoryKind*>>{{}, {&full}, {&window}, {&full, &window}}) {
        if (kinds.empty() && !recurrent) continue;
        Shared shared({.kinds = kinds, .recurrent = recurrent});
        const Appraisal appraisal(shared.pool.layout(), Precision::exact, {});
        shared.insert("abcdefgh");
        shared.insert("abcdefghijklmnop", "abcdefgh");
        shared.insert("abcdefghijklmnopqrstuvwxyz012345", "abcdefghijklmnop");
        shared.insert("abcdefghABCDEFGH", "abcdefgh");
        for (const char* text : {"abcdefghijklmnop", "abcdefghijklmnopqrstuvwxyz012345", "abcdefgh",
                                 "abcdefghABCDEFGH"}) {
          CAPTURE(text);
          const Standing standing = shared.tree.standing(*shared.snapshots.at(text));
          const std::size_t expected = appraisal.bytes(standing);
          CHECK(shared.erase(text) == expected);
        }
        CHECK(shared.pool.all_free());
      }
    }
  }

  TEST_CASE("seconds are those between it and the one above") {
    Shared shared({.kinds = {&full}});
    const PrefillCost cost{.seconds_per_token = 1, .seconds_per_token_squared = 0.5};
    const Appraisal appraisal(shared.pool.layout(), Precision::exact, cost);
    shared.insert("abcd");
    Snapshot& deep = shared.insert("abcdefgh", "abcd");
    CHECK(appraisal.seconds(shared.tree.standing(deep)) ==
          doctest::Approx(cost.of(8) - cost.of(4)));
    CHECK(appraisal.worth(shared.tree.standing(deep), 0.5) ==
          doctest::Approx(0.5 * (cost.of(8) - cost.of(4)) / (256 + 64)));
    shared.erase("abcd");
    CHECK(appraisal.seconds(shared.tree.standing(deep)) == doctest::Approx(cost.of(8)));
  }

  TEST_CASE("where every position can be resumed, a covered snapshot is worth nothing") {
    Shared shared({.kinds = {&full}, .recurrent = false});
    const Appraisal appraisal(shared.pool.layout(), Precision::exact, {});
    CHECK(appraisal.resumes_anywhere());
    Snapshot& covered = shared.insert("abcdefgh");
    CHECK(appraisal.worth(shared.tree.standing(covered), 1) > 0);
    Snapshot& deep = shared.insert("abcdefghijkl", "abcdefgh");
    CHECK(appraisal.bytes(shared.tree.standing(covered)) == 0);
    CHECK(appraisal.worth(shared.tree.standing(covered), 1) == 0);
    CHECK(appraisal.worth(shared.tree.standing(deep), 1) > 0);
  }

  TEST_CASE("a packed snapshot is that much lighter") {
    Shared shared({.kinds = {&full}});
    const Standing standing{.depth = 8};
    CHECK(Appraisal(shared.pool.layout(), Precision::exact, {}).bytes(standing) == 256 + 128);
    CHECK(Appraisal(shared.pool.layout(), Precision::int8, {}).bytes(standing) == 64 + 128);
  }
}
