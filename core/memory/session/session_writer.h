#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>
#include <vector>

#include "core/memory/session/session.h"

namespace hyb {

/// Names what a session is saved with: two snapshots on the way of one sequence, the deepest and
/// one to go back to before its last turn.
struct SessionMemory {
  SnapshotIo& snapshot_io;
  std::vector<TokenId> sequence;
  std::int32_t before = 0;  ///< tokens of it before the last turn
  /// A snapshot of at least this length that the file has is as good as a deeper one.
  std::int32_t before_min = 0;
  std::uint64_t bytes_max = ~std::uint64_t{0};  ///< of pages and slots
};

/// Adds to a session file, turn by turn. The bytes of a page that is full are written once; those
/// of what is needed no more give their places to others. Whatever moment the process is killed in,
/// the file has the text that was added and the snapshots that are not being replaced. Everything
/// throws Error(runtime) where the file can't be written.
class SessionWriter {
 public:
  /// A new file with this text, in place of any other; readable by its owner only.
  static SessionWriter create(const std::filesystem::path& path, const SessionText& text);

  /// Goes on with a file of the present version. Throws Error(model) as open_session().
  explicit SessionWriter(const std::filesystem::path& path)
      : SessionWriter(path, open_session(path)) {}
  /// The same of a file whose content is known.
  SessionWriter(const std::filesystem::path& path, SessionContent content);

  /// Durable when it returns.
  void add(std::string_view app) { add_text(SessionSection::app, app); }
  /// Text that stays until the next add(); durable unless the machine fails.
  void add_draft(std::string_view app) { add_text(SessionSection::draft, app); }

  /// Has the file hold this memory, as much as `bytes_max` allows, and no other: first what is
  /// deepest, else what the file has. Between steps.
  SessionTransfer save(const SessionMemory& memory);

  /// Returns whether so much of the file is of no use any more that a new one is better.
  bool is_wasteful() const;

  /// Returns the open file, wherever it was renamed to.
  int descriptor() const { return log_.descriptor(); }
  std::uint64_t bytes() const { return log_.size(); }  ///< of the file, as it was written

 private:
  using Units = std::map<UnitKey, SessionContent::Unit>;

  void add_text(SessionSection kind, std::string_view text);
  void drop_damaged();
  void keep_shared(const SessionMemory& memory);
  void write_unit(const CheckpointUnit& unit, const SnapshotIo& snapshot_io,
                  std::multimap<std::uint64_t, std::uint32_t>& free, SessionContent::Unit& into);
  void add_memory(std::vector<TokenId> sequence, std::vector<SavedSnapshot> snapshots, Units units);

  SessionContent content_;
  SectionLog log_;
  bool is_checked_ = false;  ///< the units have the bytes that they should have
};

}  // namespace hyb
