#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/batch/input_file.h"
#include "app/batch/request_maker.h"
#include "core/base/ids.h"
#include "core/memory/prompt_plan.h"

namespace hyb::app {

/// In which order lines are run.
enum class BatchOrder : std::uint8_t {
  file,
  depth_first  ///< lines whose prompts begin alike stand together
};

/// A line and what its prompt is to leave behind for lines that come after it.
struct PlannedLine {
  std::uint32_t line;                   ///< index of the input's lines
  std::optional<PromptPlan> plan = {};  ///< nothing: the lines to come are not known
};

/// The order in which prompts run and what that can save.
struct PrefixPlan {
  struct Entry {
    std::size_t prompt;  ///< index of the prompts
    PromptPlan plan;
  };
  std::vector<Entry> entries;        ///< each prompt once
  std::int64_t prompt_tokens = 0;    ///< of all prompts
  std::int64_t sharable_tokens = 0;  ///< of these, what an earlier one in this order had too: the
                                     ///< last token of a prompt is always run
};

/// Walks the radix tree of the prompts depth first.
PrefixPlan plan_prefixes(std::span<const std::vector<TokenId>> prompts);

/// Gives out the lines of a job, in file order all at once, else planned in portions of a bounded
/// number of tokens.
class BatchPlanner {
 public:
  struct Options {
    BatchOrder order = BatchOrder::depth_first;
    std::int64_t portion_tokens_max = std::int64_t{16} << 20;  ///< kept in memory to plan
    std::function<bool()> is_stopped;  ///< looked at before every line; ends the planning
    std::function<void(std::int64_t planned)> progress;  ///< after every line
  };

  /// All arguments outlive this.
  BatchPlanner(RequestMaker& maker, const InputFile& input, std::span<const std::uint32_t> todo,
               Options options);

  /// The next portion; empty: there are no more, or it was stopped.
  std::vector<PlannedLine> next();

  /// Sums over the portions so far, for a depth-first order only.
  std::int64_t prompt_tokens() const { return prompt_tokens_; }
  std::int64_t sharable_tokens() const { return sharable_tokens_; }

 private:
  std::vector<PlannedLine> all_in_order();

  RequestMaker& maker_;
  const InputFile& input_;
  std::span<const std::uint32_t> todo_;
  Options options_;
  std::size_t next_ = 0;
  std::int64_t prompt_tokens_ = 0, sharable_tokens_ = 0;
};

}  // namespace hyb::app
