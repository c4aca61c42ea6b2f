#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/models/reuse_world.h"

using namespace hyb;
using namespace hyb::models::testing;

namespace {

/// Teacher-forced: the whole answer in one span, its rows drawn again as they were drawn.
Answer scored_again(Loaded& loaded, const Request& request, std::int32_t choice,
                    const Answer& answer) {
  std::vector<TokenId> whole = request.prompt;
  whole.insert(whole.end(), answer.tokens.begin(), answer.tokens.end());
  SamplingParams params = request.sampling;
  params.seed += static_cast<std::uint64_t>(choice);
  const auto prompt = static_cast<std::int32_t>(request.prompt.size());
  Span span = {.tokens = std::span(whole).first(whole.size() - 1),
               .position = 0,
               .tables = loaded.tables,
               .read_slot = no_slot,
               .write_slot = loaded.slot,
               .samples = {}};
  for (std::size_t i = 0; i < answer.tokens.size(); ++i) {
    span.samples.push_back({.token = prompt - 1 + static_cast<std::int32_t>(i),
                            .params = &params,
                            .draw = i,
                            .history = std::span(whole).first(static_cast<std::size_t>(prompt) + i),
                            .prompt_tokens = prompt});
  }
  Answer again;
  for (const SampledToken& sampled : loaded.runner.run({.orders = {}, .spans = {span}}).sampled) {
    again.tokens.push_back(sampled.token);
    again.logprobs.push_back(std::bit_cast<std::uint32_t>(sampled.logprob));
  }
  return again;
}

void check_settings(ReuseFolder& folder) {
  const std::vector<Request> requests = folder.requests();
  const auto plain = folder.live({});
  const std::vector<Answer> expected = answers_of(*plain, requests, 1);
  REQUIRE(expected.size() == 2 * 7);
  const std::int64_t reused = plain->answers.reused;
  CHECK(reused == 2 * 2 * 59);  // further choices go on from the first one's prompt
  const std::size_t logits = folder.logits_seen();
  for (int i = 0; i < 60; ++i) {
    static const char* const memories[] = {"flat", "flip", "remap", "tiny", "small"};
    const Setting setting = {.memory = memories[i % 5],
                             .remembers = i / 5 % 2 == 1,
                             .sequences = i / 10 % 2 == 1 ? 8 : 1,
                             .chunk = std::array{64, 16, 5}[static_cast<std::size_t>(i / 20)]};
    CAPTURE(setting.memory);
    CAPTURE(setting.remembers);
    CAPTURE(setting.sequences);
    CAPTURE(setting.chunk);
    const auto life = folder.live(setting);
    CHECK(answers_of(*life, requests, setting.sequences) == expected);
    CHECK(life->witness.differences == 0);
    if (!setting.remembers || setting.is_short()) continue;
    CHECK(life->answers.reused > reused + 200);
  }
  CHECK(folder.logits_seen() == logits);  // nobody ever saw other tokens
}

}  // namespace

TEST_SUITE("models/reuse_matrix") {
  TEST_CASE("no setting of reuse, company, chunks or memory changes a bit of an answer") {
    for (const std::string& name : reuse_folders) {
      CAPTURE(name);
      ReuseFolder folder(name);
      check_settings(folder);
    }
  }

  TEST_CASE("the same with keys and values in F8_E4M3") {
    for (const std::string& name : fp8_folders) {
      CAPTURE(name);
      ReuseFolder folder(name, kernels::Device::cpu, fp8_pages);
      check_settings(folder);
    }
  }

  TEST_CASE("log-probabilities of an answer are those of scoring it again, to the bit") {
    for (const std::string& name : reuse_folders) {
      CAPTURE(name);
      ReuseFolder folder(name);
      const std::vector<Request> requests = folder.requests();
      const auto life = folder.live({.memory = "flip", .remembers = true, .sequences = 8});
      const std::vector<Answer> answers = answers_of(*life, requests, 8);
      Loaded loaded(golden_folder / name, DType::bf16, kernels::best_isa());
      std::size_t next = 0;
      for (int round = 0; round < 2; ++round) {
        for (const Request& request : requests) {
          for (std::int32_t choice = 0; choice < request.choices; ++choice) {
            const Answer& answer = answers.at(next++);
            CHECK(answer.tokens.size() == 12);
            CHECK(scored_again(loaded, request, choice, answer) == answer);
          }
        }
      }
      CHECK(next == answers.size());
    }
  }
}
