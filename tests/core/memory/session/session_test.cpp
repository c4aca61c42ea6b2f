#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/io/file.h"
#include "core/memory/session/session.h"
#include "core/memory/session/session_format.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/snapshot_world.h"

namespace session_session_test {

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("core/memory/fingerprint") {
  TEST_CASE("the first difference is named, with both values") {
    const Fingerprint here = {{"a", "1"}, {"b", "2"}};
    CHECK(difference(here, here).empty());
    CHECK(difference(here, {{"a", "1"}, {"b", "3"}}) == "\"b\" is \"2\" here and \"3\" there");
    CHECK(difference(here, {{"a", "1"}}) == "\"b\" is \"2\" here and not given there");
    CHECK(difference({{"a", "1"}}, here) == "\"b\" is not given here and \"2\" there");
  }

  TEST_CASE("what comes from a file can't send escape sequences") {
    CHECK(difference({}, {{"\x1b[2J", "\x1b]0;x"}}).find('\x1b') == std::string::npos);
  }

  TEST_CASE("to JSON and back") {
    const Fingerprint fingerprint = {{"a", "1"}, {"\"", "ü\n"}};
    CHECK(fingerprint_from(parse_json(to_text(to_json(fingerprint)), "x"), "x") == fingerprint);
    CHECK(contains(model_error([] { fingerprint_from(Json::array(), "f"); }), "f: "));
    CHECK(contains(model_error([] { fingerprint_from(Json{{"k", 1}}, "f"); }), "\"k\""));
  }
}

namespace {

/// Why the text of a session is not read; empty: it is.
std::string refusal(const std::filesystem::path& path) {
  return model_error([&] { read_session(path); });
}

}  // namespace

TEST_SUITE("core/memory/session_file") {
  TEST_CASE("the text of a session survives; what is damaged is refused with its path") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "s";
    const SessionText text{.fingerprint = {{"weights", "abc"}},
                           .app = R"({"turns": [{"ids": [1, 2], "text": "grüß"}]})"};
    write_session(path, text);
    const SessionText reading = read_session(path);
    CHECK(reading.fingerprint == text.fingerprint);
    CHECK(reading.app == text.app);

    const std::string good = read_whole_file(path, 1 << 20);
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x10);
      const auto damaged = folder.write("bad", bad);
      CHECK(contains(refusal(damaged), damaged.string()));
      folder.write("bad", good.substr(0, i));
      CHECK(!refusal(damaged).empty());
    }
  }

  TEST_CASE("no file, a folder, an empty file: refused") {
    const TemporaryFolder folder;
    CHECK(!refusal(folder.path() / "none").empty());
    CHECK(!refusal(folder.path()).empty());
    CHECK(!refusal(folder.write("empty", "")).empty());
  }
}

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
    saved = write_session(path, text, world.snapshot_io, sequences);
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
  SessionTransfer saved;
};

