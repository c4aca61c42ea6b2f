#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/io/file.h"
#include "core/memory/session/session.h"
#include "core/memory/session/session_format.h"
#include "core/memory/session/session_writer.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/old_session.h"
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

/// A file of the older version.
void write_old(const std::filesystem::path& path, const SessionText& text) {
  CountedSections writer(path, session_format);
  const std::string fingerprint = to_text(to_json(text.fingerprint));
  writer.add(1, 0, std::as_bytes(std::span(fingerprint)));
  writer.add(2, 0, std::as_bytes(std::span(text.app.at(0))));
  writer.commit();
}

/// Why the text of a session is not read; empty: it is.
std::string refusal(const std::filesystem::path& path) {
  return model_error([&] { read_session(path); });
}

}  // namespace

TEST_SUITE("core/memory/session_file") {
  TEST_CASE("the text of an older session is read; what is damaged is refused with its path") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "s";
    const SessionText text{.fingerprint = {{"weights", "abc"}},
                           .app = {R"({"turns": [{"ids": [1, 2], "text": "grüß"}]})"}};
    write_old(path, text);
    const SessionText reading = read_session(path);
    CHECK(reading.fingerprint == text.fingerprint);
    CHECK(reading.app == text.app);
    CHECK(reading.is_older);

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

const SessionText text{.fingerprint = {{"weights", "abc"}}, .app = {"the app's"}};

/// Two snapshots on the way of one sequence, of 37 and 58 tokens, saved.
struct SavedWorld {
  explicit SavedWorld(const std::filesystem::path& file, const WorldShape& shape = {},
                      Precision precision = Precision::exact)
      : path(file), world(shape) {
    std::mt19937 random(4);
    while (sequence.size() < 58) {
      sequence.push_back(TokenId{static_cast<std::int32_t>(random() % 9)});
      if (sequence.size() == 37 || sequence.size() == 58) world.put(sequence, precision);
    }
    SessionWriter writer = SessionWriter::create(path, text);
    CHECK(writer.save({.snapshot_io = world.snapshot_io, .sequence = sequence, .before = 37})
              .snapshots == 2);
  }

  std::filesystem::path path;
  SnapshotWorld world;
  std::vector<TokenId> sequence;
};

/// Nothing of a refused file is in the pool.
void check_sound(SnapshotWorld& world, const SessionTransfer& restored) {
  world.cache.audit();
  const auto checkpoints = world.cache.checkpoints();
  world.pool.audit({}, checkpoints);
  if (restored.refused.empty()) return;
  CHECK(restored.refused.find('\n') == std::string::npos);
  CHECK(restored.snapshots == 0);
  CHECK(world.cache.tree().size() == 0);
  CHECK(world.pool.all_free());
}

}  // namespace

