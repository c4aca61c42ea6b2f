#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/options/words.h"
#include "core/base/error.h"
#include "core/base/json.h"

namespace hyb::app {

inline constexpr std::size_t line_bytes_max = std::size_t{16} << 20;

/// Why a line cannot be answered: `error.code` of its result.
enum class LineFault : std::uint8_t {
  json,
  request,
  member,  ///< --template names one that the line lacks
  quote,   ///< one that does not end: the line goes on in the next one
  length,
  generation
};

inline constexpr Words<LineFault, 6> line_faults = {{{"invalid_json", LineFault::json},
                                                     {"invalid_request", LineFault::request},
                                                     {"missing_member", LineFault::member},
                                                     {"open_quote", LineFault::quote},
                                                     {"line_too_long", LineFault::length},
                                                     {"generation_failed", LineFault::generation}}};

/// An error that keeps one line from being a prompt, or a table from being read.
struct LineError : Error {
  LineError(LineFault its_fault, const std::string& text)
      : Error(ErrorKind::usage, text), fault(its_fault) {}
  LineFault fault;
};

/// --template: a prompt with places for what a line holds. {} is the whole line of text, {name} a
/// column of a table or a member of a JSON object; {{ and }} are braces.
class LineTemplate {
 public:
  /// Throws Error(usage) for braces that do not match and for a template without a place.
  explicit LineTemplate(std::string text);

  const std::string& text() const { return text_; }
  /// True if its places have names; else all are {}. Throws Error(usage) for both in one.
  bool has_names() const { return !places_.front().name.empty(); }

  /// Finds the columns. Throws Error(usage) that lists them where a name is none or two of them.
  void set_header(const std::vector<std::string>& columns);

  /// This and what follows throw LineError for a prompt of more than line_bytes_max.
  std::string of_text(std::string_view line) const;
  /// Takes as many fields as the header has. Throws Error(usage) where there are more or fewer.
  std::string of_fields(const std::vector<std::string>& fields) const;
  /// Says which members `object` lacks, with the names that it has; empty if it lacks none.
  std::string missing_member(const Json& object) const;
  /// The prompt in the place of the members that it is made of and of what else asks: messages,
  /// prompt, url, method. Texts are taken as they are, other values as JSON; a custom_id and an id
  /// stay. Throws Error(usage) for a null, and for a body, which has no members to fill in.
  void fill_object(Json& object) const;

 private:
  struct Place {
    std::string name;        ///< empty: the line
    std::string after = {};  ///< up to the next place
    std::size_t column = 0;
  };

  std::string filled(const std::vector<std::string_view>& values) const;

  std::string text_, before_;
  std::vector<Place> places_;
  std::size_t columns_ = 0;
};

/// The fields of a line of CSV (RFC 4180, without line breaks in quotes) or TSV (no quotes). Throws
/// LineError for a quote out of place, and with LineFault::quote for one that does not end.
std::vector<std::string> fields_of(std::string_view line, char separator);

}  // namespace hyb::app