/// Nothing of a refused file is in the pool; what was accepted is right to the byte.
void check_sound(SnapshotWorld& world, const SessionTransfer& restored) {
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
      const SessionTransfer restored =
          restore_session(old.path, text.fingerprint, world.snapshot_io);
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
      CHECK(read_session(old.path).app == text.app);
    }
  }

  TEST_CASE("what only guesses depend on is left out, or nothing, where one side has none") {
    const TemporaryFolder folder;
    for (const auto& [there, here] : std::vector<std::pair<std::size_t, std::size_t>>{
             {0, 40}, {40, 0}, {40, 40}, {40, 72}, {72, 40}}) {
      CAPTURE(there);
      CAPTURE(here);
      const SavedWorld old(folder.path() / "s", 1, {.draft_bytes = there});
      SnapshotWorld world({.padding_bytes = 24, .draft_bytes = here});
      const SessionTransfer restored =
          restore_session(old.path, text.fingerprint, world.snapshot_io);
      CHECK(restored.refused.empty());
      CHECK(restored.snapshots == old.saved.snapshots);
      check_sound(world, restored);
      for (const Snapshot* snapshot : world.cache.tree().snapshots()) {
        const std::vector<TokenId> key = PrefixTree::key(*snapshot);
        for (const CheckpointUnit& unit : units_of(snapshot->checkpoint, world.layout)) {
          std::vector<std::byte> bytes(world.layout.unit_bytes(unit.view));
          world.snapshot_io.read(unit, bytes);
          std::vector<std::byte> wanted = world.wanted(key, unit);
          const auto answers =
              static_cast<std::ptrdiff_t>(world.snapshot_io.answer_bytes(unit.view));
          if (there != here) std::fill(wanted.begin() + answers, wanted.end(), std::byte{0});
          CHECK(bytes == wanted);
        }
      }
    }
  }

  TEST_CASE("pages are shared in the file and after it: the restored take no more than the old") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    SnapshotWorld world;
    REQUIRE(restore_session(old.path, text.fingerprint, world.snapshot_io).refused.empty());
    for (const Snapshot* snapshot : old.world.cache.tree().snapshots()) {
      if (!old.is_saved(*snapshot)) old.sequences.push_back(PrefixTree::key(*snapshot));
    }
    // Now with all snapshots of the tree.
    write_session(old.path, text, old.world.snapshot_io, old.sequences);
    SnapshotWorld whole;
    REQUIRE(restore_session(old.path, text.fingerprint, whole.snapshot_io).refused.empty());
    const PoolUsage was = old.world.pool.usage(), is = whole.pool.usage();
    for (std::size_t i = 0; i < was.pages.size(); ++i) {
      CHECK(is.pages[i].units == was.pages[i].units);
    }
    CHECK(is.snapshot_slots.units == was.snapshot_slots.units);
    CHECK(is.packed.units == was.packed.units);
  }

  TEST_CASE("restoring twice changes nothing") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    const auto units = old.world.pool.usage().pages[0].units;
    const SessionTransfer restored =
        restore_session(old.path, text.fingerprint, old.world.snapshot_io);
    CHECK(restored.refused.empty());
    CHECK(old.world.pool.usage().pages[0].units == units);
    CHECK(old.world.all_right());
  }

  TEST_CASE("a small pool takes what has room, a limit saves what has room") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    SnapshotWorld small({.superblocks = 6});
    const SessionTransfer restored = restore_session(old.path, text.fingerprint, small.snapshot_io);
    CHECK(restored.refused.empty());
    CHECK(restored.left_out > 0);
    CHECK(restored.snapshots > 0);
    CHECK(restored.snapshots + restored.left_out == old.saved.snapshots);
    CHECK(small.all_right());
    check_sound(small, restored);

    const SessionTransfer less =
        write_session(old.path, text, old.world.snapshot_io, old.sequences, old.saved.bytes / 2);
    CHECK(less.bytes <= old.saved.bytes / 2);
    CHECK(less.left_out > 0);
    SnapshotWorld world;
    CHECK(restore_session(old.path, text.fingerprint, world.snapshot_io).snapshots ==
          less.snapshots);
    CHECK(world.all_right());
  }

  TEST_CASE("another model, another layout, no memory: refused with the reason") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    SnapshotWorld world;
    const auto refused = [&](const std::filesystem::path& path, const Fingerprint& here,
                             SnapshotIo& snapshot_io) {
      return restore_session(path, here, snapshot_io).refused;
    };
    CHECK(contains(refused(old.path, {{"weights", "other"}}, world.snapshot_io),
                   "\"weights\" is \"other\" here and \"abc\" there"));
    SnapshotWorld full({.only_full = true});
    CHECK(contains(refused(old.path, text.fingerprint, full.snapshot_io), "another layout"));
    CHECK(contains(refused(folder.path() / "none", text.fingerprint, world.snapshot_io), "none: "));
    write_session(old.path, text);
    CHECK(contains(refused(old.path, text.fingerprint, world.snapshot_io), "sections"));
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
      const SessionTransfer restored =
          restore_session(folder.write("bad", bad), text.fingerprint, world.snapshot_io);
      check_sound(world, restored);
      CHECK(world.all_right());
      refused += !restored.refused.empty();
      world.cache.clear();
    }
    CHECK(refused > rounds * 9 / 10);  // only the app's text is not looked at here
  }

  TEST_CASE(
      "numbers that lie, under good checksums: refused, or a snapshot that cannot be reached") {
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
      const SessionTransfer restored =
          restore_session(folder.path() / "bad", text.fingerprint, world.snapshot_io);
      check_sound(world, restored);
      refused += !restored.refused.empty();
      world.cache.clear();
      CHECK(world.pool.all_free());
    }
    CHECK(refused > rounds / 3);
  }
}

