#include "app/batch/request_line.h"

#include <fmt/format.h>

#include "app/prompt.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

RequestLine failed(RequestLine line, const char* code, std::string message) {
  line.failure = {.code = code, .message = std::move(message)};
  return line;
}

/// A field that is there and not null: OpenAI's clients write null for "not given".
const Json* given(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// The line's own name for itself. False: there is one that is no name.
bool read_id(const Json& object, const char* key, std::string& id) {
  const Json* found = given(object, key);
  if (found == nullptr) return true;
  if (found->is_number_integer()) {
    id = found->dump();
    return true;
  }
  if (!found->is_string() || found->get_ref<const std::string&>().empty()) return false;
  id = found->get<std::string>();
  return true;
}

/// What url and method say against the body; empty: nothing.
std::string endpoint_problem(const Json& object, RequestForm form) {
  const Json* method = given(object, "method");
  if (method != nullptr && *method != "POST") return "method: only POST is known";
  const Json* url = given(object, "url");
  if (url == nullptr) return {};
  const bool is_chat = form == RequestForm::messages;
  if (*url == "/v1/chat/completions") {
    return is_chat ? "" : "url: chat completions take messages, not prompt";
  }
  if (*url == "/v1/completions") {
    return is_chat ? "url: completions take prompt, not messages" : "";
  }
  return "url: only /v1/chat/completions and /v1/completions are answered";
}

RequestLine from_object(Json object, RequestLine line) {
  const char* key = given(object, "custom_id") != nullptr ? "custom_id" : "id";
  if (!read_id(object, key, line.custom_id)) {
    return failed(std::move(line), "invalid_request",
                  std::string(key) + " is a text that is not empty");
  }
  const bool is_openai = given(object, "body") != nullptr;
  if (is_openai && !object["body"].is_object()) {
    return failed(std::move(line), "invalid_request", "body is an object");
  }
  Json body = is_openai ? object["body"] : object;
  if (!is_openai) {
    for (const char* name : {"custom_id", "id", "url", "method"}) body.erase(name);
  }
  const bool has_messages = given(body, "messages") != nullptr;
  if (has_messages == (given(body, "prompt") != nullptr)) {
    return failed(std::move(line), "invalid_request",
                  has_messages ? "there are messages and a prompt; which is meant?"
                               : "there are neither messages nor a prompt");
  }
  const RequestForm prompted = is_openai ? RequestForm::completion : RequestForm::prompt;
  line.form = has_messages ? RequestForm::messages : prompted;
  if (std::string problem = endpoint_problem(object, line.form); !problem.empty()) {
    return failed(std::move(line), "invalid_request", std::move(problem));
  }
  line.body = std::move(body);
  return line;
}

}  // namespace

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

RequestLine parse_request_line(std::string_view line, std::int64_t number, LineFormat format) {
  RequestLine parsed{.custom_id = fmt::format("line-{}", number)};
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const std::string source = fmt::format("line {}", number);
  if (format == LineFormat::text) {
    try {
      check_utf8(line, source);
    } catch (const Error& error) {
      return failed(std::move(parsed), "invalid_request", error.what());
    }
    parsed.body["prompt"] = std::string(line);
    return parsed;
  }
  try {
    Json object = parse_json(line, source);
    if (object.is_object()) return from_object(std::move(object), std::move(parsed));
    return failed(std::move(parsed), "invalid_request", source + " is no JSON object");
  } catch (const Error& error) {
    return failed(std::move(parsed), "invalid_json", error.what());
  }
}

RequestLine too_long_line(std::uint64_t bytes, std::int64_t number) {
  return failed(
      {.custom_id = fmt::format("line-{}", number)}, "line_too_long",
      fmt::format("line {} has {} bytes, at most {} are read", number, bytes, line_bytes_max));
}

}  // namespace hyb::app
