#include <algorithm>
#include <sstream>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/engine/trace.h"
#include "tests/sim/random.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/traces.h"

namespace trace_test {

using namespace hyb;

namespace {

using Tokens = std::vector<TokenId>;
using std::chrono::milliseconds;

const std::chrono::steady_clock::time_point begin{milliseconds(5000)};

Tokens tokens_of(std::initializer_list<std::int32_t> ids) {
  Tokens tokens;
  for (const std::int32_t id : ids) tokens.push_back(TokenId{id});
  return tokens;
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<Json> lines_of(const std::ostringstream& out) {
  std::istringstream in(out.str());
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(parse_json(line, "line"));
  return lines;
}

/// What a trace means: position i of segment s is one token, and no other segment has it.
std::vector<std::pair<int, int>> meaning(const Json& line) {
  std::vector<std::pair<int, int>> tokens;
  for (const char* key : {"prompt", "output"}) {
    for (const Json& piece : line[key]) {
      for (int i = 0; i < piece[1].get<int>(); ++i) tokens.emplace_back(piece[0].get<int>(), i);
    }
  }
  return tokens;
}

template <typename T>
std::size_t common(const T& a, const T& b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(end.first - a.begin());
}

}  // namespace

TEST_SUITE("core/engine/trace_recorder") {
  TEST_CASE("a chat is one session, and a turn begins with the segments of the turn before") {
    std::ostringstream out;
    TraceRecorder recorder(out);
    const Tokens first = tokens_of({1, 2, 3}), answer = tokens_of({4, 5});
    recorder.submitted(RequestId{0}, 1, first, begin);
    CHECK(out.str().empty());
    recorder.ended(RequestId{0}, 0, answer);
    recorder.submitted(RequestId{1}, 1, joined(joined(first, answer), tokens_of({6})),
                       begin + milliseconds(1500));
    recorder.ended(RequestId{1}, 0, {});
    recorder.submitted(RequestId{2}, 1, tokens_of({1, 2, 9}), begin + milliseconds(2000));
    recorder.ended(RequestId{2}, 0, {});
    const std::vector<Json> lines = lines_of(out);
    REQUIRE(lines.size() == 3);
    CHECK(to_text(lines[0]) ==
          R"({"t":0.0,"session":"0","turn":1,"prompt":[[1,3]],"output":[[2,2]]})");
    CHECK(to_text(lines[1]) ==
          R"({"t":1.5,"session":"0","turn":2,"prompt":[[1,3],[2,2],[3,1]],"output":[]})");
    CHECK(to_text(lines[2]) ==
          R"({"t":2.0,"session":"1","turn":1,"prompt":[[1,2],[4,1]],"output":[]})");
    std::ostringstream named;
    TraceRecorder by_model(named, "a \"b\"");
    by_model.submitted(RequestId{0}, 2, first, begin);
    for (const std::int32_t choice : {0, 1}) by_model.ended(RequestId{0}, choice, {});
    CHECK(lines_of(named)[0]["model"] == "a \"b\"");
    CHECK_FALSE(lines_of(named)[1].contains("model"));
  }

  TEST_CASE("lines come in order of arrival, a line per choice") {
    std::ostringstream out;
    TraceRecorder recorder(out);
    recorder.submitted(RequestId{0}, 2, tokens_of({1}), begin);
    recorder.submitted(RequestId{1}, 1, tokens_of({2}), begin);
    recorder.ended(RequestId{1}, 0, tokens_of({7}));
    recorder.ended(RequestId{0}, 1, tokens_of({8}));
    CHECK(out.str().empty());
    recorder.ended(RequestId{0}, 0, tokens_of({9, 9}));
    recorder.ended(RequestId{5}, 0, tokens_of({9}));  // unknown
    const std::vector<Json> lines = lines_of(out);
    REQUIRE(lines.size() == 3);
    CHECK(meaning(lines[0]).size() == 3);
    CHECK(meaning(lines[1]).size() == 2);
    CHECK(lines[0]["session"] != lines[1]["session"]);
  }

  TEST_CASE("prompts have as many tokens in common as their segments, whatever came before") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      sim::Random random(seed);
      std::ostringstream out;
      TraceRecorder recorder(out);
      std::vector<Tokens> prompts, whole;
      for (int i = 0; i < 20; ++i) {
        Tokens prompt;
        if (!whole.empty() && random.chance(70)) {
          const Tokens& other = whole[random.below(whole.size())];
          const auto from = random.between(1, static_cast<std::int32_t>(other.size()));
          prompt.assign(other.begin(), other.begin() + from);
        }
        for (int j = random.between(1, 8); j > 0; --j) {
          prompt.push_back(TokenId{random.between(0, 2)});
        }
        Tokens answer;
        // Tokens that no prompt repeats by chance.
        for (int j = random.between(0, 8); j > 0; --j) answer.push_back(TokenId{100 + i});
        recorder.submitted(RequestId{i}, 1, prompt, begin);
        recorder.ended(RequestId{i}, 0, answer);
        prompts.push_back(prompt);
        whole.push_back(joined(prompt, answer));
      }
      const std::vector<Json> lines = lines_of(out);
      REQUIRE(lines.size() == whole.size());
      for (std::size_t i = 0; i < lines.size(); ++i) {
        REQUIRE(meaning(lines[i]).size() == whole[i].size());
        for (std::size_t j = 0; j < i; ++j) {
          CHECK(common(meaning(lines[i]), meaning(lines[j])) == common(whole[i], whole[j]));
        }
      }
    }
  }
}

using namespace hyb::testing;

