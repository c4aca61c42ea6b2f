#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/models/heads.h"

namespace models_draft_entries_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

/// Draft layers of models, and heads of both kinds, with slots and without.
DraftWorld world_of(const std::string& name, DType activation) {
  const bool is_head = std::filesystem::exists(heads_folder / name);
  if (is_head) return world_with_head(name, activation, kernels::best_isa(), false);
  return DraftWorld(
      [&](kernels::Queue& queue) {
        TensorFiles files(golden_folder / name);
        return load_model(queue, Config::from_folder(golden_folder / name), files,
                          {.load = {.activation = activation},
                           .page_tokens = page_tokens_default,
                           .with_drafts = true});
      },
      kernels::Device::cpu, {.threads = 2, .isa = kernels::best_isa()}, false);
}

const std::vector<std::string> names = {"qwen3_5-dense",
                                        "nemotron-moe",
                                        "nemotron-latent",
                                        "gpt-oss",
                                        "llama-3",
                                        "qwen3_5-text",
                                        "gpt-oss-dflash",
                                        "granite-odd-dflash",
                                        "qwen3_5-text-dflash"};

/// A sequence of random tokens that runs in given pieces.
class Line {
 public:
  static constexpr std::int32_t length = 100;

  Line(DraftWorld& world, unsigned seed) : world_(&world), memory_(world.pool.start()) {
    std::mt19937 random(seed);
    REQUIRE(memory_.has_value());
    for (std::int32_t i = 0; i < length; ++i) {
      tokens_.push_back(TokenId{
          static_cast<std::int32_t>(random() % static_cast<unsigned>(world.model.plan.vocab))});
    }
  }

  Memory& memory() { return *memory_; }

  /// The last `drafts` of these tokens are drafts, all of them right.
  void run(std::int32_t count, bool draft_entries, std::int32_t drafts = 0) {
    world_->draft_entries = draft_entries;
    const auto rows = world_->run({next(count, drafts)}, params_);
    rows_.insert(rows_.end(), rows[0].begin(), rows[0].end());
    memory_->keep(count, drafts);
    at_ += count;
  }

  /// The same number of tokens in pieces of several lengths, some with drafts; then none of them is
  /// in the ring alone.
  void run_in_pieces(std::int32_t count, bool draft_entries) {
    for (const std::int32_t end = at_ + count; at_ < end;) {
      const std::int32_t left = end - at_;
      if (at_ == 0) {
        run(std::min(left, 21), draft_entries);
      } else {
        run(std::min(left, at_ % 3 == 0 ? 4 : 1), draft_entries,
            at_ % 3 == 0 ? std::min(left, 4) - 1 : 0);
      }
    }
    memory_->release_ring();
  }

  std::vector<DraftRow> guesses() { return world_->draft({next(6, 5)}, params_).front(); }
  const std::vector<DraftRow>& rows() const { return rows_; }

 private:
  DraftWorld::Next next(std::int32_t count, std::int32_t drafts) {
    const auto at = tokens_.begin() + at_;
    return {.memory = &*memory_,
            .before = std::span(tokens_).first(static_cast<std::size_t>(at_)),
            .tokens = {at, at + count},
            .drafts = drafts};
  }

  DraftWorld* world_;
  std::optional<Memory> memory_;
  SamplingParams params_ = drafts_sampling();
  std::vector<TokenId> tokens_;
  std::vector<DraftRow> rows_;
  std::int32_t at_ = 0;
};

/// Leaves what sequences with entries wrote in memory that is then free.
void use_memory(DraftWorld& world) {
  std::vector<Line> lines;
  for (unsigned seed = 1; seed <= DraftWorld::sequences; ++seed) {
    lines.emplace_back(world, seed).run(90, true);
  }
}

bool is_zero(const std::vector<std::byte>& bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

TEST_SUITE("models/draft_entries") {
  TEST_CASE("guesses after tokens without entries are those of a session that had no drafts") {
    for (const std::string& name : names) {
      for (const DType activation : {DType::bf16, DType::f32}) {
        for (const std::int32_t without : {9, 16, 40}) {
          CAPTURE(name);
          CAPTURE(without);
          DraftWorld world = world_of(name, activation);
          use_memory(world);
          Line line(world, 7), restored(world, 7), plain(world, 7);
          line.run_in_pieces(without, false);
          restored.run_in_pieces(without, true);
          world.clear_draft_bytes(restored.memory());
          plain.run_in_pieces(without, true);
          CHECK(line.guesses() == restored.guesses());
          for (Line* each : {&line, &restored, &plain}) each->run_in_pieces(12, true);
          CHECK(line.guesses() == restored.guesses());
          CHECK(line.guesses() != plain.guesses());
          CHECK(line.rows() == plain.rows());
        }
      }
    }
  }

  TEST_CASE("entries before and after stay, and no other bytes differ") {
    for (const std::string& name : names) {
      CAPTURE(name);
      DraftWorld world = world_of(name, DType::bf16);
      use_memory(world);
      Line line(world, 7), plain(world, 7);
      line.run_in_pieces(2 * page_tokens_default, true);
      line.run_in_pieces(2 * page_tokens_default, false);
      line.run_in_pieces(page_tokens_default, true);
      plain.run_in_pieces(5 * page_tokens_default, true);
      CHECK(line.rows() == plain.rows());
      CHECK(world.state_of(line.memory()) == world.state_of(plain.memory()));
      bool has_drafts = false;
      for (std::size_t group = 0; group < line.memory().tables().size(); ++group) {
        const ViewId view{static_cast<std::int32_t>(group)};
        const PageTable &own = line.memory().tables()[group],
                        &other = plain.memory().tables()[group];
        for (std::size_t i = 0; i < 5; ++i) {
          if (own[i] == no_page) continue;
          const auto [answers, drafts] = world.parts_of(view, index(own[i]));
          const auto [plain_answers, plain_drafts] = world.parts_of(view, index(other[i]));
          CHECK(answers == plain_answers);
          if (i < 2) CHECK(drafts == plain_drafts);
          if (i == 2 || i == 3) CHECK(is_zero(drafts));
          has_drafts = has_drafts || !is_zero(plain_drafts);
        }
      }
      CHECK(has_drafts);
    }
  }

  TEST_CASE("a sequence that goes on from such a prefix guesses as it does") {
    for (const std::string& name : names) {
      CAPTURE(name);
      DraftWorld world = world_of(name, DType::bf16);
      use_memory(world);
      Line line(world, 7);
      line.run_in_pieces(30, false);
      line.run_in_pieces(5, true);
      const std::vector<DraftRow> guesses = line.guesses();
      const std::optional<Checkpoint> checkpoint = line.memory().checkpoint();
      REQUIRE(checkpoint.has_value());
      line.memory() = Memory();
      use_memory(world);
      line.memory() = world.pool.resume(*checkpoint).value();
      CHECK(line.guesses() == guesses);
    }
  }
}

}  // namespace models_draft_entries_test
