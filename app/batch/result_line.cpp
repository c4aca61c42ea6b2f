#include "app/batch/result_line.h"

#include "core/base/error.h"

namespace hyb::app {
namespace {

std::string line_of(const std::string& custom_id, Json response, Json error) {
  const Json line = {{"id", "batch_req_" + hex(hash_of(custom_id)).substr(0, 24)},
                     {"custom_id", custom_id},
                     {"response", std::move(response)},
                     {"error", std::move(error)}};
  return to_text(line) + "\n";
}

}  // namespace

std::string answered_line(const std::string& custom_id, const Json& response_body) {
  return line_of(custom_id,
                 {{"status_code", 200},
                  {"request_id", "req_" + hex(hash_of(custom_id)).substr(0, 24)},
                  {"body", response_body}},
                 nullptr);
}

std::string failed_line(const std::string& custom_id, const LineFailure& failure) {
  return line_of(custom_id, nullptr, {{"code", failure.code}, {"message", failure.message}});
}

std::optional<ResultMark> read_result(std::string_view line) {
  try {
    const Json result =
        parse_json(line, "result", {.bytes_max = std::size_t{1} << 30, .depth_max = 64});
    if (!result.is_object() || !result.contains("response") || !result.contains("error")) {
      return std::nullopt;
    }
    const auto id = result.find("custom_id");
    if (id == result.end() || !id->is_string()) return std::nullopt;
    return ResultMark{.id = hash_of(id->get_ref<const std::string&>()),
                      .failed = !result["error"].is_null()};
  } catch (const Error&) {  // torn: an expected outcome
    return std::nullopt;
  }
}

}  // namespace hyb::app
