#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/json.h"

namespace hyb::app {

/// What the lines of an input are.
enum class LineFormat : std::uint8_t { jsonl, text };

inline constexpr std::size_t line_bytes_max = std::size_t{16} << 20;

/// Why a line cannot be answered: the `error` of its result.
struct LineFailure {
  std::string code;  ///< invalid_json, invalid_request, line_too_long or generation_failed
  std::string message;
};

/// What a line asks for.
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
  std::optional<LineFailure> failure = {};
};

bool is_blank(std::string_view line);

/// Takes line `number` (from 1) apart; never throws for what is wrong with it. Three shapes are
/// known: {"custom_id", "body": {...}} with optional url and method, an object that is a body
/// itself with an optional custom_id or id beside its fields, and plain text.
RequestLine parse_request_line(std::string_view line, std::int64_t number, LineFormat format);

/// The result of a line over line_bytes_max.
RequestLine too_long_line(std::uint64_t bytes, std::int64_t number);

}  // namespace hyb::app
