#include "app/batch/batch_report.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::app;
using namespace std::chrono_literals;
using testing::contains;

TEST_SUITE("app/batch/batch_report") {
  TEST_CASE("what was reused stands beside what could have been") {
    BatchReport report{.counts = {.done = 9,
                                  .failed = 1,
                                  .tokens = 30,
                                  .prompt_tokens = 200,
                                  .reused_tokens = 150},
                       .lines = 12,
                       .failed = 2,
                       .time = 2s,
                       .is_planned = true,
                       .planned_tokens = 200,
                       .sharable_tokens = 160};
    CHECK(summary_text(report) ==
          "12 lines, 8 answered now in 2 s, 15.0 tokens/s, 2 failed; reused 75.0 % of 200 prompt "
          "tokens, 80.0 % are there to be reused\n");
    CHECK(report_json(report)["reused_tokens"] == 150);
    CHECK(report_json(report)["sharable_tokens"] == 160);
    CHECK(report_json(report)["from_int8_snapshots"] == 0);
    report.counts.packed = 3;
    CHECK(contains(summary_text(report), "; 3 answers from int8 snapshots\n"));
    CHECK(report_json(report)["from_int8_snapshots"] == 3);
    report.is_planned = false;
    CHECK_FALSE(contains(summary_text(report), "80.0"));
    CHECK_FALSE(report_json(report).contains("sharable_tokens"));
    report.counts.prompt_tokens = 0;
    CHECK_FALSE(contains(summary_text(report), "reused"));
  }
}
