#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "app/batch/hash128.h"
#include "app/batch/request_line.h"

namespace hyb::app {

/// A line of OpenAI's batch output with its line break. The line's own id follows from the
/// custom_id, so that a rerun gives it again.
std::string answered_line(const std::string& custom_id, const Json& response_body);
std::string failed_line(const std::string& custom_id, const LineFailure& failure);

/// What a result says about its request.
struct ResultMark {
  Hash128 id;  ///< of the custom_id
  bool failed;
};

/// Nothing when `line` is not a whole result.
std::optional<ResultMark> read_result(std::string_view line);

}  // namespace hyb::app
