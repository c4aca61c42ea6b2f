#include "core/memory/session/session_writer.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb {
namespace {

constexpr std::uint64_t dead_bytes_max = std::uint64_t{512} << 10;

SessionContent checked(SessionContent content, const std::filesystem::path& path) {
  if (!content.text.is_older) return content;
  throw Error(ErrorKind::model,
              path.string() + ": is of an older version, to which nothing is added");
}

std::uint32_t number_of(SessionSection kind) { return static_cast<std::uint32_t>(kind); }

std::span<const std::byte> checked(std::span<const std::byte> section) {
  if (section.size() <= section_bytes_max) return section;
  throw Error(ErrorKind::runtime, "session: a section of " + std::to_string(section.size()) +
                                      " bytes can't be saved, at most " +
                                      std::to_string(section_bytes_max));
}

std::span<const std::byte> section_of(std::string_view text) {
  return checked(std::as_bytes(std::span(text)));
}

bool is_full_page(const UnitKey& key) { return key[2] == 0; }

}  // namespace

SessionWriter SessionWriter::create(const std::filesystem::path& path, const SessionText& text) {
  SectionWriter writer(path, session_format);
  writer.add(number_of(SessionSection::fingerprint), 0,
             section_of(to_text(to_json(text.fingerprint))));
  for (const std::string& app : text.app) {
    writer.add(number_of(SessionSection::app), 0, section_of(app));
  }
  writer.commit();
  return SessionWriter(path);
}

SessionWriter::SessionWriter(const std::filesystem::path& path, SessionContent content)
    : content_(checked(std::move(content), path)), log_(path, content_.end) {
  content_.text.app.clear();
}

void SessionWriter::add_text(SessionSection kind, std::string_view text) {
  if (content_.text_bytes + text.size() > section_bytes_max) {
    throw Error(ErrorKind::runtime, "session: it has so much text that no more can be saved");
  }
  log_.add(number_of(kind), 0, section_of(text));
  if (kind == SessionSection::draft) return;
  content_.text_bytes += text.size();
  log_.sync();
}

/// Where a writer was killed, a place may have bytes of a unit that was on its way.
void SessionWriter::drop_damaged() {
  if (std::exchange(is_checked_, true)) return;
  std::vector<std::byte> bytes;
  std::erase_if(content_.units, [&](const auto& unit) {
    const auto& [begin, length] = content_.places[unit.second.number];
    bytes.resize(static_cast<std::size_t>(length));
    log_.read(begin, bytes);
    return checksum(bytes) != unit.second.sum;
  });
}

/// Forgets what the file has of other layouts and other tokens.
void SessionWriter::keep_shared(const SessionMemory& memory) {
  std::string outline = to_text(to_json(outline_of(memory.snapshot_io)));
  if (outline != content_.outline) {
    log_.add(number_of(SessionSection::outline), 0, section_of(outline));
    content_.outline = std::move(outline);
    content_.sequence.clear();
  }
  const MemoryLayout& layout = memory.snapshot_io.layout();
  const std::int32_t shared = common_prefix(content_.sequence, memory.sequence);
  std::erase_if(content_.units, [&](const auto& unit) {
    const UnitKey& key = unit.first;
    return (is_full_page(key) ? (key[1] + 1) * layout.page_tokens : key[2]) > shared;
  });
  std::erase_if(content_.snapshots, [&](const SavedSnapshot& snapshot) {
    const auto keys = unit_keys(layout, snapshot.length, snapshot.precision);
    return snapshot.length > shared || !std::all_of(keys.begin(), keys.end(), [&](const auto& key) {
             return content_.units.contains(key);
           });
  });
}

namespace {

/// A snapshot that may be saved: in the file, or in the tree.
struct Candidate {
  SavedSnapshot saved;
  const Snapshot* live = nullptr;  ///< null: its bytes are in the file
};

/// The best first; some twice.
std::vector<Candidate> candidates_of(const SessionMemory& memory,
                                     std::span<const SavedSnapshot> in_file) {
  std::map<std::int32_t, Candidate> all, known;  // by length
  for (const Snapshot* live : memory.snapshot_io.cache().tree().on_the_way(memory.sequence)) {
    const std::int32_t length = live->checkpoint.length();
    all[length] = {{length, live->checkpoint.precision(), live->place}, live};
  }
  for (const SavedSnapshot& saved : in_file) all[saved.length] = known[saved.length] = {saved};
  std::vector<Candidate> candidates;
  const auto add = [&](const std::map<std::int32_t, Candidate>& of, std::int32_t most,
                       std::int32_t least) {
    const auto after = of.upper_bound(most);
    if (after == of.begin() || std::prev(after)->first < least) return;
    candidates.push_back(std::prev(after)->second);
  };
  const auto whole = static_cast<std::int32_t>(memory.sequence.size());
  add(all, whole, 1);
  add(known, memory.before, memory.before_min);
  add(all, memory.before, 1);
  add(known, whole, 1);
  add(known, memory.before, 1);
  return candidates;
}

}  // namespace

