#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "core/io/file.h"
#include "core/memory/session_memory.h"
#include "core/memory/session_sections.h"
#include "tests/support/error_text.h"
#include "tests/support/snapshot_world.h"
#include "tests/support/temporary_folder.h"

using namespace hyb;
using namespace hyb::testing;

namespace {

const SessionText text{.fingerprint = {{"weights", "abc"}}, .app = "the app's"};

struct Part {
  SectionHead head;
  std::string payload;
  std::size_t begin = 0;  ///< of its head in the file
};

/// A session with pages, slots, packed snapshots and logits, by its sections.
struct SessionFile {
  SessionFile() {
    BranchingKeys keys(3);
    std::vector<std::vector<TokenId>> sequences;
    for (int i = 0; i < 6; ++i) {
      sequences.push_back(keys.next());
      world.put(sequences.back(), i % 3 == 0 ? Precision::int8 : Precision::exact);
      world.carrier.keep_logits(sequences.back(), {static_cast<float>(i)});
    }
    write_session(path, text, world.carrier, sequences);
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
  const SessionRestored restored = restore_session(path, text.fingerprint, world.carrier);
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
        CHECK(read_session(path).text.has_value() == has_text);
      }
      for (const std::size_t size : {part.begin, part.begin + 3, part.begin + 24, end - 1}) {
        const auto path = saved.folder.write("bad", saved.good.substr(0, size));
        check_refused(path, world);
        CHECK(read_session(path).text.has_value() == has_text);
      }
      std::string noise = saved.good;
      for (std::size_t i = part.begin; i < end; ++i) noise[i] = static_cast<char>(random());
      check_refused(saved.folder.write("bad", noise), world);
    }
    CHECK(kinds.size() == 7);  // none was forgotten
    const auto longer = saved.folder.write("bad", saved.good + "x");
    check_refused(longer, world);
    CHECK(read_session(longer).text.has_value());
    for (std::size_t at = 0; at < 40; ++at) {
      std::string bad = saved.good;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      const auto path = saved.folder.write("bad", bad);
      check_refused(path, world);
      CHECK_FALSE(read_session(path).refused.empty());
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
      // Tokens that nobody needs are no harm.
      if (saved.parts[i].head.kind == static_cast<std::uint32_t>(SessionSection::tokens)) continue;
      if (saved.parts[i].head.kind == static_cast<std::uint32_t>(SessionSection::outline) ||
          saved.parts[i].head.kind == static_cast<std::uint32_t>(SessionSection::fingerprint)) {
        bad[i].payload = "[" + saved.parts[i].payload + "]";
      }
      check_refused(saved.sealed(bad), world);
    }
  }

  TEST_CASE("logits come back with their snapshots; lists of them that lie are refused") {
    const SessionFile saved;
    SnapshotWorld world;
    REQUIRE(restore_session(saved.path, text.fingerprint, world.carrier).refused.empty());
    int found = 0;
    for (const Snapshot* snapshot : saved.world.cache.tree().snapshots()) {
      const Snapshot* const back = world.at(PrefixTree::key(*snapshot));
      REQUIRE(back != nullptr);
      CHECK(back->logits == snapshot->logits);
      found += !back->logits.empty();
    }
    CHECK(found >= 4);
    world.cache.audit();

    SnapshotWorld empty;
    const auto outline = std::find_if(saved.parts.begin(), saved.parts.end(), [](const Part& part) {
      return part.head.kind == static_cast<std::uint32_t>(SessionSection::outline);
    });
    REQUIRE(outline != saved.parts.end());
    const std::size_t begin = outline->payload.find("\"logits\":[");
    REQUIRE(begin != std::string::npos);
    for (const char* list : {"[]", "[0,0]", "[1,0]", "[-1]", "[0.5]", "[99]", "[4294967296]", "{}",
                             "\"0\"", "null", "[0,[1]]"}) {
      CAPTURE(list);
      std::vector<Part> bad = saved.parts;
      Part& part = bad[static_cast<std::size_t>(outline - saved.parts.begin())];
      const std::size_t end = part.payload.find(']', begin);
      part.payload.replace(begin + 9, end - begin - 8, list);
      check_refused(saved.sealed(bad), empty);
    }
  }
}
