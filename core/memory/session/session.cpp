#include "core/memory/session/session.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace hyb {

void add_session_text(SectionWriter& writer, const SessionText& text) {
  add_text(writer, SessionSection::fingerprint, to_text(to_json(text.fingerprint)));
  add_text(writer, SessionSection::app, text.app);
}

void write_session(const std::filesystem::path& path, const SessionText& text) {
  SectionWriter writer(path, session_format);
  add_session_text(writer, text);
  writer.commit();
}

SessionText read_session(const std::filesystem::path& path) {
  SectionReader reader(path, session_format, SectionReader::Size::any);
  SessionText text;
  const std::string fingerprint = read_text(reader, SessionSection::fingerprint);
  text.fingerprint = fingerprint_from(parse_json(fingerprint, path.string()), path.string());
  text.app = read_text(reader, SessionSection::app);
  return text;
}

namespace {

/// Of whole units.
Fingerprint whole_layout(const SnapshotIo& snapshot_io) {
  const MemoryLayout& layout = snapshot_io.layout();
  return layout_facts(layout, [&](ViewId view) { return layout.content_bytes(view); });
}

/// Of what answers depend on.
Fingerprint answer_layout_of(const SnapshotIo& snapshot_io) {
  return layout_facts(snapshot_io.layout(),
                      [&](ViewId view) { return snapshot_io.answer_bytes(view); });
}

/// What is written, in the order of the file.
struct Selection {
  struct Entry {
    const Snapshot* snapshot;
    std::uint32_t sequence;
    std::vector<std::uint32_t> units;  // numbers in the file
  };
  std::vector<Entry> entries;
  std::vector<CheckpointUnit> units;
  SessionTransfer saved;
};

/// Every snapshot on the path of a sequence, once, the deepest first.
std::vector<Selection::Entry> snapshots_of(const PrefixCache& cache,
                                           std::span<const std::vector<TokenId>> sequences) {
  std::vector<Selection::Entry> entries;
  std::set<const Snapshot*> seen;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    for (const Snapshot* snapshot : cache.tree().on_the_way(sequences[i])) {
      if (!seen.insert(snapshot).second) continue;
      entries.push_back(
          {.snapshot = snapshot, .sequence = static_cast<std::uint32_t>(i), .units = {}});
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.snapshot->checkpoint.length() > b.snapshot->checkpoint.length();
  });
  return entries;
}

/// Numbers the units in the order in which they are first needed.
Selection select(const MemoryLayout& layout, std::vector<Selection::Entry> entries,
                 std::uint64_t bytes_max) {
  Selection selection;
  std::map<std::pair<ViewId, std::int32_t>, std::uint32_t> numbers;
  for (Selection::Entry& entry : entries) {
    const std::vector<CheckpointUnit> units = units_of(entry.snapshot->checkpoint, layout);
    std::uint64_t bytes = selection.saved.bytes;
    for (const CheckpointUnit& unit : units) {
      if (!numbers.contains({unit.view, unit.unit})) bytes += layout.content_bytes(unit.view);
    }
    if (bytes > bytes_max) {
      ++selection.saved.left_out;
      continue;
    }
    for (const CheckpointUnit& unit : units) {
      const auto next = static_cast<std::uint32_t>(selection.units.size());
      const auto [number, is_new] = numbers.try_emplace({unit.view, unit.unit}, next);
      if (is_new) selection.units.push_back(unit);
      entry.units.push_back(number->second);
    }
    selection.saved.bytes = bytes;
    selection.saved.length = std::max(selection.saved.length, entry.snapshot->checkpoint.length());
    ++selection.saved.snapshots;
    selection.entries.push_back(std::move(entry));
  }
  return selection;
}

void add_tokens(SectionWriter& writer, std::uint32_t number, std::span<const TokenId> tokens) {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(tokens.size());
  for (const TokenId token : tokens) numbers.push_back(static_cast<std::uint32_t>(index(token)));
  add_numbers(writer, SessionSection::tokens, number, numbers);
}

