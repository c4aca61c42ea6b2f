#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hyb::app {

/// The entries of an editor, oldest first, kept in a file across runs when there is one. The file
/// has one line per entry: "\n" for a line break, "\\" for a backslash; mode 0600. A file that
/// cannot be read or written is warned of once, and history goes on without it.
class History {
 public:
  static constexpr std::size_t entries_max = 1000;
  static constexpr std::size_t stored_bytes_max =
      64 * 1024;  ///< longer entries stay out of the file

  /// Without a file: entries of this run only.
  History() = default;
  explicit History(std::filesystem::path file);

  const std::vector<std::string>& entries() const { return entries_; }

  /// Adds an entry, unless it is empty or the same as the last one.
  void add(const std::string& entry);

 private:
  void load();
  void append(const std::string& entry);
  void rewrite();
  void give_up(const std::string& reason);

  std::optional<std::filesystem::path> file_;
  std::vector<std::string> entries_;
};

}  // namespace hyb::app
