#include "core/memory/session_memory.h"

#include <doctest/doctest.h>

#include <random>

#include "core/io/file.h"
#include "tests/support/error_text.h"
#include "tests/support/snapshot_world.h"
#include "tests/support/temporary_folder.h"

using namespace hyb;
using namespace hyb::testing;

namespace {

const SessionText text{.fingerprint = {{"weights", "abc"}}, .app = "the app's"};

/// A world with snapshots along and beside some sequences, saved.
struct SavedWorld {
  explicit SavedWorld(const std::filesystem::path& file, unsigned seed = 1,
                      const WorldShape& shape = {})
      : path(file), world(shape) {
    BranchingKeys keys(seed);
    for (int i = 0; i < 12; ++i) {
      const std::vector<TokenId> key = keys.next();
      const bool can_pack = shape.has_slots && i % 3 == 0;
      world.put(key, can_pack ? Precision::int8 : Precision::exact);
      if (i % 2 == 0) sequences.push_back(key);
    }
    saved = write_session(path, text, world.carrier, sequences);
  }

  bool is_saved(const Snapshot& snapshot) const {
    for (const auto& sequence : sequences) {
      const auto on_the_way = world.cache.tree().on_the_way(sequence);
      if (std::find(on_the_way.begin(), on_the_way.end(), &snapshot) != on_the_way.end()) {
        return true;
      }
    }
    return false;
  }

  std::filesystem::path path;
  SnapshotWorld world;
  std::vector<std::vector<TokenId>> sequences;
  SessionSaved saved;
};

/// Nothing of a refused file is in the pool; what was accepted is right to the byte.
void check_sound(SnapshotWorld& world, const SessionRestored& restored) {
  world.cache.audit();
  const auto checkpoints = world.cache.checkpoints();
  world.pool.audit({}, checkpoints);
  if (restored.refused.empty()) return;
  CHECK(restored.snapshots == 0);
  CHECK(world.cache.tree().size() == 0);
  CHECK(world.pool.all_free());
}

}  // namespace

