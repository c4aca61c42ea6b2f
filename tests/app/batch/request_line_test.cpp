#include "app/batch/request_line.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

RequestLine jsonl(std::string_view line) { return parse_request_line(line, 7, LineFormat::jsonl); }

std::string failure(std::string_view line) {
  const RequestLine parsed = jsonl(line);
  return parsed.failure ? parsed.failure->code + ": " + parsed.failure->message : "";
}

}  // namespace

TEST_SUITE("app/batch/request_line") {
  TEST_CASE("the three shapes") {
    const RequestLine openai =
        jsonl(R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions",)"
              R"("body":{"messages":[{"role":"user","content":"x"}],"n":2}})");
    CHECK_FALSE(openai.failure);
    CHECK(openai.custom_id == "a");
    CHECK(openai.form == RequestForm::messages);
    CHECK(openai.body["n"] == 2);

    CHECK(jsonl(R"({"body":{"prompt":"x"}})").form == RequestForm::completion);
    const RequestLine brief = jsonl(R"({"prompt":"x","id":"b","seed":3})");
    CHECK(brief.form == RequestForm::prompt);
    CHECK(brief.custom_id == "b");
    CHECK(brief.body == Json{{"prompt", "x"}, {"seed", 3}});

    const RequestLine text = parse_request_line("{\"x\r", 3, LineFormat::text);
    CHECK(text.custom_id == "line-3");
    CHECK(text.body["prompt"] == "{\"x");
  }

  TEST_CASE("ids") {
    CHECK(jsonl(R"({"prompt":"x"})").custom_id == "line-7");
    CHECK(jsonl(R"({"prompt":"x","custom_id":null,"id":5})").custom_id == "5");
    CHECK(jsonl(R"({"prompt":"x","custom_id":"c","id":"d"})").custom_id == "c");
    CHECK(contains(failure(R"({"prompt":"x","custom_id":[1]})"), "invalid_request: custom_id"));
    CHECK(contains(failure(R"({"prompt":"x","custom_id":""})"), "invalid_request: custom_id"));
    // A line that is wrong otherwise keeps its name.
    CHECK(jsonl(R"({"custom_id":"e","body":7})").custom_id == "e");
  }

  TEST_CASE("what is wrong with a line is said and never thrown") {
    for (const char* line : {"", "{", "nonsense", "{\"prompt\":\"\xff\"}", "{\"prompt\":1,}",
                             R"({"a":1,"a":2})", "{\"prompt\":\"x\"} {}"}) {
      CAPTURE(line);
      CHECK(failure(line).starts_with("invalid_json: "));
    }
    for (const char* line :
         {"[]", "7", "{}", R"({"body":{}})", R"({"body":[]})", R"({"prompt":null})",
          R"({"prompt":"x","messages":[]})", R"({"url":"/v1/embeddings","body":{"prompt":"x"}})",
          R"({"url":"/v1/chat/completions","body":{"prompt":"x"}})",
          R"({"url":"/v1/completions","body":{"messages":[]}})",
          R"({"method":"GET","body":{"prompt":"x"}})"}) {
      CAPTURE(line);
      CHECK(failure(line).starts_with("invalid_request: "));
    }
    CHECK(parse_request_line("ab\xff", 2, LineFormat::text).failure->message ==
          "line 2 is not valid UTF-8 at byte 2");
    const std::string deep = std::string(100'000, '[');
    CHECK(failure(deep).starts_with("invalid_json: "));
  }
}