SessionTransfer SessionWriter::save(const SessionMemory& memory) {
  SnapshotIo& snapshot_io = memory.snapshot_io;
  const MemoryLayout& layout = snapshot_io.layout();
  snapshot_io.flush_orders();
  drop_damaged();
  keep_shared(memory);
  SessionTransfer saved;
  std::vector<SavedSnapshot> snapshots;
  std::map<UnitKey, CheckpointUnit> wanted;  // of the pool, where the file has it not
  std::set<std::int32_t> tried;
  for (const Candidate& candidate : candidates_of(memory, content_.snapshots)) {
    if (snapshots.size() == snapshots_max || !tried.insert(candidate.saved.length).second) continue;
    const auto keys = unit_keys(layout, candidate.saved.length, candidate.saved.precision);
    std::map<UnitKey, CheckpointUnit> more;
    if (candidate.live == nullptr) {
      for (const UnitKey& key : keys) more[key] = {.view = ViewId{key[0]}, .page = 0, .unit = 0};
    } else {
      const auto units = units_of(candidate.live->checkpoint, layout);
      for (std::size_t i = 0; i < keys.size(); ++i) more[keys[i]] = units[i];
    }
    std::uint64_t bytes = saved.bytes;
    for (const auto& [key, unit] : more) {
      bytes += wanted.contains(key) ? 0 : layout.content_bytes(unit.view);
    }
    if (bytes > memory.bytes_max) {
      ++saved.left_out;
      continue;
    }
    saved.bytes = bytes;
    saved.length = std::max(saved.length, candidate.saved.length);
    snapshots.push_back(candidate.saved);
    wanted.merge(more);
  }
  saved.snapshots = static_cast<std::int32_t>(snapshots.size());
  // They are gone even where writing fails: their places have other bytes then.
  std::erase_if(content_.units, [&](const auto& unit) { return !wanted.contains(unit.first); });
  std::multimap<std::uint64_t, std::uint32_t> free;
  std::set<std::uint32_t> used;
  for (const auto& [key, unit] : content_.units) used.insert(unit.number);
  for (std::uint32_t number = 0; number < content_.places.size(); ++number) {
    if (!used.contains(number)) free.emplace(content_.places[number].length, number);
  }
  Units units;
  for (const auto& [key, unit] : wanted) {
    if (const auto known = content_.units.find(key); known != content_.units.end()) {
      units.insert(*known);
    } else {
      write_unit(unit, snapshot_io, free, units[key]);
    }
  }
  add_memory(memory.sequence, std::move(snapshots), std::move(units));
  return saved;
}

/// Into a place that is free, or a new one.
void SessionWriter::write_unit(const CheckpointUnit& unit, const SnapshotIo& snapshot_io,
                               std::multimap<std::uint64_t, std::uint32_t>& free,
                               SessionContent::Unit& into) {
  std::vector<std::byte> bytes(snapshot_io.layout().unit_bytes(unit.view));
  snapshot_io.read(unit, bytes);
  bytes.resize(snapshot_io.layout().content_bytes(unit.view));
  if (const auto place = free.find(bytes.size()); place != free.end()) {
    into.number = place->second;
    free.erase(place);
    log_.overwrite(content_.places[into.number].begin, bytes);
  } else {
    into.number = static_cast<std::uint32_t>(content_.places.size());
    const std::uint64_t begin =
        log_.add(number_of(SessionSection::unit) | open_section, into.number, bytes);
    content_.places.push_back({begin, bytes.size()});
  }
  into.sum = checksum(bytes);
}

void SessionWriter::add_memory(std::vector<TokenId> sequence, std::vector<SavedSnapshot> snapshots,
                               Units units) {
  std::vector<std::uint32_t> numbers;
  const auto add = [&](auto number) { numbers.push_back(static_cast<std::uint32_t>(number)); };
  const auto kept = static_cast<std::size_t>(common_prefix(content_.sequence, sequence));
  add(kept);
  add(sequence.size() - kept);
  for (std::size_t i = kept; i < sequence.size(); ++i) add(index(sequence[i]));
  add(snapshots.size());
  for (const SavedSnapshot& snapshot : snapshots) {
    add(snapshot.length);
    add(snapshot.precision);
    add(snapshot.place);
  }
  for (const auto& [key, unit] : units) {
    for (const std::int32_t part : key) add(part);
    add(unit.number);
    add(unit.sum);
    add(unit.sum >> 32);
  }
  log_.add(number_of(SessionSection::memory), 0, checked(std::as_bytes(std::span(numbers))));
  // The section before this one counted until now.
  content_.sequence = std::move(sequence);
  content_.snapshots = std::move(snapshots);
  content_.units = std::move(units);
  log_.sync();
}

bool SessionWriter::is_wasteful() const {
  constexpr std::uint64_t besides = 48;  // of a unit: the head of its section, and its numbers
  std::uint64_t live = content_.text_bytes + sizeof(TokenId) * content_.sequence.size();
  for (const auto& [key, unit] : content_.units) {
    live += content_.places[unit.number].length + besides;
  }
  return log_.size() > live + dead_bytes_max;
}

}  // namespace hyb
