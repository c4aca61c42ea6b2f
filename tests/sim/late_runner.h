#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "core/engine/runner.h"
#include "tests/sim/random.h"

namespace hyb::sim {

/// Bugs of an asynchronous runner, or of an engine on it.
enum class LateBug {
  none,
  delivered_twice,   ///< the answers of a step are returned again as the next one's
  token_lost,        ///< a step that was begun early reads the tokens of the step before the last
  overtaken,         ///< the same step, since it does not wait for the one that runs
  rows_exchanged,    ///< the same, the tokens of other sequences
  runs_unasked,      ///< what is prepared is run, also when it is never begun: it writes memory
  step_lost,         ///< a step that was begun early is not run when it comes to it
  extra_token_kept,  ///< a cancelled request keeps what the running step draws: see the scenario
};

const char* name_of(LateBug bug);

/// Asynchronous steps: they are done at some moment between launch() and the end of
/// wait(), in the order of their launches, or fail then, and see what was said in launch(). What a
/// step is to see is copied, so a change before the step is done makes no difference.
class LateRunner : public Runner {
 public:
  /// The runner that does the steps outlives this one.
  LateRunner(Runner& runner, std::uint64_t seed, LateBug bug)
      : runner_(&runner), random_(seed), bug_(bug) {}

  Capacity capacity() const override { return runner_->capacity(); }
  bool is_async() const override { return true; }
  StepResult run(const Step& step) override;
  void launch(const Step& step) override;
  void prepare(const Step& next) override;
  void launch_prepared() override;
  StepResult wait() override;
  bool can_draft() const override { return runner_->can_draft(); }
  std::vector<std::vector<SampledToken>> draft(const Step& step) override;
  bool commit(SuperblockId superblock, bool may_create) override {
    return runner_->commit(superblock, may_create);
  }
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override;
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override;

  /// Throws what went wrong with a step that was not waited for.
  void check() const;

  std::int64_t prepared = 0, begun_early = 0;
  std::int64_t overlapping = 0;  ///< of those begun early, while another step was running
  std::int64_t refused = 0;      ///< steps that could not be prepared
  std::int64_t beside = 0;       ///< of those begun early, while another lane's step was running

  /// Whether another lane has a step under way.
  std::function<bool()> is_beside = [] { return false; };

  /// All that a step's views show, as it was.
  struct Kept {
    explicit Kept(const Step& from);
    void give(std::size_t row, TokenId token);

    Step step;
    std::list<std::vector<TokenId>> tokens;
    std::list<std::vector<PageTable>> tables;
    std::list<SamplingParams> params;
  };

 private:
  struct UnderWay {
    Kept step;
    bool awaits_tokens;  ///< those that the step before it draws
    bool is_done = false;
    std::exception_ptr failure{};
    StepResult result{};
  };

  void do_steps(std::size_t count);
  void do_step(UnderWay& step);
  void give_tokens(Kept& step);
  void begin(UnderWay step);

  Runner* runner_;
  Random random_;
  LateBug bug_;
  std::deque<UnderWay> under_way_;  ///< the oldest first
  std::optional<Kept> next_;
  std::exception_ptr violation_;
  StepResult drawn_, drawn_before_;  ///< of the step that was done last, and the one before
  StepResult delivered_;
  bool has_failed_ = false;  ///< the step that was done last
};

}  // namespace hyb::sim
