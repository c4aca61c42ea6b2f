#include "core/memory/link/threaded_link.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/pool/layout.h"

namespace threaded_link_test {

using namespace hyb;

namespace {

/// Units in the machine's memory; some cannot be read.
class Units final : public UnitBytes {
 public:
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    if (unit == damaged) throw Error(ErrorKind::runtime, "a unit that is not to be read");
    std::ranges::copy(units_.at({view, unit}), bytes.begin());
  }
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    units_[{view, unit}].assign(bytes.begin(), bytes.end());
  }
  std::vector<std::byte> at(ViewId view, std::int32_t unit) {
    const std::lock_guard lock(mutex_);
    return units_[{view, unit}];
  }

  static constexpr std::int32_t damaged = 99;

 private:
  std::mutex mutex_;
  std::map<std::pair<ViewId, std::int32_t>, std::vector<std::byte>> units_;
};

const FullAttention attention;

/// Slots of 20 used bytes.
MemoryLayout padded(std::size_t padding) {
  return {.page_tokens = 4,
          .groups = {{.kind = &attention, .page_bytes = 10, .pages_per_superblock = 6}},
          .slots = {.bytes = 20 + padding, .per_superblock = 2, .padding_bytes = padding},
          .packed = {},
          .superblock_bytes = 80,
          .superblocks = 4,
          .fixed_superblocks = {}};
}

std::vector<std::byte> filled(std::size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

struct Sides {
  Units prompts, answers;
  ThreadedLink link{{.bytes = &prompts, .layout = padded(0)},
                    {.bytes = &answers, .layout = padded(12)}};
};

constexpr ViewId pages{0}, slots{1};

}  // namespace

TEST_SUITE("core/memory/link") {
  TEST_CASE("units arrive on the other side, whatever padding they have there") {
    Sides sides;
    sides.prompts.write(pages, 3, filled(10, 7));
    sides.prompts.write(slots, 1, filled(20, 8));
    const auto copies = sides.link.start(
        UnitLink::Direction::to_answers,
        {{.view = pages, .from = 3, .to = 5}, {.view = slots, .from = 1, .to = 0}});
    copies->wait();
    CHECK(copies->is_done());
    CHECK(sides.answers.at(pages, 5) == filled(10, 7));
    const std::vector<std::byte> state = sides.answers.at(slots, 0);
    CHECK(state.size() == 32);
    CHECK(std::equal(state.begin(), state.begin() + 20, filled(20, 8).begin()));

    const auto back =
        sides.link.start(UnitLink::Direction::to_prompts, {{.view = slots, .from = 0, .to = 2}});
    back->wait();
    CHECK(sides.prompts.at(slots, 2) == filled(20, 8));
  }

  TEST_CASE("what a copy fails with is thrown by its wait, each time, and others go on") {
    Sides sides;
    sides.prompts.write(pages, 1, filled(10, 1));
    const auto failing = sides.link.start(UnitLink::Direction::to_answers,
                                          {{.view = pages, .from = Units::damaged, .to = 0}});
    const auto other =
        sides.link.start(UnitLink::Direction::to_answers, {{.view = pages, .from = 1, .to = 1}});
    CHECK_THROWS_AS(failing->wait(), Error);
    CHECK_THROWS_AS(failing->wait(), Error);
    CHECK(failing->is_done());
    other->wait();
    CHECK(sides.answers.at(pages, 1) == filled(10, 1));
  }

  TEST_CASE("copies that are not wanted any more have ended when they are gone") {
    Sides sides;
    for (std::int32_t unit = 0; unit < 6; ++unit) sides.prompts.write(pages, unit, filled(10, 5));
    for (int i = 0; i < 200; ++i) {
      const std::int32_t unit = i % 6;
      auto dropped = sides.link.start(UnitLink::Direction::to_answers,
                                      {{.view = pages, .from = unit, .to = unit}});
      dropped.reset();
      sides.answers.write(pages, unit, filled(10, 9));
      CHECK(sides.answers.at(pages, unit) == filled(10, 9));
    }
  }
}

}  // namespace threaded_link_test
