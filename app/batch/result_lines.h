#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "app/batch/input_file.h"
#include "app/options/words.h"
#include "core/base/json.h"

namespace hyb::app {

/// What lines of the output are. Of text and TSV line N is of the input's line N: lines that ask
/// nothing have an empty one, and the header of a table has a header. Line breaks, carriage returns
/// and backslashes in answers are \n, \r and \\, as `printf %b` reads them; in TSV tabs are \t.
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

/// Whether this line of text or TSV is of a line that failed; of text an empty answer counts, too.
bool is_failed_line(std::string_view line, ResultFormat format);

/// Whether this line of TSV names the request.
bool is_result_of(std::string_view line, const std::string& custom_id);

/// What the output has for the input's lines after number `after` and before number `before`, none
/// of which is a request; of JSONL nothing.
std::string lines_between(const InputFile& input, ResultFormat format, std::int64_t after,
                          std::int64_t before);

}  // namespace hyb::app