namespace {

struct Part {
  SectionHead head;
  std::string payload;
  std::size_t begin = 0;  ///< of its head in the file
};

/// A session with pages, slots and packed snapshots, by its sections.
struct SessionFile {
  SessionFile() {
    BranchingKeys keys(3);
    std::vector<std::vector<TokenId>> sequences;
    for (int i = 0; i < 6; ++i) {
      sequences.push_back(keys.next());
      world.put(sequences.back(), i % 3 == 0 ? Precision::int8 : Precision::exact);
    }
    write_session(path, text, world.snapshot_io, sequences);
    good = read_whole_file(path, std::size_t{1} << 30);
    SectionReader reader(path, session_format);
    std::size_t begin = 40;
    while (const auto head = reader.next()) {
      Part& part = parts.emplace_back(Part{*head, std::string(head->length, '\0'), begin});
      reader.read(std::as_writable_bytes(std::span(part.payload)));
      begin += 24 + part.payload.size();
    }
  }

  /// The parts as a file whose checksums are right.
  std::filesystem::path sealed(const std::vector<Part>& bad) const {
    SectionWriter writer(folder.path() / "bad", session_format);
    for (const Part& part : bad) {
      writer.add(part.head.kind, part.head.number, std::as_bytes(std::span(part.payload)));
    }
    writer.commit();
    return folder.path() / "bad";
  }

  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "s";
  SnapshotWorld world;
  std::string good;
  std::vector<Part> parts;
};

/// Refused with one line that names the file, and nothing of it is anywhere.
void check_refused(const std::filesystem::path& path, SnapshotWorld& world) {
  const SessionTransfer restored = restore_session(path, text.fingerprint, world.snapshot_io);
  CHECK(restored.refused.starts_with(path.string() + ": "));
  CHECK(restored.refused.find('\n') == std::string::npos);
  CHECK(restored.snapshots == 0);
  CHECK(world.cache.tree().size() == 0);
  CHECK(world.pool.all_free());
  world.cache.audit();
}

}  // namespace

