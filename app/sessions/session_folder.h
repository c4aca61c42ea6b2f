#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/sessions/session_record.h"
#include "core/memory/session_file.h"
#include "core/memory/session_memory.h"

namespace hyb::app {

/// The name under which a chat without one is saved; the next such chat takes its place.
inline constexpr const char* last_session = "last";

/// Throws Error(usage) unless `name` is 1 to 64 letters, digits, "-", "_" and ".", and begins with
/// a letter or digit.
void check_session_name(const std::string& name);

/// A session read from its file.
struct SavedSession {
  Fingerprint fingerprint;
  SessionRecord record;
};

/// The memory that a session is saved with: snapshots on the way of these token sequences.
struct SessionMemory {
  SnapshotCarrier& carrier;
  std::vector<std::vector<TokenId>> sequences;
  std::uint64_t bytes_max;
};

/// Where sessions lie: one file each, NAME.session; the folder is made when the first one is saved,
/// open to its owner only.
class SessionFolder {
 public:
  explicit SessionFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path path_of(const std::string& name) const;
  bool has(const std::string& name) const;

  /// Every name, sorted; none where there is no folder.
  std::vector<std::string> names() const;

  /// Throws Error(model) that begins with the file's path for one that is missing, damaged or of
  /// another version, and says how to be rid of it.
  SavedSession read(const std::string& name) const;

  /// Replaces the file at once and durably, with what `memory` says of the engine's memory; null:
  /// texts and ids only. Throws Error(runtime).
  void write(const std::string& name, const SavedSession& session,
             const SessionMemory* memory) const;

  /// Puts the memory of a session back into the engine; `here` is what the file's fingerprint has
  /// to be equal to.
  SessionRestored restore(const std::string& name, const Fingerprint& here,
                          SnapshotCarrier& carrier) const;

  /// Throws Error(usage) when there is none of the name, Error(runtime) when it can't be removed.
  void remove(const std::string& name) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace hyb::app