namespace {

std::string error_of(const std::string& text) {
  const TemporaryFolder folder;
  const auto path = folder.write("t.jsonl", text);
  return model_error([&] { read_trace(path); });
}

const std::string good =
    R"({"t":0.5,"session":"a","turn":0,"prompt":[[1,3],[2,4]],"output":[[3,1]]})";

std::string with(const std::string& from, const std::string& to) {
  std::string line = good;
  return line.replace(line.find(from), from.size(), to);
}

}  // namespace

TEST_SUITE("core/replay/trace") {
  TEST_CASE("every field is read; empty lines and unknown keys are no matter") {
    const TemporaryFolder folder;
    const auto path = folder.write(
        "t.jsonl", "\n" + good + "\r\n  \n" +
                       R"({"t":2,"session":7,"turn":3,"prompt":[[5,1]],"output":[],"more":[1]})");
    const auto trace = read_trace(path);
    REQUIRE(trace.size() == 2);
    CHECK(trace[0].time_s == 0.5);
    CHECK(trace[0].session == "a");
    CHECK(trace[0].prompt.size() == 2);
    CHECK(trace[0].prompt[1].id == 2);
    CHECK(trace[0].prompt[1].length == 4);
    CHECK(trace[0].output.size() == 1);
    CHECK(trace[1].session == "7");
    CHECK(trace[1].turn == 3);
    CHECK(trace[1].output.empty());
  }

  TEST_CASE("lines longer than what is read at once") {
    const TemporaryFolder folder;
    std::string text;
    for (int line = 0; line < 40; ++line) {
      std::string segments = "[1,1]";
      for (int i = 0; i < 20000; ++i) segments += ",[" + std::to_string(line * i) + ",2]";
      text += R"({"t":1,"session":"x","turn":0,"prompt":[)" + segments + R"(],"output":[]})" + "\n";
    }
    TraceReader reader(folder.write("t.jsonl", text));
    int lines = 0;
    for (ReplayRequest request; reader.next(request); ++lines) {
      CHECK(tokens_of(request.prompt) == 40001);
      CHECK(request.prompt.back().id == lines * 19999);
    }
    CHECK(lines == 40);
  }

  TEST_CASE("what breaks a rule is named with file, line and value") {
    const auto fails_with = [](const std::string& line, const std::string& rule) {
      const std::string error = error_of(good + "\n" + line + "\n");
      CAPTURE(error);
      CHECK(contains(error, "t.jsonl:2: "));
      CHECK(contains(error, rule));
    };
    fails_with("{", "t.jsonl:2");
    fails_with("[]", "JSON object");
    fails_with(with("\"t\":0.5", "\"t\":\"now\""), "t is a number");
    fails_with(with("\"t\":0.5", "\"t\":-1"), "t is a number");
    fails_with(with("\"t\":0.5", "\"t\":0.25"), "order of arrival");
    fails_with(with("\"t\":0.5,", ""), "every request has");
    fails_with(with("\"t\":0.5,", ""), "this one lacks: t");
    const std::string huge(1 << 20, 'x');
    CHECK(error_of("\"" + huge + "\"\n").size() < 1000);
    fails_with(with("\"a\"", "null"), "session is");
    fails_with(with("\"turn\":0", "\"turn\":1.5"), "turn is");
    fails_with(with("\"turn\":0", "\"turn\":-2"), "turn is");
    fails_with(with("[1,3]", "[1]"), "[segment, length]");
    fails_with(with("[1,3]", "[1,0]"), "[segment, length]");
    fails_with(with("[1,3]", "[-1,3]"), "[segment, length]");
    fails_with(with("[1,3]", "[18446744073709551615,3]"), "[segment, length]");
    fails_with(with("[1,3]", "[1,99999999999]"), "[segment, length]");
    fails_with(with("[[1,3],[2,4]]", "7"), "[segment, length]");
    fails_with(with("[[1,3],[2,4]]", "[]"), "at least one token");
    fails_with(with("[1,3]", "[1,16777216]"), "at most 16777216 tokens");
    CHECK(contains(error_of("\n\n"), "no request"));
    CHECK(contains(error_of(""), "no request"));
    CHECK(model_error([] { read_trace("/nowhere/t.jsonl"); }) != "");
  }

  TEST_CASE("equal prefixes of segments are equal prefixes of tokens, and nothing else is") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto trace = random_trace(seed, 12, 3, 9);
      for (const ReplayRequest& a : trace) {
        for (const ReplayRequest& b : trace) {
          // Unit segments: a token is a segment and an offset in it.
          const auto units = [](const ReplayRequest& request) {
            std::vector<std::pair<std::int64_t, std::int32_t>> all;
            for (const auto* part : {&request.prompt, &request.output}) {
              for (const Segment& segment : *part) {
                for (std::int32_t i = 0; i < segment.length; ++i) all.emplace_back(segment.id, i);
              }
            }
            return all;
          };
          const auto left = units(a), right = units(b);
          const RequestTokens x(a), y(b);
          REQUIRE(x.all.size() == left.size());
          const auto common = [](const auto& one, const auto& other) {
            return std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first -
                   one.begin();
          };
          CHECK(common(left, right) == common(x.all, y.all));
        }
      }
    }
  }

  TEST_CASE("a shorter segment is the first tokens of a longer one") {
    const RequestTokens shorter(request_of({{9, 5}})), longer(request_of({{9, 50}}, {{4, 2}}));
    CHECK(longer.prompt_length == 50);
    CHECK(longer.length() == 52);
    CHECK(std::equal(shorter.all.begin(), shorter.all.end(), longer.all.begin()));
    CHECK(std::all_of(longer.all.begin(), longer.all.end(),
                      [](TokenId token) { return index(token) >= 0; }));
  }
}

}  // namespace trace_test
