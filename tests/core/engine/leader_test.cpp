#include "core/engine/leader.h"

#include <doctest/doctest.h>

#include <deque>
#include <vector>

#include "core/base/common_tokens.h"
#include "tests/sim/random.h"

using namespace hyb;

namespace {

constexpr std::int32_t tokens_min = 64;

using Tokens = std::vector<TokenId>;

/// `common` equal tokens, then `own` ones that nobody else has.
Tokens tokens_of(std::int32_t common, std::int32_t own, std::int32_t who) {
  Tokens tokens(static_cast<std::size_t>(common), TokenId{1});
  tokens.insert(tokens.end(), static_cast<std::size_t>(own), TokenId{100 + who});
  return tokens;
}

/// Sequences that are as old as they were added early.
class Crowd {
 public:
  Sequence& add(const Tokens& prompt, std::int32_t has_run = 0, bool keep_snapshots = true) {
    RequestTerms& terms = terms_.emplace_back();
    terms.id = RequestId{static_cast<std::int64_t>(terms_.size())};
    terms.request.prompt = prompt;
    terms.request.keep_snapshots = keep_snapshots;
    terms.length_max = 10'000;
    terms.tokenizer = nullptr;
    Sequence& sequence = sequences_.emplace_back(terms, 0);
    sequence.start(*pool_.start());
    if (has_run > 0) {
      REQUIRE(sequence.memory().reserve(has_run));
      sequence.ran(has_run, Clock::now());
    }
    running_.push_back(&sequence);
    return sequence;
  }

  std::span<Sequence* const> all_but_last() const {
    return std::span(running_).first(running_.size() - 1);
  }
  std::span<Sequence* const> all() const { return running_; }

  /// Of the last added.
  std::optional<std::int32_t> length(std::int32_t resumable = 0) const {
    const std::optional<Leader> leader =
        leader_for(*running_.back(), resumable, tokens_min, all_but_last());
    return leader ? std::optional(leader->length) : std::nullopt;
  }

 private:
  MemoryPool pool_ = MemoryPool(flat_layout({.pages = 1000, .slots = 20, .page_tokens = 16}));
  std::deque<RequestTerms> terms_;
  std::deque<Sequence> sequences_;
  std::vector<Sequence*> running_;
};

}  // namespace

TEST_SUITE("core/engine/leader") {
  TEST_CASE("one waits for an older one with much left of the same prefix") {
    Crowd crowd;
    crowd.add(tokens_of(200, 50, 0));
    crowd.add(tokens_of(200, 50, 1));
    CHECK(crowd.length() == 200);
    CHECK(crowd.length(136) == 200);
    CHECK_FALSE(crowd.length(137));  // 63 more are not worth it
  }

  TEST_CASE("the last token is run in any case, and the leader may have no more than the prefix") {
    Crowd crowd;
    crowd.add(tokens_of(200, 0, 0));
    crowd.add(tokens_of(200, 0, 1));
    CHECK(crowd.length() == 199);
    crowd.add(tokens_of(200, 9, 2));
    CHECK(crowd.length() == 200);
    crowd.add(tokens_of(64, 0, 3));
    CHECK_FALSE(crowd.length());
    crowd.add(tokens_of(65, 0, 4));
    CHECK(crowd.length() == 64);
  }

  TEST_CASE("one that has passed the prefix, is younger or leaves no snapshots is no leader") {
    Crowd crowd;
    crowd.add(tokens_of(200, 50, 0), 200);
    crowd.add(tokens_of(200, 50, 1), 0, false);
    Sequence& third = crowd.add(tokens_of(200, 50, 2));
    CHECK_FALSE(crowd.length());
    crowd.add(tokens_of(200, 50, 3));
    CHECK_FALSE(leader_for(third, 0, tokens_min, crowd.all()));
    CHECK(crowd.length() == 200);
  }

  TEST_CASE("of several the one with the longest prefix leads") {
    Crowd crowd;
    crowd.add(tokens_of(100, 50, 0));
    crowd.add(tokens_of(300, 50, 1), 299);
    crowd.add(tokens_of(250, 50, 2), 10);
    crowd.add(tokens_of(300, 50, 3));
    const std::optional<Leader> leader =
        leader_for(*crowd.all().back(), 0, tokens_min, crowd.all_but_last());
    REQUIRE(leader);
    CHECK(leader->length == 300);
    CHECK(leader->age.request == RequestId{2});
  }

  TEST_CASE("a snapshot that is wanted anyway will do, if it is near and ahead") {
    for (const auto& [cut, expected] : {std::pair{137, 137}, {136, 200}, {200, 200}, {201, 200}}) {
      Crowd crowd;
      crowd.add(tokens_of(200, 50, 0))
          .add_cut({.length = cut, .place = SnapshotPlace::message_end});
      crowd.add(tokens_of(200, 50, 1));
      CHECK(crowd.length() == expected);
      CHECK(crowd.length(100) == 200);
    }
    Crowd crowd;
    crowd.add(tokens_of(200, 50, 0), 150).add_cut({.length = 150, .place = SnapshotPlace::branch});
    crowd.add(tokens_of(200, 50, 1));
    CHECK(crowd.length() == 200);
  }

  TEST_CASE("it is waited for as long as it runs and is not there") {
    Crowd crowd;
    Sequence& leader = crowd.add(tokens_of(200, 50, 0), 100);
    crowd.add(tokens_of(200, 50, 1));
    const std::optional<Leader> found =
        leader_for(*crowd.all().back(), 0, tokens_min, crowd.all_but_last());
    REQUIRE(found);
    CHECK(is_awaited(*found, crowd.all()));
    CHECK_FALSE(is_awaited(*found, crowd.all().subspan(1)));
    CHECK_FALSE(is_awaited(*found, {}));
    REQUIRE(leader.memory().reserve(100));
    leader.ran(100, Clock::now());
    CHECK_FALSE(is_awaited(*found, crowd.all()));
  }

  TEST_CASE("a leader is never one that could not serve, whatever the prompts") {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      CAPTURE(seed);
      sim::Random random(seed);
      Crowd crowd;
      for (int i = 0; i < 6; ++i) {
        const std::int32_t common = random.between(0, 300), own = random.between(1, 100);
        crowd.add(tokens_of(common, own, i), random.between(0, common + own - 1));
      }
      const Sequence& newcomer = *crowd.all().back();
      const std::int32_t resumable = random.between(0, newcomer.tokens() - 1);
      const std::optional<Leader> found =
          leader_for(newcomer, resumable, tokens_min, crowd.all_but_last());
      std::int32_t most = 0;
      for (const Sequence* other : crowd.all_but_last()) {
        const std::int32_t common =
            std::min(common_tokens(other->known(), newcomer.known()), newcomer.tokens() - 1);
        if (common > other->memory().length()) most = std::max(most, common);
      }
      CHECK(found.has_value() == (most >= resumable + tokens_min));
      if (found) CHECK(found->length == most);
    }
  }
}
