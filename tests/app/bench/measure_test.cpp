#include <vector>

#include <doctest/doctest.h>

#include "app/bench/measure.h"
#include "tests/support/error_text.h"

namespace measure_test {

using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/bench/measure") {
  TEST_CASE("figures that repeat badly, or of a machine that is busy, are doubted in one line") {
    const std::vector<double> spreads = {0.02, 0.3, 0.09};
    CHECK(doubt_text(std::vector<double>{0.02, 0.09}, 1.0, 2).empty());
    const std::string wide = doubt_text(spreads, 0.1, 2);
    CHECK(contains(wide, "1 of 3 rows ± over 10 %; repeat more: -r 20"));
    CHECK(contains(doubt_text({}, 14.0, 2), "doubtful: load 14.0 on 2 CPUs; end"));
    CHECK(contains(doubt_text(spreads, 14.0, 2), "10 %, load 14.0 on 2"));
    for (const std::string& text : {wide, doubt_text(spreads, 14.0, 2)}) {
      CHECK(text.find('\n') == text.size() - 1);
    }
  }

  TEST_CASE("answers that ended before the requested length are reported in one line") {
    RequestRecord whole;
    whole.token_s = {0.1, 0.2};
    whole.tokens_requested = 2;
    RequestRow row;
    row.repetitions.resize(1);
    row.repetitions.front().records = {whole};
    CHECK(early_end_text(std::vector<RequestRow>{row}).empty());
    RequestRecord refused;  // has no answer that could be short
    refused.tokens_requested = 7;
    row.repetitions.front().records.push_back(refused);
    CHECK(early_end_text(std::vector<RequestRow>{row}).empty());
    whole.tokens_requested = 9;
    row.repetitions.front().records.push_back(whole);
    CHECK(contains(early_end_text(std::vector<RequestRow>{row}), "with 4 of 11 tokens; --ignore"));
  }

  TEST_CASE("a table is Markdown where that is the format, and else fits") {
    const Table table{{{"a"}, {"b"}}, {{"1", "2"}}};
    CHECK(shown_text(table, "md") == markdown_text(table));
    CHECK(shown_text(table, "text") == plain_text(table));
    CHECK(is_for_people("text"));
    CHECK_FALSE(is_for_people("json"));
  }
}

}  // namespace measure_test
