#include "core/memory/session/session_writer.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/snapshot_world.h"

namespace session_writer_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const SessionText text{.fingerprint = {{"weights", "abc"}}, .app = {"head"}};

/// A chat whose branch gets longer by a turn at a time.
struct GrowingChat {
  explicit GrowingChat(const WorldShape& shape = {.superblocks = 80, .only_full = true})
      : world(shape) {}

  /// Another turn after the first `from` tokens: its snapshot is in the tree.
  void say(std::size_t from, std::size_t tokens, Precision precision = Precision::exact) {
    sequence.resize(from);
    for (; tokens > 0; --tokens) {
      sequence.push_back(TokenId{static_cast<std::int32_t>(random() % 50)});
    }
    world.put(sequence, precision);
  }

  SessionTransfer save(SessionWriter& writer, std::size_t before,
                       std::uint64_t bytes_max = ~std::uint64_t{0}) {
    return writer.save({.snapshot_io = world.snapshot_io,
                        .sequence = sequence,
                        .before = static_cast<std::int32_t>(before),
                        .before_min = static_cast<std::int32_t>(before),
                        .bytes_max = bytes_max});
  }

  /// Bytes of all pages that the branch has, full or not.
  std::uint64_t page_bytes() const {
    const auto& group = world.layout.groups[0];
    return pages_for(world.layout, static_cast<std::int32_t>(sequence.size())) *
           std::uint64_t{group.page_bytes};
  }
  std::uint64_t state_bytes() const { return world.layout.content_bytes(world.layout.slot_view()); }

  SnapshotWorld world;
  std::vector<TokenId> sequence;
  std::mt19937 random{5};
};

std::string bytes_of(const std::filesystem::path& path) {
  return read_whole_file(path, std::size_t{1} << 30);
}

/// What is restored of a file is right; returns the lengths, ascending.
std::vector<std::int32_t> restored_lengths(const std::filesystem::path& path,
                                           const WorldShape& shape = {.superblocks = 80,
                                                                      .only_full = true}) {
  SnapshotWorld world(shape);
  const SessionTransfer restored = restore_session(path, text.fingerprint, world.snapshot_io);
  CHECK(world.all_right());
  world.cache.audit();
  const auto checkpoints = world.cache.checkpoints();
  world.pool.audit({}, checkpoints);
  std::vector<std::int32_t> lengths;
  for (const Snapshot* snapshot : world.cache.tree().snapshots()) {
    lengths.push_back(snapshot->checkpoint.length());
  }
  std::sort(lengths.begin(), lengths.end());
  CHECK(static_cast<std::size_t>(restored.snapshots) == lengths.size());
  return lengths;
}

}  // namespace

