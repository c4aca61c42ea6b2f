#include "app/batch/line_template.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/strings.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

[[noreturn]] void refuse_line(const std::string& text, LineFault fault = LineFault::request) {
  throw LineError(fault, text);
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t names_max = 40;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), names_max));
  std::vector<std::string> shown(names.begin(), end);
  for (std::string& name : shown) name = excerpt(name);
  return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > names_max ? ", ..." : "");
}

}  // namespace

LineTemplate::LineTemplate(std::string text) : text_(std::move(text)) {
  for (std::size_t at = 0; at < text_.size(); ++at) {
    std::string& plain = places_.empty() ? before_ : places_.back().after;
    const char letter = text_[at];
    if (letter != '{' && letter != '}') {
      plain += letter;
    } else if (at + 1 < text_.size() && text_[at + 1] == letter) {
      plain += text_[at++];
    } else {
      const std::size_t end = letter == '{' ? text_.find_first_of("{}", at + 1) : at;
      if (end == at || end == std::string::npos || text_[end] == '{') {
        refuse_line(
            fmt::format("--template: the brace at byte {} has no other one; {{{{ and }}}} are "
                        "braces in the text",
                        at + 1));
      }
      places_.push_back({.name = text_.substr(at + 1, end - at - 1)});
      at = end;
    }
  }
  if (places_.empty()) {
    refuse_line(
        "--template: has no place for the line: {} is all of its text, {name} a column or a "
        "member of it");
  }
  const bool is_mixed = std::ranges::any_of(
      places_, [&](const Place& place) { return place.name.empty() == has_names(); });
  if (is_mixed) refuse_line("--template: has {} and names: a line is one text, or has parts");
}

void LineTemplate::set_header(const std::vector<std::string>& columns) {
  columns_ = columns.size();
  for (Place& place : places_) {
    const auto count = std::ranges::count(columns, place.name);
    if (count != 1) {
      refuse_line(fmt::format("--template: {} named {}; the columns are: {}",
                              count == 0 ? "there is no column" : "there are several columns",
                              excerpt(place.name), listed(columns)));
    }
    place.column =
        static_cast<std::size_t>(std::ranges::find(columns, place.name) - columns.begin());
  }
}

std::string LineTemplate::filled(const std::vector<std::string_view>& values) const {
  std::size_t bytes = before_.size();
  for (std::size_t i = 0; i < places_.size(); ++i)
    bytes += values[i].size() + places_[i].after.size();
  if (bytes > line_bytes_max) {
    refuse_line(fmt::format("--template: makes a prompt of {} bytes, at most {} are read", bytes,
                            line_bytes_max),
                LineFault::length);
  }
  std::string prompt = before_;
  for (std::size_t i = 0; i < places_.size(); ++i) (prompt += values[i]) += places_[i].after;
  return prompt;
}

std::string LineTemplate::of_text(std::string_view line) const {
  return filled(std::vector<std::string_view>(places_.size(), line));
}

std::string LineTemplate::of_fields(const std::vector<std::string>& fields) const {
  if (fields.size() != columns_) {
    refuse_line(
        fmt::format("has {}, the header {}", counted(std::ssize(fields), "field"), columns_));
  }
  std::vector<std::string_view> values;
  for (const Place& place : places_) values.push_back(fields[place.column]);
  return filled(values);
}

std::string LineTemplate::missing_member(const Json& object) const {
  for (const Place& place : places_) {
    if (object.contains(place.name)) continue;
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items()) names.push_back(name);
    return fmt::format("--template: there is no member named {}; it has: {}", excerpt(place.name),
                       listed(names));
  }
  return {};
}

void LineTemplate::fill_object(Json& object) const {
  std::map<std::string_view, std::string> texts;
  std::vector<std::string_view> values;
  for (const Place& place : places_) {
    const Json& value = object.at(place.name);
    if (value.is_null()) refuse_line(fmt::format("--template: {} is null", excerpt(place.name)));
    if (!texts.contains(place.name)) {
      texts[place.name] = value.is_string() ? value.get<std::string>() : to_text(value);
    }
    values.push_back(texts[place.name]);
  }
  for (const Place& place : places_) {
    if (place.name != "custom_id" && place.name != "id") object.erase(place.name);
  }
  for (const char* name : {"messages", "prompt", "url", "method"}) object.erase(name);
  if (object.contains("body")) {
    refuse_line("--template: fills in members of the line, and this one has a body");
  }
  object["prompt"] = filled(values);
}

std::vector<std::string> fields_of(std::string_view line, char separator) {
  std::vector<std::string> fields(1);
  const bool has_quotes = separator == ',';
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (has_quotes && line[at] == '"' && fields.back().empty()) {
      while (true) {
        const std::size_t end = line.find('"', at + 1);
        if (end == std::string_view::npos) {
          refuse_line(
              "a quote does not end in its line, and line breaks inside quotes are not read: make "
              "it JSONL, an object a line, where \\n is one",
              LineFault::quote);
        }
        fields.back() += line.substr(at + 1, end - at - 1);
        at = end;
        if (at + 1 >= line.size() || line[at + 1] != '"') break;
        fields.back() += line[at++];
      }
      if (at + 1 < line.size() && line[at + 1] != separator) {
        refuse_line("a field goes on after its closing quote");
      }
    } else if (line[at] == separator) {
      fields.emplace_back();
    } else if (has_quotes && line[at] == '"') {
      refuse_line("a quote is inside a field that does not begin with one; write \"a \"\"b\"\"\"");
    } else {
      fields.back() += line[at];
    }
  }
  return fields;
}

}  // namespace hyb::app
