#include "app/batch/result_lines.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/model/digest.h"
#include "app/request/tools.h"

namespace hyb::app {
namespace {

std::string line_of(const std::string& custom_id, Json response, Json error) {
  const Json line = {{"id", "batch_req_" + hex(hash_of(custom_id)).substr(0, 24)},
                     {"custom_id", custom_id},
                     {"response", std::move(response)},
                     {"error", std::move(error)}};
  return to_text(line) + "\n";
}

std::string escaped(std::string_view text, ResultFormat format) {
  std::string out;
  for (const char letter : text) {
    const char* const name = letter == '\n'                                  ? "\\n"
                             : letter == '\r'                                ? "\\r"
                             : letter == '\\'                                ? "\\\\"
                             : letter == '\t' && format == ResultFormat::tsv ? "\\t"
                                                                             : nullptr;
    name == nullptr ? out += letter : out += name;
  }
  return out;
}

constexpr std::string_view tsv_failed = "error";

std::string header_of(ResultFormat format) {
  return format == ResultFormat::text
             ? "answer\n"
             : "custom_id\tanswer\tfinish_reason\tprompt_tokens\tcompletion_tokens\terror\n";
}

}  // namespace

std::string answered_line(const std::string& custom_id, const Json& body, ResultFormat format) {
  if (format == ResultFormat::jsonl) {
    return line_of(custom_id,
                   {{"status_code", 200},
                    {"request_id", "req_" + hex(hash_of(custom_id)).substr(0, 24)},
                    {"body", body}},
                   nullptr);
  }
  const Json& choice = body.at("choices").at(0);
  const Json* const message = member_of(choice, "message");
  const Json* const text = message != nullptr ? member_of(*message, "content")  // null: empty
                                              : member_of(choice, "text");
  std::string all = text == nullptr ? "" : text->get<std::string>();
  const Json* const calls = message != nullptr ? member_of(*message, "tool_calls") : nullptr;
  for (const Json& call : calls != nullptr ? *calls : Json::array()) {
    const Json& function = call.at("function");
    all += (all.empty() ? "" : "\n") + call_text({function.at("name"), function.at("arguments")});
  }
  const std::string answer = escaped(all, format);
  if (format == ResultFormat::text) return answer + "\n";
  const Json& usage = body.at("usage");
  return fmt::format("{}\t{}\t{}\t{}\t{}\t\n", escaped(custom_id, format), answer,
                     choice.at("finish_reason").get<std::string>(),
                     usage.at("prompt_tokens").get<std::int64_t>(),
                     usage.at("completion_tokens").get<std::int64_t>());
}

std::string failed_line(const std::string& custom_id, const LineFailure& failure,
                        ResultFormat format) {
  if (format == ResultFormat::text) return "\n";
  const std::string_view code = word_of(line_faults, failure.fault);
  if (format == ResultFormat::tsv) {
    return fmt::format("{}\t\t{}\t\t\t{}\n", escaped(custom_id, format), tsv_failed,
                       escaped(fmt::format("{}: {}", code, failure.message), format));
  }
  return line_of(custom_id, nullptr, {{"code", code}, {"message", failure.message}});
}

bool is_failed_line(std::string_view line, ResultFormat format) {
  if (format == ResultFormat::text) return line.empty();
  const std::size_t tab = std::min(line.find('\t'), line.size());
  return line.substr(tab).starts_with(fmt::format("\t\t{}\t\t\t", tsv_failed));
}

bool is_result_of(std::string_view line, const std::string& custom_id) {
  return line.starts_with(escaped(custom_id, ResultFormat::tsv) + '\t');
}

std::string lines_between(const InputFile& input, ResultFormat format, std::int64_t after,
                          std::int64_t before) {
  std::string lines;
  if (format == ResultFormat::jsonl) return lines;
  for (std::int64_t number = after + 1; number < before; ++number) {
    lines += number == input.header_number() ? header_of(format) : "\n";
  }
  return lines;
}

}  // namespace hyb::app
