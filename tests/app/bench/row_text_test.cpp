#include "app/bench/row_text.h"

#include <doctest/doctest.h>

using namespace hyb;
using namespace hyb::app;

namespace {

Json row() {
  Json json = {{"name", "a \"b\", it's"}, {"count", 3}, {"rate", 1.5}, {"is", true}};
  json["none"] = nullptr;
  json["samples"] = {1, 2};
  return json;
}

}  // namespace

TEST_SUITE("app/bench/row_text") {
  TEST_CASE("CSV: quotes doubled, null empty, arrays left out") {
    CHECK(csv_header(row()) == "name,count,rate,is,none");
    CHECK(csv_line(row()) == "\"a \"\"b\"\", it's\",\"3\",\"1.5\",\"true\",");
  }

  TEST_CASE("SQL: a table, and rows whose quotes end nothing") {
    CHECK(sql_header(row(), "t") ==
          "CREATE TABLE IF NOT EXISTS t (\n  name TEXT,\n  count INTEGER,\n  rate REAL,\n  is "
          "INTEGER,\n  none REAL\n);");
    CHECK(sql_line(row(), "t") ==
          "INSERT INTO t (name,count,rate,is,none) VALUES ('a \"b\", it''s',3,1.5,1,NULL);");
  }
}
