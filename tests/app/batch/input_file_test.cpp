#include <sys/stat.h>

#include <fstream>
#include <thread>

#include <doctest/doctest.h>

#include "app/batch/input_file.h"
#include "core/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace input_file_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

struct Written {
  explicit Written(const std::string& text) {
    std::ofstream(folder.path() / "in", std::ios::binary) << text;
  }
  InputFile scan(std::optional<LineFormat> format = {},
                 std::optional<LineTemplate> filling = {}) const {
    InputFile input = InputFile::open((folder.path() / "in").string(), folder.path());
    input.scan(format, std::move(filling));
    return input;
  }
  TemporaryFolder folder;
};

std::vector<std::string> ids(const InputFile& input) {
  std::vector<std::string> ids;
  for (const InputLine& line : input.lines()) ids.push_back(input.read(line).custom_id);
  return ids;
}

}  // namespace

TEST_SUITE("app/batch/input_file") {
  TEST_CASE("blank lines, CRLF, a byte order mark and a missing last line break") {
    const Written written("\xEF\xBB\xBFone\r\n\r\n   \n  two\nthree");
    const InputFile input = written.scan();
    CHECK(input.format() == LineFormat::text);
    CHECK(ids(input) == std::vector<std::string>{"line-1", "line-4", "line-5"});
    CHECK(input.read(input.lines()[0]).body["prompt"] == "one");
    CHECK(input.read(input.lines()[1]).body["prompt"] == "  two");
    CHECK(input.read(input.lines()[2]).body["prompt"] == "three");
    CHECK(Written("").scan().lines().empty());
    CHECK(Written("\n\r\n \n").scan().lines().empty());
  }

  TEST_CASE("the first line decides, and a contradiction asks for a flag") {
    const Written jsonl("\n {\"prompt\":\"a\",\"id\":\"x\"}\nbroken\n{\"prompt\":\"b\"}\n");
    const InputFile input = jsonl.scan();
    CHECK(input.format() == LineFormat::jsonl);
    CHECK(ids(input) == std::vector<std::string>{"x", "line-3", "line-4"});
    CHECK(input.read(input.lines()[1]).failure->fault == LineFault::json);

    const Written mixed("broken\n{\"prompt\":\"b\"}\n");
    CHECK(contains(error_text([&] { mixed.scan(); }), "line 2 looks like JSON"));
    CHECK(mixed.scan(LineFormat::jsonl).lines().size() == 2);
    CHECK(
        mixed.scan(LineFormat::text).read(mixed.scan(LineFormat::text).lines()[1]).body["prompt"] ==
        "{\"prompt\":\"b\"}");

    const TemporaryFolder folder;
    for (const char* name : {"x.csv", "y.TSV"}) {
      const std::string file = folder.write(name, "q\nx\n").string();
      const auto scan = [&](std::optional<LineFormat> format) {
        InputFile table = InputFile::open(file, folder.path());
        table.scan(format);
        return table;
      };
      CHECK(contains(error_text([&] { scan({}); }), "a table, by its name: --format "));
      CHECK(scan(LineFormat::text).lines().size() == 2);
    }
  }

  TEST_CASE("a template makes prompts of lines, of columns and of members") {
    const auto prompts = [](const std::string& text, const char* filling,
                            std::optional<LineFormat> format = {}) {
      const InputFile input = Written(text).scan(format, LineTemplate(filling));
      std::vector<std::string> found;
      for (const InputLine& line : input.lines()) {
        const RequestLine read = input.read(line);
        found.push_back(read.failure ? "! " + read.failure->message
                                     : read.body["prompt"].get<std::string>());
      }
      return found;
    };
    using Prompts = std::vector<std::string>;
    CHECK(prompts("a, b\n\nc\r\n", "Say {}.") == Prompts{"Say a, b.", "Say c."});
    CHECK(prompts("{\"a\":1}\n", "Say {}.", LineFormat::text) == Prompts{"Say {\"a\":1}."});
    CHECK(prompts("\xEF\xBB\xBFt,u\r\n\n\"x, y\",z\r\nx\n", "{u}/{t}") ==
          Prompts{"z/x, y", "! has 1 field, the header 2"});
    CHECK(prompts("q\n[\n", "{q}") == Prompts{"["});
    CHECK(prompts("t\tu\nx, y\tz\n", "{u}/{t}") == Prompts{"z/x, y"});
    CHECK(prompts("{\"t\":\"x\",\"max_tokens\":4}\n{\"u\":1}\n", "{t}") ==
          Prompts{"x", "! --template: there is no member named t; it has: u"});
    const std::string long_line(line_bytes_max, 'a');
    const LineTemplate dotted("{}.");
    CHECK(parse_request_line(long_line, 1, LineFormat::text, &dotted).failure->fault ==
          LineFault::length);
    const Written object("{\"t\":\"x\",\"custom_id\":\"me\",\"max_tokens\":4,\"other\":1}\n");
    const InputFile input = object.scan({}, LineTemplate("{t}"));
    CHECK(ids(input) == std::vector<std::string>{"me"});
    const RequestLine line = input.read(input.lines()[0]);
    CHECK(line.body == Json{{"max_tokens", 4}, {"prompt", "x"}});
    CHECK(line.columns.empty());
  }

  TEST_CASE("a template that does not fit is refused before anything runs") {
    const auto refusal = [](const std::string& text, std::optional<LineFormat> format,
                            std::optional<LineTemplate> filling) {
      return error_text([&] { Written(text).scan(format, std::move(filling)); });
    };
    CHECK(contains(refusal("t,u\nx,y\n", {}, LineTemplate("{v}")), "the columns are: t, u"));
    CHECK(contains(refusal("{\"t\":1}\n", {}, LineTemplate("{v}")), "it has: t"));
    CHECK(contains(refusal("{\"t\":1}\n", {}, LineTemplate("{}")), "say {NAME}"));
    CHECK(contains(refusal("a\n", LineFormat::text, LineTemplate("{v}")), "have no names"));
    CHECK(contains(refusal("t,u\n", LineFormat::csv, {}), "--template says what prompt"));
    CHECK(contains(refusal("q\nx\n\"What is 1\nplus 2?\"\n", {}, LineTemplate("{q}")),
                   "line 3: a quote does not end in its line"));
  }

  TEST_CASE("the same custom_id twice is refused, with both lines") {
    const std::string text = error_text([] {
      Written(
          "{\"prompt\":\"a\",\"id\":\"x\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\",\"id\":\"x\"}\n")
          .scan();
    });
    CHECK(contains(text, "lines 1 and 3"));
    CHECK(contains(text, "\"x\""));
    CHECK_THROWS_AS(Written("{\"prompt\":\"a\"}\n{\"prompt\":\"b\",\"id\":\"line-1\"}").scan(),
                    Error);
  }

  TEST_CASE("a line that is too long fails alone") {
    const Written written("{\"prompt\":\"a\"}\n{\"prompt\":\"" + std::string(line_bytes_max, 'x') +
                          "\"}\n{\"prompt\":\"b\"}\n");
    const InputFile input = written.scan();
    REQUIRE(input.lines().size() == 3);
    CHECK(input.read(input.lines()[1]).failure->fault == LineFault::length);
    CHECK(input.read(input.lines()[2]).body["prompt"] == "b");
  }

  TEST_CASE("compressed files, models, other encodings and folders are refused by name") {
    const auto refusal = [](std::string_view text) {
      return model_error([&] { Written(std::string(text)).scan(); });
    };
    using namespace std::string_view_literals;
    CHECK(contains(refusal("\x1f\x8b\x08zzz"), "gunzip"));
    CHECK(contains(refusal("PK\x03\x04zzz"), "is a zip archive"));
    CHECK(contains(refusal("GGUF\x03\0\0\0abc\nx"sv), "is a GGUF model"));
    CHECK(contains(refusal("\x40\0\0\0\0\0\0\0{\"a\":{}}"sv), "is a safetensors file"));
    CHECK(contains(refusal("\xff\xfeh\0i\0\n\0"sv), "is text in UTF-16, "));
    CHECK(contains(refusal("\xff\xfe\0\0h\0\0\0"sv), "is text in UTF-32, "));
    CHECK(contains(refusal("h\0i\0\n\0"sv), "is text in UTF-16LE, "));
    CHECK(contains(refusal("\0h\0i\0\n"sv), "iconv -f UTF-16BE -t UTF-8"));
    CHECK(contains(refusal("a line\nand a\0 byte\n"sv), "is a binary file"));
    for (const char* prompt : {"GGUF is a format?\n", "BZh\n", "PK\n", "%PDF-1.7 is what?\n"}) {
      CHECK(Written(prompt).scan().lines().size() == 1);
    }
    const Written written("x");
    CHECK_THROWS_AS(InputFile::open(written.folder.path().string(), "."), Error);
    CHECK_THROWS_AS(InputFile::open("/nonexistent", "."), Error);
  }

  TEST_CASE("whole documents in JSON are refused, prompts that begin like one are not") {
    const auto refusal = [](const char* text, std::optional<LineFormat> format = {}) {
      return model_error([&] { Written(text).scan(format); });
    };
    for (const char* text :
         {"[{\"prompt\":\"a\"}]", "\n [ {\"prompt\":\"a\"},\n", "[\n  {}\n]", "[\"a\", \"b\"]"}) {
      CAPTURE(text);
      CHECK(contains(refusal(text), "is a JSON array"));
    }
    CHECK(contains(refusal("[1]\n", LineFormat::jsonl), "jq -c '.[]'"));
    CHECK(contains(refusal("{\n  \"prompt\": \"a\"\n}\n"), "over many lines"));
    for (const char* text : {"[INST] hello\n", "[\"quoted\"] explain\n", "[1, 2] is what?\n"}) {
      CAPTURE(text);
      CHECK(Written(text).scan().lines().size() == 1);
    }
    CHECK(Written("[\n{\n").scan(LineFormat::text).lines().size() == 2);
  }

  TEST_CASE("a named pipe is read as a file is") {
    const TemporaryFolder folder;
    const std::string pipe = (folder.path() / "pipe").string();
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    std::thread writer([&] { std::ofstream(pipe) << "one\ntwo\n"; });
    InputFile input = InputFile::open(pipe, folder.path());
    writer.join();
    input.scan({});
    CHECK(input.is_piped());
    CHECK(ids(input) == std::vector<std::string>{"line-1", "line-2"});
    CHECK(input.read(input.lines()[1]).body["prompt"] == "two");
    CHECK_FALSE(input.has_changed());
  }

  TEST_CASE("a file that changes meanwhile is noticed") {
    const Written written("one\ntwo\n");
    const InputFile input = written.scan();
    CHECK_FALSE(input.has_changed());
    std::ofstream(written.folder.path() / "in", std::ios::app) << "three\n";
    CHECK(input.has_changed());
    CHECK_THROWS_AS(input.read(input.lines()[0]), Error);
  }
}