void add_snapshot(SectionWriter& writer, std::uint32_t number, const Selection::Entry& entry) {
  const Checkpoint& checkpoint = entry.snapshot->checkpoint;
  const Precision precision = checkpoint.packed() != no_packed ? Precision::int8 : Precision::exact;
  std::vector<std::uint32_t> numbers = {
      entry.sequence, static_cast<std::uint32_t>(checkpoint.length()),
      static_cast<std::uint32_t>(precision), static_cast<std::uint32_t>(entry.snapshot->place)};
  numbers.insert(numbers.end(), entry.units.begin(), entry.units.end());
  add_numbers(writer, SessionSection::snapshot, number, numbers);
}

void add_units(SectionWriter& writer, SnapshotIo& snapshot_io,
               std::span<const CheckpointUnit> units) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < units.size(); ++i) {
    bytes.resize(snapshot_io.layout().unit_bytes(units[i].view));
    snapshot_io.read(units[i], bytes);
    writer.add(static_cast<std::uint32_t>(SessionSection::unit), static_cast<std::uint32_t>(i),
               std::span(bytes).first(snapshot_io.layout().content_bytes(units[i].view)));
  }
}

}  // namespace

SessionTransfer write_session(const std::filesystem::path& path, const SessionText& text,
                              SnapshotIo& snapshot_io,
                              std::span<const std::vector<TokenId>> sequences,
                              std::uint64_t bytes_max) {
  snapshot_io.flush_orders();
  const Selection selection =
      select(snapshot_io.layout(), snapshots_of(snapshot_io.cache(), sequences), bytes_max);
  SectionWriter writer(path, session_format);
  add_session_text(writer, text);
  const Fingerprint layout = whole_layout(snapshot_io),
                    answer_layout = answer_layout_of(snapshot_io);
  add_text(
      writer, SessionSection::outline,
      to_text(to_json(SessionOutline{
          .layout = layout,
          .answer_layout = answer_layout == layout ? std::nullopt : std::optional(answer_layout),
          .sequences = sequences.size(),
          .snapshots = selection.entries.size(),
          .units = selection.units.size()})));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    add_tokens(writer, static_cast<std::uint32_t>(i), sequences[i]);
  }
  for (std::size_t i = 0; i < selection.entries.size(); ++i) {
    add_snapshot(writer, static_cast<std::uint32_t>(i), selection.entries[i]);
  }
  add_units(writer, snapshot_io, selection.units);
  writer.commit();
  return selection.saved;
}

namespace {

constexpr std::int32_t no_view_yet = -1;

/// A snapshot as the file describes it.
struct FileSnapshot {
  std::span<const TokenId> key;  // of one of the file's sequences
  Precision precision;
  SnapshotPlace place;
  std::vector<std::uint32_t> units;      // numbers in the file, in the order of units_of
  std::optional<Reservation> room = {};  // in the pool; empty: none yet
};

/// The whole file without the units' bytes, checked.
struct FileOutline {
  std::vector<std::vector<TokenId>> sequences;
  std::vector<FileSnapshot> snapshots = {};
  std::vector<std::int32_t> views;  // of each unit; no_view_yet: no snapshot needs it
};

/// Reads a session file from start to end. Every member throws Error(model) for what it refuses.
class SessionLoader {
 public:
  SessionLoader(const std::filesystem::path& path, SnapshotIo& snapshot_io)
      : path_(path.string()), reader_(path, session_format), snapshot_io_(&snapshot_io) {}

  void check(const Fingerprint& here) {
    const std::string text = read_text(reader_, SessionSection::fingerprint);
    const std::string differs = difference(here, fingerprint_from(parse_json(text, path_), path_));
    if (!differs.empty()) reader_.fail("is of another model or setting: " + differs);
    expect_section(reader_, SessionSection::app, 0);
  }

