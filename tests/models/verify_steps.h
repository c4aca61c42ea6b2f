#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "tests/models/drafts.h"

namespace hyb::models::testing {

/// Sequences of random tokens, whose prompts have run. Each step runs some drafts of each of them
/// and keeps half of these; worlds of one model run the same steps.
class VerifySteps {
 public:
  VerifySteps(DraftWorld& world, const SamplingParams& params, std::int32_t sequences,
              unsigned seed = 1)
      : world_(world), params_(params), random_(seed) {
    for (std::int32_t i = 0; i < sequences; ++i) {
      Running& each = all_.emplace_back();
      each.memory = world.pool.start();
      REQUIRE(each.memory.has_value());
      for (std::int32_t t = 0; t < DraftWorld::length_max; ++t) each.tokens.push_back(draw());
      const std::int32_t prompt = 5 + 3 * i;
      world.run({next_of(each, prompt, 0)}, params);
      each.memory->keep(prompt);
    }
  }

  bool have_room() const {
    return std::ranges::all_of(all_, [](const Running& each) {
      return each.memory->length() + 1 + draft_ring_tokens < DraftWorld::length_max;
    });
  }

  /// One step of the first sequences, with as many drafts of each: the answers to all rows.
  std::vector<std::vector<DraftRow>> run(std::span<const std::int32_t> drafts) {
    const auto rows = world_.run(nexts_of(drafts), params_);
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      all_[i].memory->keep(1 + drafts[i] / 2, drafts[i] / 2);
    }
    return rows;
  }

  /// What the draft layer guesses, as many of each.
  std::vector<std::vector<DraftRow>> draft(std::span<const std::int32_t> drafts) {
    return world_.draft(nexts_of(drafts), params_);
  }

 private:
  struct Running {
    std::vector<TokenId> tokens;
    std::optional<Memory> memory = {};
  };

  TokenId draw() {
    return TokenId{
        static_cast<std::int32_t>(random_() % static_cast<unsigned>(world_.model.plan.vocab))};
  }

  static DraftWorld::Next next_of(Running& each, std::int32_t certain, std::int32_t drafts) {
    const std::span<const TokenId> all(each.tokens);
    const auto begin = static_cast<std::size_t>(each.memory->length());
    const auto own = all.subspan(begin, static_cast<std::size_t>(certain + drafts));
    return {.memory = &*each.memory,
            .before = all.first(begin),
            .tokens = {own.begin(), own.end()},
            .drafts = drafts};
  }

  std::vector<DraftWorld::Next> nexts_of(std::span<const std::int32_t> drafts) {
    std::vector<DraftWorld::Next> nexts;
    for (std::size_t i = 0; i < drafts.size(); ++i) nexts.push_back(next_of(all_[i], 1, drafts[i]));
    return nexts;
  }

  DraftWorld& world_;
  SamplingParams params_;
  std::mt19937 random_;
  std::vector<Running> all_;
};

}  // namespace hyb::models::testing
