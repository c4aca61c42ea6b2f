#include <memory>

#include <doctest/doctest.h>

#include "tests/sim/fixture.h"
#include "tests/sim/late_runner.h"
#include "tests/sim/side_runner.h"
#include "tests/sim/toy_runner.h"

using namespace hyb;
using namespace hyb::sim;

namespace {

constexpr ViewId link_pages{0};

/// Steps of the engine until an answer of one token has ended that was requested amid a long one.
/// The runner of answers is asynchronous; prompts run beside it, in memory of their own or in its.
int steps_of_newcomer(bool has_sides, std::uint64_t seed) {
  const Capacity capacity = flat(1000, 20);
  ToyRunner runner(capacity, {}), prompts(capacity, {});
  LateRunner late(runner, seed, LateBug::none);
  SideRunner side(has_sides ? prompts : runner, seed + 1);
  SimLink link(seed + 2, LinkBug::none, capacity.memory, capacity.memory,
               [&](UnitLink::Direction direction, const UnitMove& move) {
                 const bool is_to_answers = direction == UnitLink::Direction::to_answers;
                 (is_to_answers ? runner : prompts)
                     .receive(is_to_answers ? prompts : runner, move.view, move.from, move.to);
               });
  late.is_beside = [&] { return side.is_under_way(); };
  EngineOptions options = usual;
  options.prefill_lane = &side;
  options.link = has_sides ? &link : nullptr;
  Listener sink;
  Engine engine(late, nullptr, options);
  const auto step = [&] {
    link.go_on();
    REQUIRE(engine.step());
  };
  engine.submit(request_of(prompt_of(9), 1000), sink);
  for (int i = 0; i < 40; ++i) step();
  const RequestId newcomer = engine.submit(request_of(prompt_of(0, 12, 5), 1), sink);
  int steps = 0;
  for (; sink.find(newcomer, 0) == nullptr; ++steps) step();
  return steps;
}

Step orders_alone(const Order& order) { return {.orders = {order}, .spans = {}}; }

}  // namespace

TEST_SUITE("sim/sides") {
  TEST_CASE("a step or copy that takes what copies under way name is found") {
    using Side = SimLink::Side;
    using Direction = UnitLink::Direction;
    const MemoryLayout layout = elastic(4).memory;  // 6 pages each
    SimLink link(1, LinkBug::none, layout, layout, [](Direction, const UnitMove&) {});
    const std::unique_ptr<UnitCopies> copies =
        link.start(Direction::to_answers, {{.view = link_pages, .from = 3, .to = 8}});
    const auto is_found = [&](Side side, const Order& order) {
      try {
        link.check_beside(side, orders_alone(order));
      } catch (const Violation&) {
        return true;
      }
      return false;
    };
    const UnitCopy reads_source = {.view = link_pages, .from = 3, .to = 4};
    const UnitCopy writes_source = {.view = link_pages, .from = 4, .to = 3};
    const UnitCopy reads_target = {.view = link_pages, .from = 8, .to = 9};
    const UnitCopy writes_target = {.view = link_pages, .from = 9, .to = 8};
    const auto takes = [&](std::int32_t superblock) {
      return ChangeOwner{
          .superblock = SuperblockId{superblock}, .from = link_pages, .to = layout.slot_view()};
    };
    CHECK_FALSE(is_found(Side::prompts, reads_source));
    CHECK(is_found(Side::prompts, writes_source));
    CHECK(is_found(Side::prompts, takes(0)));
    CHECK_FALSE(is_found(Side::prompts, takes(1)));
    CHECK(is_found(Side::answers, reads_target));
    CHECK(is_found(Side::answers, writes_target));
    CHECK(is_found(Side::answers, takes(1)));
    CHECK_FALSE(is_found(Side::answers, takes(0)));
    CHECK_THROWS_AS(link.check(), Violation);

    CHECK_THROWS_AS(link.start(Direction::to_answers, {{.view = link_pages, .from = 5, .to = 8}}),
                    Violation);
    CHECK_THROWS_AS(link.start(Direction::to_prompts, {{.view = link_pages, .from = 7, .to = 3}}),
                    Violation);
    CHECK_THROWS_AS(link.start(Direction::to_prompts, {{.view = link_pages, .from = 8, .to = 2}}),
                    Violation);
    CHECK_NOTHROW(link.start(Direction::to_answers, {{.view = link_pages, .from = 3, .to = 9}}));

    copies->wait();
    CHECK_FALSE(is_found(Side::prompts, writes_source));
    CHECK_FALSE(is_found(Side::answers, takes(1)));
  }

  TEST_CASE("a prompt that is requested amid a long answer runs beside it at once") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(seed);
      CHECK(steps_of_newcomer(true, seed) < 40);
      CHECK(steps_of_newcomer(false, seed) < 40);
    }
  }
}
