#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

/// The tables of a call.
struct ChainedSpans {
  std::vector<std::int32_t> begins, read, write;

  std::int32_t spans() const { return static_cast<std::int32_t>(read.size()); }
  std::int32_t slots() const { return *std::max_element(write.begin(), write.end()) + 1; }

  /// Calls body(begins, read slot, write slot, first token) for every span by itself, in order.
  template <typename Body>
  void each(Body&& body) const {
    for (std::size_t r = 0; r < read.size(); ++r) {
      body(Table{0, begins[r + 1] - begins[r]}, Table{read[r]}, Table{write[r]}, begins[r]);
    }
  }

  /// Only its chain, as one span.
  ChainedSpans joined() const {
    return {{0, begins[begins.size() - 2] - begins[1]}, {read[1]}, {write[write.size() - 2]}};
  }
};

/// A sequence of `tokens` as a chain cut at `cuts`, from zeros or a slot, which may be that of its
/// first span, too; between two spans of other sequences.
inline ChainedSpans chained(const std::vector<std::int32_t>& cuts, bool from_zeros, bool in_place) {
  ChainedSpans all = {{0, 3}, {0}, {0}};
  std::int32_t from = from_zeros ? -1 : 1;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const std::int32_t to = i == 0 && in_place ? 1 : static_cast<std::int32_t>(i) + 3;
    all.begins.push_back(3 + cuts[i + 1]);
    all.read.push_back(from);
    all.write.push_back(to);
    from = to;
  }
  all.begins.push_back(all.begins.back() + 4);
  all.read.push_back(2);
  all.write.push_back(2);
  return all;
}
inline ChainedSpans random_chain(std::int32_t tokens, std::mt19937& engine) {
  const std::vector<std::int32_t> cuts = random_cuts(tokens, engine);
  const bool from_zeros = engine() % 3 == 0;
  return chained(cuts, from_zeros, engine() % 2 == 0);
}

/// The law of chains on every route of the CPU, with tensors made by make(slots): a chain's one
/// call leaves the y and the slots of a call for each of its spans, and its y and last slot are
/// those of one span. run(tensors, queue, begins, read, write, first) makes a call,
/// state_of(tensors) is what has the slots.
template <typename Make, typename Run, typename StateOf>
void check_chain(const ChainedSpans& spans, int threads, Make&& make, Run&& run,
                 StateOf&& state_of) {
  for (const Isa isa : available_isas()) {
    CAPTURE(name_of(isa));
    Queue queue = test_queue(isa, threads), one = test_queue(isa, 1);
    auto chain = make(), apart = make(), joined = make();
    run(chain, queue, Table(spans.begins), Table(spans.read), Table(spans.write), 0);
    spans.each([&](const Table& begins, const Table& read, const Table& write, std::int32_t first) {
      run(apart, one, begins, read, write, first);
    });
    CHECK(chain.y.everything() == apart.y.everything());
    CHECK(state_of(chain).everything() == state_of(apart).everything());
    const ChainedSpans whole = spans.joined();
    run(joined, one, Table(whole.begins), Table(whole.read), Table(whole.write), spans.begins[1]);
    const std::int64_t width = chain.y.view().dim(1);
    const std::int64_t slot = state_of(chain).size() / state_of(chain).view().dim(0);
    for (std::int64_t i = spans.begins[1] * width; i < (spans.begins.end()[-2]) * width; ++i) {
      REQUIRE(chain.y.get(i) == joined.y.get(i));
    }
    for (std::int64_t i = whole.write[0] * slot; i < (whole.write[0] + 1) * slot; ++i) {
      REQUIRE(state_of(chain).get(i) == state_of(joined).get(i));
    }
  }
}

/// Spans of which two leave no state, a chain's last one and one that is in no chain; and the same
/// with slots for these.
struct DiscardedSpans {
  static constexpr std::int64_t slots = 8, kept_slots = 6;
  ChainedSpans discarded, kept;
};

inline DiscardedSpans random_discarded(std::mt19937& engine) {
  const auto count = [&](unsigned most) { return static_cast<std::int32_t>(1 + engine() % most); };
  DiscardedSpans spans;
  ChainedSpans& kept = spans.kept;
  kept = {{0}, {0, 1, 3, 2, 4, 5}, {0, 3, 6, 2, 7, 5}};
  for (const std::int32_t tokens : {3, count(8), count(7), 20, count(16), 1}) {
    kept.begins.push_back(kept.begins.back() + tokens);
  }
  spans.discarded = kept;
  spans.discarded.write[2] = spans.discarded.write[4] = -1;
  return spans;
}

/// The law of spans that leave no state: all answers and all other slots are as if they did. The
/// arguments are those of check_chain.
template <typename Make, typename Run, typename StateOf>
void check_discarded(const DiscardedSpans& spans, int threads, Make&& make, Run&& run,
                     StateOf&& state_of) {
  for (const Isa isa : available_isas()) {
    CAPTURE(name_of(isa));
    Queue queue = test_queue(isa, threads), one = test_queue(isa, 1);
    auto discarded = make(), kept = make(), untouched = make();
    const auto call = [&](auto& tensors, Queue& on, const ChainedSpans& tables) {
      run(tensors, on, Table(tables.begins), Table(tables.read), Table(tables.write), 0);
    };
    call(discarded, queue, spans.discarded);
    call(kept, one, spans.kept);
    CHECK(discarded.y.everything() == kept.y.everything());
    CHECK(state_of(discarded).guards_intact());
    const std::int64_t slot = state_of(kept).size() / DiscardedSpans::slots;
    for (std::int64_t i = 0; i < DiscardedSpans::slots * slot; ++i) {
      const auto& expected = i < DiscardedSpans::kept_slots * slot ? kept : untouched;
      REQUIRE(state_of(discarded).get(i) == state_of(expected).get(i));
    }
  }
}

}  // namespace hyb::kernels::testing