TEST_SUITE("core/memory/session_restore") {
  TEST_CASE("every kind of section, changed or cut: refused in one line, the text is still there") {
    const SessionFile saved;
    std::map<std::uint32_t, int> kinds;
    std::mt19937 random(1);
    SnapshotWorld world;
    for (const Part& part : saved.parts) {
      const int count = ++kinds[part.head.kind];
      if (count > 4) continue;
      CAPTURE(part.head.kind);
      CAPTURE(part.head.number);
      const auto is_text = part.head.kind == static_cast<std::uint32_t>(SessionSection::app);
      const std::size_t end = part.begin + 24 + part.payload.size();
      const bool has_text = part.head.kind > static_cast<std::uint32_t>(SessionSection::app);
      // In the head: its length, kind, number and sum. In the payload: anywhere.
      for (const std::size_t at : {part.begin, part.begin + 8, part.begin + 12, part.begin + 16,
                                   part.begin + 24, part.begin + 24 + random() % 4096, end - 1}) {
        if (at >= end) continue;
        if (is_text && at >= part.begin + 16) continue;  // the memory is good without it
        std::string bad = saved.good;
        bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
        const auto path = saved.folder.write("bad", bad);
        check_refused(path, world);
        CHECK(refusal(path).empty() == has_text);
      }
      for (const std::size_t size : {part.begin, part.begin + 3, part.begin + 24, end - 1}) {
        const auto path = saved.folder.write("bad", saved.good.substr(0, size));
        check_refused(path, world);
        CHECK(refusal(path).empty() == has_text);
      }
      std::string noise = saved.good;
      for (std::size_t i = part.begin; i < end; ++i) noise[i] = static_cast<char>(random());
      check_refused(saved.folder.write("bad", noise), world);
    }
    CHECK(kinds.size() == 6);  // none was forgotten
    const auto longer = saved.folder.write("bad", saved.good + "x");
    check_refused(longer, world);
    CHECK(refusal(longer).empty());
    for (std::size_t at = 0; at < 40; ++at) {
      std::string bad = saved.good;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      const auto path = saved.folder.write("bad", bad);
      check_refused(path, world);
      CHECK_FALSE(refusal(path).empty());
    }
  }

  TEST_CASE("sections left out, twice, exchanged or of another size, under good checksums") {
    const SessionFile saved;
    SnapshotWorld world;
    std::map<std::uint32_t, int> kinds;
    for (std::size_t i = 0; i < saved.parts.size(); ++i) {
      if (++kinds[saved.parts[i].head.kind] > 3) continue;
      CAPTURE(i);
      CAPTURE(saved.parts[i].head.kind);
      std::vector<Part> bad = saved.parts;
      bad.erase(bad.begin() + static_cast<std::ptrdiff_t>(i));
      check_refused(saved.sealed(bad), world);
      bad = saved.parts;
      bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(i), saved.parts[i]);
      check_refused(saved.sealed(bad), world);
      bad = saved.parts;
      std::swap(bad[i], bad[(i + 1) % bad.size()]);
      check_refused(saved.sealed(bad), world);
      if (saved.parts[i].head.kind == static_cast<std::uint32_t>(SessionSection::app)) continue;
      bad = saved.parts;
      bad[i].payload.pop_back();
      check_refused(saved.sealed(bad), world);
      bad[i].payload = saved.parts[i].payload + std::string(4, '\0');
      // Unused tokens do no harm.
      if (saved.parts[i].head.kind == static_cast<std::uint32_t>(SessionSection::tokens)) continue;
      if (saved.parts[i].head.kind == static_cast<std::uint32_t>(SessionSection::outline) ||
          saved.parts[i].head.kind == static_cast<std::uint32_t>(SessionSection::fingerprint)) {
        bad[i].payload = "[" + saved.parts[i].payload + "]";
      }
      check_refused(saved.sealed(bad), world);
    }
  }

  TEST_CASE("logits of earlier versions are read past; lists of them that lie are refused") {
    const SessionFile saved;
    const auto with_logits = [&](const std::string& list) {
      std::vector<Part> parts;
      for (Part part : saved.parts) {
        const auto kind = static_cast<SessionSection>(part.head.kind);
        if (kind == SessionSection::outline) {
          const std::string none = "\"logits\":[]";
          const std::size_t at = part.payload.find(none);
          REQUIRE(at != std::string::npos);
          part.payload.replace(at, none.size(), "\"logits\":" + list);
        }
        const bool is_first_unit =
            kind == SessionSection::unit && parts.back().head.kind != part.head.kind;
        for (const std::uint32_t snapshot : {0U, 2U}) {
          if (!is_first_unit) break;
          parts.push_back({.head = {.kind = static_cast<std::uint32_t>(SessionSection::logits),
                                    .number = snapshot},
                           .payload = std::string(4 * (snapshot + 1), 'x')});
        }
        parts.push_back(std::move(part));
      }
      return saved.sealed(parts);
    };
    SnapshotWorld world;
    const SessionTransfer restored =
        restore_session(with_logits("[0,2]"), text.fingerprint, world.snapshot_io);
    CHECK(restored.refused == "");
    CHECK(restored.snapshots == saved.world.cache.tree().size());
    world.cache.audit();

    SnapshotWorld empty;
    for (const char* list : {"[]", "[0,0]", "[2,0]", "[0,1]", "[0,2,3]", "[-1]", "[0.5]", "[99]",
                             "[4294967296]", "{}", "\"0\"", "null", "[0,[1]]"}) {
      CAPTURE(list);
      check_refused(with_logits(list), empty);
    }
  }
}

}  // namespace session_session_test
