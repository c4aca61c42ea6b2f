#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "app/batch/input_file.h"
#include "app/options/words.h"
#include "core/base/json.h"

namespace hyb::app {

/// Format of output lines. In text and TSV line N answers the input's line N: one that asks nothing
/// gets an empty one, and a table's header gets a header. Line breaks, carriage returns and
/// backslashes in answers are \n, \r and \\, as `printf %b` reads them; in TSV tabs are \t.
enum class ResultFormat : std::uint8_t {
  jsonl,  ///< OpenAI's batch output; each line says which request it is of
  text,   ///< the answer; empty where the line failed
  tsv     ///< custom_id, answer, finish_reason, prompt_tokens, completion_tokens, error
};

inline constexpr Words<ResultFormat, 3> result_formats = {
    {{"jsonl", ResultFormat::jsonl}, {"text", ResultFormat::text}, {"tsv", ResultFormat::tsv}}};

/// A result with its line break. Of JSONL the line's own id follows from the custom_id, so that a
/// rerun gives it again; the others have the first of the body's choices.
std::string answered_line(const std::string& custom_id, const Json& response_body,
                          ResultFormat format = ResultFormat::jsonl);
std::string failed_line(const std::string& custom_id, const LineFailure& failure,
                        ResultFormat format = ResultFormat::jsonl);

/// True if this line of text or TSV is of a failed line; in text an empty answer counts, too.
bool is_failed_line(std::string_view line, ResultFormat format);

/// True if this line of TSV names the request.
bool is_result_of(std::string_view line, const std::string& custom_id);

/// Returns the output of the input's lines between the numbers `after` and `before`, none of which
/// is a request; JSONL has nothing for them.
std::string lines_between(const InputFile& input, ResultFormat format, std::int64_t after,
                          std::int64_t before);

}  // namespace hyb::app
