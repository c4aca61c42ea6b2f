#include "core/engine/trace_recorder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "core/base/json.h"
#include "tests/sim/random.h"

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
    recorder.ended(RequestId{5}, 0, tokens_of({9}));  // nobody knows it
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
        // Tokens that no prompt begins to repeat by chance.
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
