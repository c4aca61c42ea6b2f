#include <algorithm>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/batch/output_file.h"
#include "app/batch/result_lines.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace result_lines_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

Json chat(const Json& content) {
  return {{"choices", {{{"message", {{"content", content}}}, {"finish_reason", "stop"}}}},
          {"usage", {{"prompt_tokens", 3}, {"completion_tokens", 4}}}};
}

/// What a whole run writes: `header`, results of every line that asks, and empty lines.
std::string whole(const InputFile& input, ResultFormat format) {
  std::string out = lines_between(input, format, 0, input.lines().front().number);
  for (std::size_t i = 0; i < input.lines().size(); ++i) {
    const std::int64_t number = input.lines()[i].number;
    const std::string id = "line-" + std::to_string(number);
    out += i % 4 == 1 ? failed_line(id, {.fault = LineFault::json, .message = "m\tn"}, format)
                      : answered_line(id, chat("a\nb\t" + id), format);
    out += lines_between(
        input, format, number,
        i + 1 < input.lines().size() ? input.lines()[i + 1].number : input.line_count() + 1);
  }
  return out;
}

}  // namespace

TEST_SUITE("app/batch/result_lines") {
  TEST_CASE("an answer is one line, and what ends lines is escaped") {
    CHECK(answered_line("x", chat("a\nb\r\\n\tc"), ResultFormat::text) == "a\\nb\\r\\\\n\tc\n");
    CHECK(answered_line("x\ty", chat("a\tb"), ResultFormat::tsv) == "x\\ty\ta\\tb\tstop\t3\t4\t\n");
    CHECK(answered_line("x", chat(nullptr), ResultFormat::text) == "\n");
    const Json completion = {{"choices", {{{"text", "t"}, {"finish_reason", "length"}}}},
                             {"usage", {{"prompt_tokens", 1}, {"completion_tokens", 1}}}};
    CHECK(answered_line("x", completion, ResultFormat::text) == "t\n");
    const LineFailure failure = {.fault = LineFault::json, .message = "one\ntwo"};
    CHECK(failed_line("x", failure, ResultFormat::text) == "\n");
    const std::string failed = failed_line("x", failure, ResultFormat::tsv);
    CHECK(failed == "x\t\terror\t\t\tinvalid_json: one\\ntwo\n");
    CHECK(is_failed_line(failed, ResultFormat::tsv));
    CHECK_FALSE(is_failed_line("no tab", ResultFormat::tsv));
    for (const char* answer : {"", "error", "a\t\terror"}) {
      CHECK_FALSE(
          is_failed_line(answered_line("x", chat(answer), ResultFormat::tsv), ResultFormat::tsv));
    }
  }

  TEST_CASE("cut anywhere, an output of lines goes on with the line whose turn it is") {
    const TemporaryFolder folder;
    const auto in = folder.write("in", "\nt\tu\n\n\nA\t1\nB\t2\n\n\nC\t3\nD\t4\nE\t5\n\n");
    InputFile input = InputFile::open(in.string(), folder.path());
    input.scan({}, LineTemplate("{t} {u}"));
    REQUIRE(input.lines().size() == 5);
    CHECK(input.header_number() == 2);
    CHECK(input.line_count() == 12);
    for (const ResultFormat format : {ResultFormat::text, ResultFormat::tsv}) {
      const std::string all = whole(input, format);
      CHECK(std::count(all.begin(), all.end(), '\n') == input.line_count());
      for (std::size_t at = 0; at <= all.size(); ++at) {
        CAPTURE(at);
        const auto path = folder.write("out", std::string_view(all).substr(0, at));
        OutputFile output = OutputFile::open(path);
        const std::vector<ResultMark> marks = output.recover_lines(input, format);
        for (std::size_t i = 0; i < marks.size(); ++i) {
          REQUIRE(marks[i].id == input.lines()[i].id);
          CHECK(marks[i].failed == (i % 4 == 1));
        }
        const std::string before = content(path);  // and what is left is what the job will append
        REQUIRE(all.starts_with(before));
        const std::int64_t next = marks.size() < input.lines().size()
                                      ? input.lines()[marks.size()].number
                                      : input.line_count() + 1;
        CHECK(std::count(before.begin(), before.end(), '\n') == next - 1);
      }
    }
    const auto refusal = [&](const std::string& text, ResultFormat format = ResultFormat::text) {
      OutputFile output = OutputFile::open(folder.write("out", text));
      return error_text([&] { output.recover_lines(input, format); });
    };
    CHECK(contains(refusal("x\nanswer\n"), "line 1 is not of line 1"));
    CHECK(contains(refusal(whole(input, ResultFormat::text) + "\n"), "line 13 is not of line 13"));
    std::string renamed = whole(input, ResultFormat::tsv);
    renamed.replace(renamed.find("line-6"), 6, "line-9");
    CHECK(contains(refusal(renamed, ResultFormat::tsv), "line 6 is not of line 6"));
  }
}

}  // namespace result_lines_test
