#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "tests/models/drafts.h"
#include "tests/models/golden.h"

namespace hyb::models::testing {

/// What the float64 reference says of drafts (scripts/reference/drafts.py, reference/eagle3.py).
struct GoldenDrafts {
  explicit GoldenDrafts(const std::filesystem::path& folder)
      : json(parse_json(read_whole_file(folder / "golden_drafts.json", 1 << 20), "drafts")),
        tensors(folder / "golden_drafts.safetensors") {
    tensors.map();
    const TensorView view = tensors.view("logits").value();
    logits.resize(view.bytes.size() / sizeof(float));
    std::memcpy(logits.data(), view.bytes.data(), view.bytes.size());
  }

  /// Log-probability of the likeliest token of a row.
  double best(std::size_t row, std::size_t vocab) const {
    const auto of = std::span(logits).subspan(row * vocab, vocab);
    const double most = *std::ranges::max_element(of);
    double sum = 0;
    for (const float logit : of) sum += std::exp(logit - most);
    return -std::log(sum);
  }

  Json json;
  SafetensorsFile tensors;
  std::vector<float> logits;
};

/// Checks that a world drafts the tokens of the golden drafts in a folder, after prompts of all
/// their lengths: in one piece, and for every other length in two with a checkpoint between, from
/// which the sequence goes on. Returns how far the log-probabilities are off at most.
inline double largest_difference(DraftWorld& world, const Golden& golden,
                                 const std::filesystem::path& drafts_folder) {
  const GoldenDrafts expected(drafts_folder);
  const std::vector<TokenId>& prompt = golden.prompts[golden.json["main_prompt"]];
  const auto vocab = static_cast<std::size_t>(world.model.plan.vocab);
  SamplingParams greedy;
  greedy.logprobs = 0;
  std::size_t row = 0;
  double worst = 0;
  for (std::size_t i = 0; i < expected.json["lengths"].size(); ++i) {
    const auto known = expected.json["lengths"][i].get<std::size_t>();
    CAPTURE(known);
    const std::span<const TokenId> before = std::span(prompt).first(known - 1);
    std::optional<Memory> memory = world.pool.start();
    std::size_t ran = 0;
    const auto run = [&](std::size_t until) {
      const auto piece = before.subspan(ran, until - ran);
      world.run({{.memory = &*memory,
                  .before = before.first(ran),
                  .tokens = {piece.begin(), piece.end()}}},
                greedy);
      memory->keep(static_cast<std::int32_t>(piece.size()));
      ran = until;
    };
    if (i % 2 == 1 && before.size() > 2) {
      run(before.size() - 2);
      const std::optional<Checkpoint> prefix = memory->checkpoint();
      REQUIRE(prefix.has_value());
      memory = world.pool.resume(*prefix);
      REQUIRE(memory.has_value());
    }
    run(before.size());
    const std::vector<TokenId> drafts = Golden::ids(expected.json["drafts"][i]);
    std::vector<TokenId> next = {prompt[known - 1]};
    next.insert(next.end(), drafts.begin(), drafts.end());
    const auto found = world.draft({{.memory = &*memory,
                                     .before = before,
                                     .tokens = next,
                                     .drafts = static_cast<std::int32_t>(drafts.size())}},
                                   greedy)[0];
    REQUIRE(found.size() == drafts.size());
    for (std::size_t step = 0; step < drafts.size(); ++step, ++row) {
      CHECK(found[step].token == drafts[step]);
      worst = std::max(worst, std::fabs(found[step].logprob - expected.best(row, vocab)));
    }
  }
  return worst;
}

}  // namespace hyb::models::testing
