#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/engine/runner.h"
#include "core/memory/link/unit_link.h"
#include "core/memory/pool/layout.h"
#include "tests/sim/random.h"

namespace hyb::sim {

/// The runner of prompts in memory of their own: a step is run at some moment between launch() and
/// the end of wait(), or fails then.
class SideRunner final : public Runner {
 public:
  /// The runner that does the steps outlives this one.
  SideRunner(Runner& runner, std::uint64_t seed) : runner_(&runner), random_(seed) {}

  Capacity capacity() const override { return runner_->capacity(); }
  bool is_async() const override { return true; }
  bool is_under_way() const { return step_ != nullptr; }
  StepResult run(const Step& step) override;
  void launch(const Step& step) override;
  bool is_done() override;
  StepResult wait() override;
  bool commit(SuperblockId superblock, bool may_create) override {
    return runner_->commit(superblock, may_create);
  }
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override {
    runner_->read(view, unit, bytes);
  }
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override {
    runner_->write(view, unit, bytes);
  }

  std::int64_t launched = 0, failed = 0;

 private:
  void do_step();

  Runner* runner_;
  Random random_;
  const Step* step_ = nullptr;  ///< null: none is under way
  bool is_run_ = false;
  StepResult result_;
  std::exception_ptr failure_;
};

/// Bugs of an engine with two sides, done by what copies between them.
enum class LinkBug {
  none,
  completed_early,  ///< the last unit is copied after the copies were done: its source may be free
  slot_early,       ///< a state that goes on is handed over before it has its bytes
  hit_as_sent,      ///< the first page counts as sent
  sides_exchanged,  ///< what is to go to one side is read there
  group_lost,       ///< pages of the first group alone are copied
};

const char* name_of(LinkBug bug);

/// Copies unit by unit, each at some moment between start() and the end of wait(), or fails then.
/// Knows what may not happen to the units meanwhile.
class SimLink final : public UnitLink {
 public:
  using Copy = std::function<void(Direction, const UnitMove&)>;
  enum class Side : std::uint8_t { prompts, answers };

  /// Between the memory of prompts and that of answers.
  SimLink(std::uint64_t seed, LinkBug bug, MemoryLayout prompts, MemoryLayout answers, Copy copy)
      : random_(seed),
        pace_(pace_of(seed)),
        bug_(bug),
        layouts_{std::move(prompts), std::move(answers)},
        copy_(std::move(copy)) {}

  std::unique_ptr<UnitCopies> start(Direction direction, std::vector<UnitMove> moves) override;
  /// Between two calls of the engine: some more of what is under way.
  void go_on();
  /// Throws the first Violation, also where the engine caught it.
  void check() const;
  /// A step of this side is about to run: it neither writes nor moves what copies under way read,
  /// does not name what they write, and takes no superblock of theirs. Throws Violation.
  void check_beside(Side side, const Step& step);

  /// Called when copies start and before each unit: true makes them fail there.
  std::function<bool()> fails = [] { return false; };

  std::int64_t started = 0, units = 0, failed = 0, dropped = 0;
  /// Steps of the side of prompts while its units were copied, and those of them in which others of
  /// its superblocks changed their owners.
  std::int64_t steps_beside = 0, changes_beside = 0;

 private:
  struct Job {
    Direction direction;
    std::vector<UnitMove> moves;
    std::size_t done = 0;
    std::exception_ptr failure{};

    bool is_done() const { return failure != nullptr || done == moves.size(); }
  };
  class Copies;

  static bool reads(Direction direction, Side side) {
    return (direction == Direction::to_answers) == (side == Side::prompts);
  }
  void check_start(Direction direction, const std::vector<UnitMove>& moves);
  void copy_one(Job& job);
  [[noreturn]] void refuse(const char* text);
  bool skips(const UnitMove& move, bool is_first) const;

  static std::int32_t pace_of(std::uint64_t seed) {
    static constexpr std::int32_t paces[] = {4, 20, 60};
    return paces[seed / 2 % std::size(paces)];
  }

  Random random_;
  std::int32_t pace_;  ///< percent of the looks at a copy that find a unit more there
  LinkBug bug_;
  std::array<MemoryLayout, 2> layouts_;  ///< by Side
  Copy copy_;
  std::vector<Job*> jobs_;
  std::vector<std::pair<Direction, UnitMove>> forgotten_;  ///< by LinkBug::completed_early
  std::exception_ptr violation_;                           ///< the first one
};

}  // namespace hyb::sim