TEST_SUITE("core/memory/session_writer") {
  TEST_CASE("no more text is read than a session can have, however little room it takes on disk") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "s";
    SessionWriter::create(path, text);
    const std::string start = bytes_of(path);
    constexpr std::size_t section = section_bytes_max, head_bytes = 24;
    {
      SectionLog log(path, start.size());
      log.add(static_cast<std::uint32_t>(SessionSection::app), 0, std::vector<std::byte>(section));
    }
    const std::string head = bytes_of(path).substr(start.size(), head_bytes);
    std::filesystem::resize_file(path, start.size());
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    for (std::size_t i = 0; i < 40; ++i) {
      file.seekp(static_cast<std::streamoff>(start.size() + i * (section + head_bytes)));
      file << head;
    }
    file.close();
    std::filesystem::resize_file(path, start.size() + 40 * (section + head_bytes));
    CHECK(contains(model_error([&] { read_session(path); }), "s: has too much text"));
    SessionWriter writer = SessionWriter::create(path, text);
    CHECK_THROWS_AS(writer.add(std::string(section, ' ')), Error);  // "head" is there as well
    writer.add("more");
    CHECK(read_session(path).app == std::vector<std::string>{"head", "more"});
  }

  TEST_CASE("text is read as it was added; a draft stays until something takes its place") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "s";
    const auto texts = [&] { return read_session(path).app; };
    SessionWriter writer = SessionWriter::create(path, text);
    writer.add("turn 1");
    writer.add_draft("question");
    writer.add_draft("half an answer");
    CHECK(texts() == std::vector<std::string>{"head", "turn 1", "question", "half an answer"});
    CHECK(read_session(path).drafts == 2);
    writer.add("turn 2");
    CHECK(texts() == std::vector<std::string>{"head", "turn 1", "turn 2"});
    CHECK(read_session(path).drafts == 0);
    CHECK_FALSE(read_session(path).is_older);
    SessionWriter other(path);
    other.add("turn 3");
    CHECK(texts() == std::vector<std::string>{"head", "turn 1", "turn 2", "turn 3"});
  }

  TEST_CASE("every cut of the end leaves what was added before; damage within is refused") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "s";
    SessionWriter writer = SessionWriter::create(path, text);
    std::vector<std::size_t> ends = {std::filesystem::file_size(path)};
    for (const char* said : {"turn 1", "turn 2", "turn 3"}) {
      writer.add(said);
      ends.push_back(std::filesystem::file_size(path));
    }
    const std::string good = bytes_of(path);
    for (std::size_t size = ends[0]; size <= good.size(); ++size) {
      const auto cut = folder.write("cut", good.substr(0, size));
      const auto whole =
          static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), size) - ends.begin());
      CHECK(read_session(cut).app.size() == whole);
      SessionWriter again(cut);  // goes on after what is whole
      again.add("more");
      CHECK(read_session(cut).app.size() == whole + 1);
      CHECK(read_session(cut).app.back() == "more");
      // A machine that lost its power may leave zeros.
      const auto gap = folder.write("gap", good.substr(0, size) + std::string(70, '\0'));
      if (size == ends[whole - 1]) CHECK(read_session(gap).app.size() == whole);
    }
    for (std::size_t bit = 0; bit < ends[2] * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      const auto damaged = folder.write("bad", bad);
      CHECK(contains(model_error([&] { read_session(damaged); }), damaged.string()));
    }
  }

  TEST_CASE("a file is pages, two states and little more; a turn writes its pages and one state") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "s";
    GrowingChat chat;
    SessionWriter writer = SessionWriter::create(path, text);
    std::size_t before = 0, size = std::filesystem::file_size(path);
    for (int turn = 0; turn < 40; ++turn) {
      const std::size_t here = chat.sequence.size();
      chat.say(here, 11 + turn % 7);
      const std::string old = bytes_of(path);
      const SessionTransfer saved = chat.save(writer, before = here);
      CHECK(saved.snapshots == (turn == 0 ? 1 : 2));
      const std::string now = bytes_of(path);
      CHECK(now.size() <= chat.page_bytes() + 2 * chat.state_bytes() + (std::size_t{512} << 10));
      std::size_t overwritten = 0;
      for (std::size_t i = 0; i < old.size(); ++i) overwritten += old[i] != now[i];
      const std::size_t pages = 7 * chat.world.layout.groups[0].page_bytes;
      CHECK(now.size() - size + overwritten < chat.state_bytes() + pages + 2500 + 8 * here);
      if (turn > 1)
        CHECK(now.size() - size < chat.state_bytes());  // the state went to a free place
      size = now.size();
      CHECK(restored_lengths(path).back() == static_cast<std::int32_t>(chat.sequence.size()));
    }
    CHECK(restored_lengths(path) ==
          std::vector<std::int32_t>{static_cast<std::int32_t>(before),
                                    static_cast<std::int32_t>(chat.sequence.size())});
  }

  TEST_CASE("after going back, and in kinds that free pages, both snapshots are right") {
    for (const bool only_full : {true, false}) {
      const WorldShape shape{.superblocks = 80, .only_full = only_full};
      const TemporaryFolder folder;
      const auto path = folder.path() / "s";
      GrowingChat chat(shape);
      std::vector<std::size_t> ends = {0};
      SessionWriter writer = SessionWriter::create(path, text);
      for (int turn = 0; turn < 60; ++turn) {
        if (turn % 5 == 4) ends.resize(ends.size() - ends.size() / 2);
        if (turn % 9 == 8) writer = SessionWriter(path);  // another process goes on
        const std::size_t before = ends.back();
        chat.say(before, 1 + chat.random() % 40,
                 turn % 6 == 0 ? Precision::int8 : Precision::exact);
        ends.push_back(chat.sequence.size());
        chat.save(writer, before);
        const auto lengths = restored_lengths(path, shape);
        REQUIRE(!lengths.empty());
        CHECK(lengths.back() == static_cast<std::int32_t>(chat.sequence.size()));
        if (before > 0) CHECK(lengths.front() == static_cast<std::int32_t>(before));
      }
    }
  }

  TEST_CASE("killed while it saves: the snapshot of the turn before is there, nothing is wrong") {
    const TemporaryFolder folder;
    GrowingChat chat;
    const auto path = folder.path() / "s";
    SessionWriter writer = SessionWriter::create(path, text);
    for (int turn = 0; turn < 6; ++turn) {
      const std::size_t before = chat.sequence.size();
      chat.say(before, 13);
      const std::string old = bytes_of(path);
      chat.save(writer, before);
      const std::string now = bytes_of(path);
      for (int cut = 0; turn > 2 && cut < 25; ++cut) {
        const std::size_t at = chat.random() % now.size();
        std::string mixed = now.substr(0, at);
        if (at < old.size()) mixed += old.substr(at);
        const auto lengths = restored_lengths(folder.write("killed", mixed));
        CHECK(std::find(lengths.begin(), lengths.end(), static_cast<std::int32_t>(before)) !=
              lengths.end());
        // What goes on from there repairs the file.
        SessionWriter again(folder.path() / "killed");
        chat.save(again, before);
        CHECK(restored_lengths(folder.path() / "killed").size() == 2);
      }
    }
  }

  TEST_CASE("above the limit memory is left out, the older snapshot first; text never") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "s";
    GrowingChat chat;
    SessionWriter writer = SessionWriter::create(path, text);
    chat.say(0, 20);
    chat.save(writer, 0);
    chat.say(20, 20);
    const std::uint64_t one = chat.page_bytes() + chat.state_bytes();
    CHECK(chat.save(writer, 20, one + 100).left_out == 1);
    CHECK(restored_lengths(path) == std::vector<std::int32_t>{40});
    chat.say(40, 200);  // too long: what the file has stays
    CHECK(chat.save(writer, 40, one + 100).snapshots == 1);
    CHECK(restored_lengths(path) == std::vector<std::int32_t>{40});
    CHECK(chat.save(writer, 40, 10).snapshots == 0);
    CHECK(restored_lengths(path).empty());
    writer.add("a turn");
    CHECK(read_session(path).app.back() == "a turn");
  }

  TEST_CASE("it says when too much of the file is of no use any more") {
    const TemporaryFolder folder;
    GrowingChat chat;
    SessionWriter writer = SessionWriter::create(folder.path() / "s", text);
    chat.say(0, 30);
    chat.save(writer, 0);
    writer.add(std::string(700'000, 'x'));
    CHECK_FALSE(writer.is_wasteful());
    for (int i = 0; i < 7; ++i) writer.add_draft(std::string(100'000, 'x'));
    CHECK(writer.is_wasteful());
  }

  TEST_CASE("random damage anywhere: an error, or less memory, never wrong memory") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "s";
    GrowingChat chat;
    SessionWriter writer = SessionWriter::create(path, text);
    for (int turn = 0; turn < 4; ++turn) {
      const std::size_t before = chat.sequence.size();
      chat.say(before, 17);
      writer.add("turn");
      chat.save(writer, before);
    }
    const std::string good = bytes_of(path);
    std::mt19937 random(3);
    std::size_t whole = 0;
    for (int i = 0; i < 200; ++i) {
      std::string bad = good;
      for (std::uint32_t n = 1 + random() % 3; n > 0; --n) {
        bad[random() % bad.size()] ^= static_cast<char>(1U << random() % 8);
      }
      whole += restored_lengths(folder.write("bad", bad)).size() == 2;
    }
    CHECK(whole < 30);  // only the app's text, and places that are free, are not looked at
  }
}

}  // namespace session_writer_test