namespace {

RequestLine jsonl(std::string_view line) { return parse_request_line(line, 7, LineFormat::jsonl); }

std::string failure(std::string_view line) {
  const RequestLine parsed = jsonl(line);
  if (!parsed.failure) return "";
  return std::string(word_of(line_faults, parsed.failure->fault)) + ": " + parsed.failure->message;
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

  TEST_CASE("other endpoints are refused by name, and fields beside the body") {
    CHECK(contains(failure(R"({"url":"/v1/embeddings","body":{"input":"x"}})"),
                   "not /v1/embeddings: hyb answers with text"));
    CHECK(contains(failure(R"({"url":"/v1/responses","body":{"input":"x"}})"),
                   "not /v1/responses: write its input as messages"));
    CHECK(contains(failure(R"({"url":"/v1/moderations","body":{"input":"x"}})"),
                   "not /v1/moderations"));
    CHECK(contains(failure(R"({"url":7,"body":{"prompt":"x"}})"), "not this"));
    CHECK(contains(failure(R"({"body":{"input":"x"}})"), "input: is of embeddings or responses"));
    CHECK(contains(failure(R"({"body":{"prompt":"x"},"temperature":0})"),
                   "temperature: is beside body, not in it"));
    for (const char* field : {R"("guided_json":{})", R"("tool_choice":"required")",
                              R"("response_format":{"type":"json_object"})", R"("min_tokens":5)"}) {
      CAPTURE(std::string(field));
      CHECK(contains(failure(R"({"body":{"prompt":"x"},)" + std::string(field) + "}"),
                     "is beside body, not in it"));
    }
    CHECK(failure(R"({"body":{"prompt":"x"},"min_tokens":0,"user":"a"})").empty());
    CHECK(failure(R"({"body":{"prompt":"x"},"label":0,"model":"m"})").empty());
  }

  TEST_CASE("columns of data sets beside a prompt are distinguished from parameters") {
    const RequestLine line = jsonl(
        R"({"prompt":"x","url":"https://a/b","prompt_id":1,"prompts":2,"step":3,"message":"m",)"
        R"("document":"d","tool":"t","temperature_used":1,"temperature":0.5,"seed":null})");
    CHECK_FALSE(line.failure);
    CHECK(line.columns.size() == 8);
    CHECK(line.body.size() == 3);
    CHECK(jsonl(R"({"prompt":"x","temprature":0})").columns.empty());
    CHECK(jsonl(R"({"prompt":"x","guided_regex":"a"})").columns.empty());
    CHECK(jsonl(R"({"body":{"prompt":"x","prompt_id":1}})").columns.empty());
    CHECK(jsonl(R"({"url":"/v1/completions","prompt":"x"})").form == RequestForm::completion);
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
    const std::string broken = parse_request_line("{x", 6, LineFormat::jsonl).failure->message;
    CHECK(broken.starts_with("line 6: not valid JSON at byte 2 (syntax error"));
    const std::string deep = std::string(100'000, '[');
    CHECK(failure(deep).starts_with("invalid_json: "));
  }
}

}  // namespace input_file_test