  FileOutline read_outline() {
    const std::string text = read_text(reader_, SessionSection::outline);
    const SessionOutline counts = session_outline_from(parse_json(text, path_), path_);
    const std::string differs = difference(whole_layout(*snapshot_io_), counts.layout);
    has_whole_units_ = differs.empty();
    has_other_drafts_ = !has_whole_units_ && counts.answer_layout.has_value();
    if (!has_whole_units_ &&
        answer_layout_of(*snapshot_io_) != counts.answer_layout.value_or(counts.layout)) {
      reader_.fail("has memory of another layout: " + differs);
    }
    // Each is a section of its own, so counts cannot exceed the sections of the file.
    if (counts.sequences + counts.snapshots + counts.logits.size() + counts.units !=
        reader_.sections_left()) {
      reader_.fail("is damaged: its sections are not as many as it says");
    }
    FileOutline outline{.sequences = read_sequences(counts.sequences),
                        .views = std::vector<std::int32_t>(counts.units, no_view_yet)};
    for (std::uint32_t i = 0; i < counts.snapshots; ++i) {
      outline.snapshots.push_back(read_snapshot(i, outline.sequences));
      assign_views(outline.snapshots.back(), outline.views);
    }
    // Earlier versions kept some, from which nothing is drawn any more.
    for (const std::uint32_t snapshot : counts.logits) {
      const SectionHead head = expect_section(reader_, SessionSection::logits, snapshot);
      std::vector<std::byte> unread(static_cast<std::size_t>(head.length));
      reader_.read(unread);
    }
    return outline;
  }

  /// targets[unit]: the units of the pool that get its bytes.
  void read_units(const FileOutline& outline,
                  const std::vector<std::vector<CheckpointUnit>>& targets) {
    std::vector<std::byte> bytes;
    for (std::uint32_t i = 0; i < targets.size(); ++i) {
      const SectionHead head = expect_section(reader_, SessionSection::unit, i);
      if (outline.views[i] == no_view_yet) continue;
      const MemoryLayout& layout = snapshot_io_->layout();
      const ViewId view{outline.views[i]};
      const std::size_t wanted =
          has_whole_units_ ? layout.content_bytes(view) : snapshot_io_->answer_bytes(view);
      const auto length = static_cast<std::size_t>(head.length);
      if (length < wanted || (length > wanted && !has_other_drafts_)) {
        reader_.fail("is damaged: a unit has another size");
      }
      bytes.resize(length);
      reader_.read(bytes);
      bytes.resize(wanted);
      bytes.resize(layout.unit_bytes(view));  // zeros: guesses find nothing there
      for (const CheckpointUnit& target : targets[i]) snapshot_io_->write(target, bytes);
    }
    if (reader_.next()) reader_.fail("is damaged: sections after the last one");
  }

 private:
  std::vector<std::vector<TokenId>> read_sequences(std::size_t count) {
    std::vector<std::vector<TokenId>> sequences;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::vector<TokenId>& tokens = sequences.emplace_back();
      for (const std::uint32_t number : read_numbers(reader_, SessionSection::tokens, i)) {
        tokens.push_back(TokenId{static_cast<std::int32_t>(number)});
      }
    }
    return sequences;
  }

  FileSnapshot read_snapshot(std::uint32_t number,
                             std::span<const std::vector<TokenId>> sequences) {
    const std::vector<std::uint32_t> numbers =
        read_numbers(reader_, SessionSection::snapshot, number);
    const bool is_one = numbers.size() >= 4 && numbers[0] < sequences.size() && numbers[1] > 0 &&
                        numbers[1] <= sequences[numbers[0]].size() &&
                        numbers[2] <= static_cast<std::uint32_t>(Precision::int8) &&
                        numbers[3] < snapshot_places;
    if (!is_one) reader_.fail("is damaged: snapshot " + std::to_string(number) + " can't be");
    return {.key = std::span(sequences[numbers[0]]).first(numbers[1]),
            .precision = static_cast<Precision>(numbers[2]),
            .place = static_cast<SnapshotPlace>(numbers[3]),
            .units = {numbers.begin() + 4, numbers.end()}};
  }

