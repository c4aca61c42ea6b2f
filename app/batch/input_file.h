#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/batch/line_template.h"
#include "app/model/digest.h"
#include "app/options/words.h"
#include "core/base/json.h"
#include "core/io/file.h"

namespace hyb::app {

/// Place of a line in a file.
struct LinePlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;    ///< without the line break
  bool is_terminated = true;  ///< false: the file ends without a line break here
};

/// Reads a file line by line with bounded memory.
class LineReader {
 public:
  /// Lines longer than `kept_max` bytes are reported but not kept. The descriptor stays the
  /// caller's; errors begin with `name`.
  LineReader(int descriptor, std::string name, std::size_t kept_max);

  /// The next line and its first kept_max bytes; false at the end. An empty rest after the last
  /// line break is no line. Throws Error(model) when reading fails.
  bool next(LinePlace& place, std::string& text);

 private:
  bool fill();

  int descriptor_;
  std::string name_;
  std::size_t kept_max_;
  std::uint64_t offset_ = 0;  ///< of the next byte to look at
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
};

/// Format of the lines of an input.
enum class LineFormat : std::uint8_t {
  jsonl,
  text,
  csv,  ///< a table with a header, for --template
  tsv
};

inline constexpr Words<LineFormat, 4> line_formats = {{{"jsonl", LineFormat::jsonl},
                                                       {"text", LineFormat::text},
                                                       {"csv", LineFormat::csv},
                                                       {"tsv", LineFormat::tsv}}};

/// The `error` of a line's result.
struct LineFailure {
  LineFault fault;
  std::string message;
};

enum class RequestForm : std::uint8_t {
  messages,    ///< a chat
  completion,  ///< body.prompt of OpenAI's completions: the text is continued as it is
  prompt,      ///< {"prompt": ...} or a line of plain text: what `hyb run -p` would be given
};

/// One line, taken apart.
struct RequestLine {
  std::string custom_id;  ///< "line-N" where the line has none or cannot be read
  RequestForm form = RequestForm::prompt;
  Json body = Json::object();  ///< the fields of the request; `prompt` also for plain text
  std::vector<std::string> columns = {};  ///< names of fields beside them that are no parameters
  std::optional<LineFailure> failure = {};
};

bool is_blank(std::string_view line);

/// Takes line `number` (from 1) apart; never throws for what is wrong with it. Three shapes are
/// known: {"custom_id", "body": {...}} with optional url and method, an object that is a body
/// itself with an optional custom_id or id among its fields, and plain text. `filling`, which may
/// be null, makes the prompt.
RequestLine parse_request_line(std::string_view line, std::int64_t number, LineFormat format,
                               const LineTemplate* filling = nullptr);

/// The result of a line over line_bytes_max.
RequestLine too_long_line(std::uint64_t bytes, std::int64_t number);

/// Place and name of a line. Only these 32 bytes of each line are kept in memory.
struct InputLine {
  Hash128 id;            ///< of its custom_id
  std::uint64_t offset;  ///< in the file
  std::uint32_t bytes;   ///< without the line break; line_bytes_max + 1: too long, not to be read
  std::uint32_t number;  ///< from 1, blank lines count
};

/// A file of requests, one per line, read twice: once for the ids, and line by line on demand.
/// Blank lines are skipped, CRLF and a byte order mark are taken for what they are.
class InputFile {
 public:
  /// "-" and /dev/stdin are stdin; it and named pipes, such as the /dev/fd/63 of a shell's <(...),
  /// are kept in an unnamed file in `scratch` as long as this lives. Throws Error(model) for what
  /// cannot be read and for what holds no lines of text in UTF-8: compressed files, models, UTF-16.
  static InputFile open(const std::string& name, const std::filesystem::path& scratch);

  /// Finds the lines. Without `format` the first line that is not blank decides: JSONL where it
  /// begins with "{", else plain text, which a file named .csv or .tsv is not. Throws Error(usage)
  /// when two lines have the same custom_id, naming both, and when a later line of what seems to be
  /// plain text begins with {". Throws Error(model) for a JSON array and for an object over many
  /// lines, unless the lines are text. With a template that has names, what is no JSONL is a table:
  /// of TSV where its first line, the header, has a tab, else of CSV. Throws Error(usage) where the
  /// header or the first object lacks a name, and for names that lines of text do not have;
  /// Error(model) for CSV with a line break inside quotes.
  void scan(std::optional<LineFormat> format, std::optional<LineTemplate> filling = {});

  /// Forgets all lines but these, as indices of lines(), ascending.
  void keep_lines(std::span<const std::uint32_t> kept);

  LineFormat format() const { return format_; }
  std::span<const InputLine> lines() const { return lines_; }
  /// Counts all lines, blank ones and a header too.
  std::int64_t line_count() const { return line_count_; }
  /// The number of the line that is a table's header; 0: there is none.
  std::int64_t header_number() const { return header_number_; }

  /// Reads a line again and takes it apart. Throws Error(model) when the file has changed.
  RequestLine read(const InputLine& line) const;

  /// True if its first `bytes` bytes are whole lines with this hash, written as by hex().
  bool begins_with(std::uint64_t bytes, const std::string& hash) const;

  /// It came through a pipe: a rerun needs it sent again.
  bool is_piped() const { return is_piped_; }
  /// The file was written to since it was opened.
  bool has_changed() const;
  /// True if the file that its name leads to now is this one with whole lines appended.
  bool has_more_lines() const;

  /// The hash of all bytes.
  Hash128 hash() const { return hash_; }
  const std::string& name() const { return name_; }
  const File& file() const { return file_; }

 private:
  InputFile(std::string name, File file, bool is_piped)
      : name_(std::move(name)), file_(std::move(file)), is_piped_(is_piped) {}

  static InputFile opened(const std::string& name, const std::filesystem::path& scratch);

  Hash128 hash_of_first(std::uint64_t bytes) const;
  void refuse_document(std::string_view first_line, LineFormat format) const;
  void refuse_duplicates() const;
  RequestLine parse(std::string_view text, std::int64_t number) const {
    return parse_request_line(text, number, format_, filling_ ? &*filling_ : nullptr);
  }
  bool take_header(std::string_view text, std::int64_t number);

  std::string name_;
  File file_;
  bool is_piped_;
  Hash128 hash_;
  LineFormat format_ = LineFormat::jsonl;
  std::optional<LineTemplate> filling_;
  std::int64_t line_count_ = 0, header_number_ = 0;
  std::vector<InputLine> lines_;
};

}  // namespace hyb::app