TEST_SUITE("core/memory/session_memory") {
  TEST_CASE("every snapshot of the sequences comes back byte for byte, into pools of any size") {
    const TemporaryFolder folder;
    for (unsigned seed = 1; seed < 12; ++seed) {
      const WorldShape shape{
          .has_pages = seed % 4 != 1, .has_slots = seed % 4 != 2, .only_full = seed % 3 == 0};
      SavedWorld old(folder.path() / "s", seed, shape);
      REQUIRE(old.saved.snapshots > 3);
      WorldShape other = shape;
      other.superblocks = 90;
      other.padding_bytes = seed % 5 * 24;
      SnapshotWorld world(other);
      const SessionRestored restored = restore_session(old.path, text.fingerprint, world.carrier);
      CHECK(restored.refused.empty());
      CHECK(restored.left_out == 0);
      CHECK(restored.length == old.saved.length);
      CHECK(world.all_right());
      check_sound(world, restored);
      for (const Snapshot* snapshot : old.world.cache.tree().snapshots()) {
        const Snapshot* const back = world.at(PrefixTree::key(*snapshot));
        REQUIRE((back != nullptr) == old.is_saved(*snapshot));
        if (back == nullptr) continue;
        CHECK((back->checkpoint.packed() == no_packed) ==
              (snapshot->checkpoint.packed() == no_packed));
        CHECK(back->place == snapshot->place);
      }
      CHECK(world.pool.usage().idle_bytes + world.pool.usage().free_bytes > 0);
      CHECK(read_session(old.path).text->app == text.app);
    }
  }

  TEST_CASE("pages are shared in the file and after it: the restored take no more than the old") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    SnapshotWorld world;
    REQUIRE(restore_session(old.path, text.fingerprint, world.carrier).refused.empty());
    for (const Snapshot* snapshot : old.world.cache.tree().snapshots()) {
      if (!old.is_saved(*snapshot)) old.sequences.push_back(PrefixTree::key(*snapshot));
    }
    // Now with all snapshots of the tree.
    write_session(old.path, text, old.world.carrier, old.sequences);
    SnapshotWorld whole;
    REQUIRE(restore_session(old.path, text.fingerprint, whole.carrier).refused.empty());
    const PoolUsage was = old.world.pool.usage(), is = whole.pool.usage();
    for (std::size_t i = 0; i < was.groups.size(); ++i) {
      CHECK(is.groups[i].pages.units == was.groups[i].pages.units);
    }
    CHECK(is.snapshot_slots.units == was.snapshot_slots.units);
    CHECK(is.packed.units == was.packed.units);
  }

  TEST_CASE("restoring twice changes nothing") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    const auto units = old.world.pool.usage().groups[0].pages.units;
    const SessionRestored restored = restore_session(old.path, text.fingerprint, old.world.carrier);
    CHECK(restored.refused.empty());
    CHECK(old.world.pool.usage().groups[0].pages.units == units);
    CHECK(old.world.all_right());
  }

  TEST_CASE("a small pool takes what has room, a limit saves what has room") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    SnapshotWorld small({.superblocks = 6});
    const SessionRestored restored = restore_session(old.path, text.fingerprint, small.carrier);
    CHECK(restored.refused.empty());
    CHECK(restored.left_out > 0);
    CHECK(restored.snapshots > 0);
    CHECK(restored.snapshots + restored.left_out == old.saved.snapshots);
    CHECK(small.all_right());
    check_sound(small, restored);

    const SessionSaved less =
        write_session(old.path, text, old.world.carrier, old.sequences, old.saved.bytes / 2);
    CHECK(less.bytes <= old.saved.bytes / 2);
    CHECK(less.left_out > 0);
    SnapshotWorld world;
    CHECK(restore_session(old.path, text.fingerprint, world.carrier).snapshots == less.snapshots);
    CHECK(world.all_right());
  }

  TEST_CASE("another model, another layout, no memory: refused with the reason") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    SnapshotWorld world;
    const auto refused = [&](const std::filesystem::path& path, const Fingerprint& here,
                             SnapshotCarrier& carrier) {
      return restore_session(path, here, carrier).refused;
    };
    CHECK(contains(refused(old.path, {{"weights", "other"}}, world.carrier),
                   "\"weights\" is \"other\" here and \"abc\" there"));
    SnapshotWorld full({.only_full = true});
    CHECK(contains(refused(old.path, text.fingerprint, full.carrier), "another layout"));
    CHECK(contains(refused(folder.path() / "none", text.fingerprint, world.carrier), "none: "));
    write_session(old.path, text);
    CHECK(contains(refused(old.path, text.fingerprint, world.carrier), "sections"));
    CHECK(world.pool.all_free());
  }

  TEST_CASE("flipped bits and cuts anywhere: refused whole, or of no consequence") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    const std::string good = read_whole_file(old.path, std::size_t{1} << 30);
    std::mt19937 random(7);
    SnapshotWorld world;
    int refused = 0;
    constexpr int rounds = 300;
    for (int i = 0; i < rounds; ++i) {
      std::string bad = good;
      if (i % 8 == 0) {
        bad.resize(random() % bad.size());
      } else {
        const std::size_t reach = i % 2 == 0 ? bad.size() : std::min<std::size_t>(2000, bad.size());
        bad[random() % reach] ^= static_cast<char>(1U << random() % 8);
      }
      const SessionRestored restored =
          restore_session(folder.write("bad", bad), text.fingerprint, world.carrier);
      check_sound(world, restored);
      CHECK(world.all_right());
      refused += !restored.refused.empty();
      world.cache.clear();
    }
    CHECK(refused > rounds * 9 / 10);  // only the app's text is not looked at here
  }

  TEST_CASE("numbers that lie, under good checksums: refused, or a snapshot nobody can reach") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    struct Part {
      SectionHead head;
      std::string payload;
    };
    std::vector<Part> parts;
    constexpr SectionFormat format{.magic = {'H', 'Y', 'B', 'S', 'E', 'S', 'S', '\n'},
                                   .version = 1};
    SectionReader reader(old.path, format);
    while (const auto head = reader.next()) {
      Part& part = parts.emplace_back(Part{*head, std::string(head->length, '\0')});
      reader.read(std::as_writable_bytes(std::span(part.payload)));
    }
    std::mt19937 random(9);
    SnapshotWorld world;
    int refused = 0;
    constexpr int rounds = 300;
    for (int i = 0; i < rounds; ++i) {
      std::vector<Part> bad = parts;
      for (std::uint32_t n = 1 + random() % 2; n > 0; --n) {
        Part& part = bad[random() % std::min<std::size_t>(bad.size(), 30)];
        switch (random() % 6) {
          case 0:
            part.head.kind = random() % 8;
            break;
          case 1:
            part.head.number = random() % 20;
            break;
          case 2:
            part.payload.resize(random() % (part.payload.size() + 9));
            break;
          case 3:
            std::swap(part, bad[random() % bad.size()]);
            break;
          default:
            if (part.payload.empty()) break;
            part.payload[random() % part.payload.size()] = static_cast<char>(random() % 256);
        }
      }
      SectionWriter writer(folder.path() / "bad", format);
      for (const Part& part : bad) {
        writer.add(part.head.kind, part.head.number, std::as_bytes(std::span(part.payload)));
      }
      writer.commit();
      const SessionRestored restored =
          restore_session(folder.path() / "bad", text.fingerprint, world.carrier);
      check_sound(world, restored);
      refused += !restored.refused.empty();
      world.cache.clear();
      CHECK(world.pool.all_free());
    }
    CHECK(refused > rounds / 3);
  }
}