TEST_SUITE("core/memory/session_memory") {
  TEST_CASE("both snapshots come back byte for byte, into pools of any size and kind") {
    const TemporaryFolder folder;
    for (unsigned kind = 0; kind < 12; ++kind) {
      const WorldShape shape{
          .has_pages = kind % 4 != 1, .has_slots = kind % 4 != 2, .only_full = kind % 3 == 0};
      const auto precision = shape.has_slots && kind > 5 ? Precision::int8 : Precision::exact;
      SavedWorld old(folder.path() / "s", shape, precision);
      WorldShape other = shape;
      other.superblocks = 60;
      other.padding_bytes = kind % 5 * 24;
      SnapshotWorld world(other);
      const SessionTransfer restored =
          restore_session(old.path, text.fingerprint, world.snapshot_io);
      CHECK(restored.refused == "");
      CHECK(restored.snapshots == 2);
      CHECK(restored.length == 58);
      CHECK(world.all_right());
      check_sound(world, restored);
      for (const Snapshot* snapshot : old.world.cache.tree().snapshots()) {
        const Snapshot* const back = world.at(PrefixTree::key(*snapshot));
        REQUIRE(back != nullptr);
        CHECK((back->checkpoint.packed() == no_packed) ==
              (snapshot->checkpoint.packed() == no_packed));
        CHECK(back->place == snapshot->place);
      }
      const PoolUsage was = old.world.pool.usage(), is = world.pool.usage();
      for (std::size_t i = 0; i < was.pages.size(); ++i) {
        CHECK(is.pages[i].units == was.pages[i].units);  // shared in the file and after it
      }
      CHECK(restore_session(old.path, text.fingerprint, world.snapshot_io).snapshots == 0);
      CHECK(world.pool.usage().snapshot_slots.units == is.snapshot_slots.units);
    }
  }

  TEST_CASE("what only guesses depend on is left out, or nothing, where one side has none") {
    const TemporaryFolder folder;
    for (const auto& [there, here] : std::vector<std::pair<std::size_t, std::size_t>>{
             {0, 40}, {40, 0}, {40, 40}, {40, 72}, {72, 40}}) {
      CAPTURE(there);
      CAPTURE(here);
      const SavedWorld old(folder.path() / "s", {.draft_bytes = there});
      SnapshotWorld world({.padding_bytes = 24, .draft_bytes = here});
      const SessionTransfer restored =
          restore_session(old.path, text.fingerprint, world.snapshot_io);
      CHECK(restored.refused == "");
      CHECK(restored.snapshots == 2);
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
      // Going on with it, the file has this layout.
      SessionWriter writer(old.path);
      CHECK(writer.save({.snapshot_io = world.snapshot_io, .sequence = old.sequence, .before = 37})
                .snapshots == 2);
      SnapshotWorld again({.draft_bytes = here});
      CHECK(restore_session(old.path, text.fingerprint, again.snapshot_io).length == 58);
    }
  }

  TEST_CASE("a small pool takes what has room") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    SnapshotWorld small({.superblocks = 4});
    const SessionTransfer restored = restore_session(old.path, text.fingerprint, small.snapshot_io);
    CHECK(restored.refused == "");
    CHECK(restored.snapshots + restored.left_out == 2);
    CHECK(restored.left_out > 0);
    CHECK(small.all_right());
    check_sound(small, restored);
  }

  TEST_CASE("another model, another layout, an older file: refused with the reason") {
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
    write_old(old.path, text);
    const SessionTransfer nothing = restore_session(old.path, text.fingerprint, world.snapshot_io);
    CHECK(nothing.refused == "");
    CHECK(nothing.snapshots == 0);
    CHECK(contains(model_error([&] { SessionWriter writer(old.path); }), "older version"));
    CHECK(world.pool.all_free());
  }

  TEST_CASE("more snapshots than are saved, or one twice: refused before room is made for them") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    const auto refusal_of = [&](const std::vector<std::uint32_t>& lengths) {
      std::vector<std::uint32_t> numbers = {0, 3, 5, 5, 5, std::uint32_t(lengths.size())};
      for (const std::uint32_t length : lengths) numbers.insert(numbers.end(), {length, 0, 0});
      SessionWriter::create(old.path, text);
      SectionLog log(old.path, std::filesystem::file_size(old.path));
      log.add(8, 0, std::as_bytes(std::span(numbers)));
      return refusal(old.path);
    };
    CHECK(refusal_of({3, 2}).empty());
    CHECK(contains(refusal_of({3, 3}), "what it says of its memory can't be"));
    CHECK(contains(refusal_of({3, 2, 1}), "what it says of its memory can't be"));
  }

  TEST_CASE("sections that lie, under good checksums: refused, or snapshots that are sound") {
    const TemporaryFolder folder;
    SavedWorld old(folder.path() / "s");
    struct Part {
      SectionHead head;
      std::string payload;
    };
    std::vector<Part> parts;
    SectionReader reader(old.path, session_format);
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
        Part& part = random() % 2 == 0 ? bad.back() : bad[random() % bad.size()];
        switch (random() % 6) {
          case 0:
            part.head.kind = random() % 10 | (part.head.kind & open_section);
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
      SectionWriter writer(folder.path() / "bad", session_format);
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

}  // namespace session_session_test
