#include "core/memory/session/session.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb {

SessionContent open_session(const std::filesystem::path& path, Damage damage) {
  SectionReader reader(path, session_format);
  return read_content(reader, damage);
}

namespace {

/// Restores from a session file. Every member throws Error(model) for what it refuses.
class SessionLoader {
 public:
  SessionLoader(const std::filesystem::path& path, SessionContent content, SnapshotIo& snapshot_io)
      : reader_(path, session_format), snapshot_io_(&snapshot_io), content_(std::move(content)) {}

  SessionTransfer restore(const Fingerprint& here) {
    const std::string differs = difference(here, content_.text.fingerprint);
    if (!differs.empty()) reader_.fail("is of another model or setting: " + differs);
    if (!content_.outline.empty()) check_layout();
    for (const SavedSnapshot& snapshot : content_.snapshots) {
      const auto length = static_cast<std::size_t>(snapshot.length);
      loads_.push_back({.snapshot = snapshot,
                        .key = std::span(content_.sequence).first(length),
                        .units = unit_keys(layout(), snapshot.length, snapshot.precision)});
    }
    SessionTransfer restored;
    restored.left_out = allocate();
    snapshot_io_->flush_orders();
    const std::set<UnitKey> damaged = read_units();
    // From here on it is known what is damaged. The shallow ones first, as they were made.
    std::sort(loads_.begin(), loads_.end(),
              [](const Load& a, const Load& b) { return a.snapshot.length < b.snapshot.length; });
    for (Load& load : loads_) {
      const bool is_whole = std::none_of(load.units.begin(), load.units.end(),
                                         [&](const UnitKey& key) { return damaged.contains(key); });
      if (!load.room || !is_whole ||
          !snapshot_io_->adopt(load.key, std::move(load.room->checkpoint), load.snapshot.place,
                               SnapshotSource::session)) {
        continue;
      }
      ++restored.snapshots;
      restored.length = load.snapshot.length;
    }
    if (restored.snapshots == 0 && !damaged.empty()) reader_.fail("is damaged in its memory");
    return restored;
  }

 private:
  struct Load {
    SavedSnapshot snapshot;
    std::span<const TokenId> key;
    std::vector<UnitKey> units;            // in the order of units_of
    std::optional<Reservation> room = {};  // in the pool; empty: none
  };

  const MemoryLayout& layout() const { return snapshot_io_->layout(); }

  void check_layout() {
    const SessionOutline there =
        session_outline_from(parse_json(content_.outline, reader_.path()), reader_.path());
    const SessionOutline here = outline_of(*snapshot_io_);
    const std::string differs = difference(here.layout, there.layout);
    has_whole_units_ = differs.empty();
    has_other_drafts_ = !has_whole_units_ && there.answer_layout.has_value();
    if (!has_whole_units_ &&
        here.answer_layout.value_or(here.layout) != there.answer_layout.value_or(there.layout)) {
      reader_.fail("has memory of another layout: " + differs);
    }
  }

  /// Room for those that the prefix tree lacks. Returns the number for which there is none.
  std::int32_t allocate() {
    std::int32_t left_out = 0;
    for (Load& load : loads_) {
      if (snapshot_io_->has(load.key)) continue;
      SharedPrefix best;  // among those with room
      for (const Load& other : loads_) {
        const std::int32_t shared = other.room ? common_prefix(load.key, other.key) : 0;
        if (shared > best.tokens) best = {.from = &other.room->checkpoint, .tokens = shared};
      }
      load.room = snapshot_io_->make_room(load.key, load.snapshot.precision, best);
      if (!load.room) ++left_out;
    }
    return left_out;
  }

  /// Returns those that are damaged.
  std::set<UnitKey> read_units() {
    std::map<UnitKey, std::vector<CheckpointUnit>> targets;
    for (const Load& load : loads_) {
      if (!load.room) continue;
      const std::vector<CheckpointUnit> units = units_of(load.room->checkpoint, layout());
      require(units.size() == load.units.size(), "session: units as the kinds need them");
      for (std::size_t i = 0; i < units.size(); ++i) {
        if (!load.room->is_shared[i]) targets[load.units[i]].push_back(units[i]);
      }
    }
    std::set<UnitKey> damaged;
    std::vector<std::byte> bytes;
    for (const auto& [key, into] : targets) {
      const ViewId view = into.front().view;
      if (!read_unit(key, view, bytes)) damaged.insert(key);
      for (const CheckpointUnit& unit : into) snapshot_io_->write(unit, bytes);
    }
    return damaged;
  }

  bool read_unit(const UnitKey& key, ViewId view, std::vector<std::byte>& bytes) const {
    const auto unit = content_.units.find(key);
    if (unit == content_.units.end()) reader_.fail("is damaged: a unit is missing");
    const auto& [begin, length] = content_.places[unit->second.number];
    const std::size_t wanted =
        has_whole_units_ ? layout().content_bytes(view) : snapshot_io_->answer_bytes(view);
    if (length < wanted || (length > wanted && !has_other_drafts_)) {
      reader_.fail("is damaged: a unit has another size");
    }
    bytes.resize(static_cast<std::size_t>(length));
    reader_.read_at(begin, bytes);
    const bool is_good = checksum(bytes) == unit->second.sum;
    bytes.resize(wanted);
    bytes.resize(layout().unit_bytes(view));  // zeros: guesses find nothing there
    return is_good;
  }

  SectionReader reader_;
  SnapshotIo* snapshot_io_;
  SessionContent content_;
  std::vector<Load> loads_ = {};   ///< the best first
  bool has_whole_units_ = true;    ///< what guesses depend on, too, is as it is here
  bool has_other_drafts_ = false;  ///< units end with bytes that mean nothing here
};

}  // namespace

SessionTransfer restore_session(const std::filesystem::path& path, const Fingerprint& here,
                                SnapshotIo& snapshot_io,
                                const std::optional<SessionContent>& content) {
  try {
    return SessionLoader(path, content ? *content : open_session(path), snapshot_io).restore(here);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    return {.refused = error.what()};
  }
}

}  // namespace hyb
