#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/batch/hash128.h"
#include "app/batch/request_line.h"
#include "core/io/file.h"

namespace hyb::app {

/// Where a line lies and what it calls itself; 32 bytes a line is all that is kept in memory.
struct InputLine {
  Hash128 id;            ///< of its custom_id
  std::uint64_t offset;  ///< in the file
  std::uint32_t bytes;   ///< without the line break; line_bytes_max + 1: too long, not to be read
  std::uint32_t number;  ///< from 1, blank lines count
};

/// A file of requests, one per line, read twice: once for the ids, and line by line when asked.
/// Blank lines are skipped, CRLF and a byte order mark are taken for what they are.
class InputFile {
 public:
  /// "-" is stdin, which is kept in an unnamed file in `scratch` as long as this lives. Throws
  /// Error(model) for what cannot be read and for compressed files.
  static InputFile open(const std::string& name, const std::filesystem::path& scratch);

  /// Finds the lines. Without `format` the first line that is not blank decides: JSONL where it
  /// begins with "{", else plain text. Throws Error(usage) when two lines have the same custom_id,
  /// naming both, and when a later line of what seems to be plain text begins with {".
  void scan(std::optional<LineFormat> format);

  LineFormat format() const { return format_; }
  std::span<const InputLine> lines() const { return lines_; }

  /// Reads a line again and takes it apart. Throws Error(model) when the file has changed.
  RequestLine read(const InputLine& line) const;

  /// Of all bytes.
  Hash128 hash() const { return hash_; }
  const std::string& name() const { return name_; }
  const File& file() const { return file_; }

 private:
  InputFile(std::string name, File file) : name_(std::move(name)), file_(std::move(file)) {}

  void hash_bytes();
  void refuse_compressed() const;
  void refuse_duplicates() const;

  std::string name_;
  File file_;
  Hash128 hash_;
  LineFormat format_ = LineFormat::jsonl;
  std::vector<InputLine> lines_;
};

}  // namespace hyb::app