  /// A unit belongs to one view, and a snapshot has exactly the units that its kinds need.
  void assign_views(const FileSnapshot& snapshot, std::vector<std::int32_t>& views) {
    const MemoryLayout& layout = snapshot_io_->layout();
    const auto length = static_cast<std::int32_t>(snapshot.key.size());
    std::vector<std::int32_t> wanted;
    for (std::int32_t group = 0; group < static_cast<std::int32_t>(layout.groups.size()); ++group) {
      wanted.insert(wanted.end(), held_pages(layout, group, length).size(), group);
    }
    if (layout.slots.per_superblock > 0) {
      const bool is_exact = snapshot.precision == Precision::exact;
      wanted.push_back(index(is_exact ? layout.slot_view() : layout.packed_view()));
    }
    if (wanted.size() != snapshot.units.size()) {
      reader_.fail("is damaged: a snapshot of " + std::to_string(length) + " tokens has " +
                   std::to_string(snapshot.units.size()) + " units, " +
                   std::to_string(wanted.size()) + " are needed");
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (snapshot.units[i] >= views.size()) reader_.fail("is damaged: a unit is missing");
      std::int32_t& view = views[snapshot.units[i]];
      if (view != no_view_yet && view != wanted[i]) {
        reader_.fail("is damaged: a unit is of two kinds");
      }
      view = wanted[i];
    }
  }

  std::string path_;
  SectionReader reader_;
  SnapshotIo* snapshot_io_;
  bool has_whole_units_ = true;    ///< what guesses depend on, too, is as it is here
  bool has_other_drafts_ = false;  ///< units end with bytes that mean nothing here
};

/// Among those with room, the one with the most tokens in common with the key.
SharedPrefix nearest(std::span<const FileSnapshot> snapshots, std::span<const TokenId> key) {
  SharedPrefix best;
  for (const FileSnapshot& other : snapshots) {
    if (!other.room) continue;
    const std::int32_t shared = common_prefix(key, other.key);
    if (shared > best.tokens) best = {.from = &other.room->checkpoint, .tokens = shared};
  }
  return best;
}

/// Allocates room for those that the prefix tree lacks. Returns the number for which there is none.
std::int32_t allocate(std::span<FileSnapshot> snapshots, SnapshotIo& snapshot_io) {
  std::int32_t left_out = 0;
  for (FileSnapshot& snapshot : snapshots) {
    if (snapshot_io.has(snapshot.key)) continue;
    do {
      snapshot.room =
          snapshot_io.room(snapshot.key, snapshot.precision, nearest(snapshots, snapshot.key));
    } while (!snapshot.room && snapshot_io.evict_for(snapshot.key));
    if (!snapshot.room) ++left_out;
  }
  return left_out;
}

std::vector<std::vector<CheckpointUnit>> targets_of(const FileOutline& outline,
                                                    const MemoryLayout& layout) {
  std::vector<std::vector<CheckpointUnit>> targets(outline.views.size());
  for (const FileSnapshot& snapshot : outline.snapshots) {
    if (!snapshot.room) continue;
    const std::vector<CheckpointUnit> units = units_of(snapshot.room->checkpoint, layout);
    require(units.size() == snapshot.units.size(), "session: units as the kinds need them");
    for (std::size_t i = 0; i < units.size(); ++i) {
      if (!snapshot.room->is_shared[i]) targets[snapshot.units[i]].push_back(units[i]);
    }
  }
  return targets;
}

SessionTransfer restore(SessionLoader& loader, SnapshotIo& snapshot_io) {
  FileOutline outline = loader.read_outline();
  SessionTransfer restored;
  restored.left_out = allocate(outline.snapshots, snapshot_io);
  snapshot_io.flush_orders();
  loader.read_units(outline, targets_of(outline, snapshot_io.layout()));
  // From here on everything is known to be valid. The shallow ones first, as they were made.
  for (auto i = outline.snapshots.rbegin(); i != outline.snapshots.rend(); ++i) {
    FileSnapshot& snapshot = *i;
    if (!snapshot.room || !snapshot_io.adopt(snapshot.key, std::move(snapshot.room->checkpoint),
                                             snapshot.place, SnapshotSource::session)) {
      continue;
    }
    ++restored.snapshots;
    restored.length = std::max(restored.length, static_cast<std::int32_t>(snapshot.key.size()));
  }
  return restored;
}

}  // namespace

SessionTransfer restore_session(const std::filesystem::path& path, const Fingerprint& here,
                                SnapshotIo& snapshot_io) {
  try {
    SessionLoader loader(path, snapshot_io);
    loader.check(here);
    return restore(loader, snapshot_io);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    return {.refused = error.what()};
  }
}

}  // namespace hyb
