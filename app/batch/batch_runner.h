#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/batch/input_file.h"
#include "app/batch/output_file.h"
#include "app/batch/request_maker.h"
#include "app/request/answer.h"
#include "app/ui/progress.h"
#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/engine/engine.h"
#include "core/memory/prefix/prompts.h"

namespace hyb::app {

/// In which order lines are run.
enum class BatchOrder : std::uint8_t {
  file,
  depth_first  ///< lines whose prompts share a prefix run together
};

/// A line and what its prompt is to leave in the cache for lines that come after it.
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

struct BatchCounts {
  std::int64_t done = 0;                              ///< results in the output, failed ones too
  std::int64_t failed = 0;                            ///< of them
  std::int64_t tokens = 0;                            ///< generated
  std::int64_t prompt_tokens = 0, reused_tokens = 0;  ///< of the prompts that were answered
  SpeculationStats speculation = {};
  std::int64_t packed = 0;         ///< answers from an int8 snapshot
  std::int64_t cut = 0;            ///< answers that ended because the context was full
  std::int64_t cut_rules = 0;      ///< answers with a rule that a limit cut: they are not whole
  std::string first_failure = {};  ///< "custom_id: why", of the first line that failed
};

/// What a progress line shows of a run that found `before` of `total` lines done. Lines that fail
/// take no time, so that its rate is that of answers.
inline ProgressCount shown_progress(const BatchCounts& counts, std::int64_t before,
                                    std::int64_t total) {
  return {.done = before + counts.done, .total = total, .before = before + counts.failed};
}

/// Answers lines, many at once: reads a line when the engine has room for it, and hands a result on
/// when it is there.
class BatchRunner {
 public:
  struct Options {
    std::int32_t sequences_max;  ///< to keep busy
    bool ordered = false;        ///< do not run far ahead of the oldest unanswered line
    ResultFormat format = ResultFormat::jsonl;  ///< text and TSV: `todo` is in the input's order
    std::string model;                          ///< what answers say of their model
    std::function<void(const BatchCounts&)> progress;   ///< after every step
    std::function<void(const std::string& text)> warn;  ///< something a person should know
    std::function<bool()> is_stopped;                   ///< looked at before every step
  };

  /// All arguments outlive this.
  BatchRunner(Engine& engine, const Tokenizer& tokenizer, RequestMaker& maker,
              const InputFile& input, ResultWriter& writer, Options options);
  ~BatchRunner();

  /// Answers these lines; may be called again with others. When stopped, what runs is cancelled and
  /// has no result. Results are on the disk when this returns. Counts are of all calls.
  BatchCounts run(std::span<const PlannedLine> todo);

 private:
  struct Active;

  void admit(std::span<const PlannedLine> todo);
  void start(std::int64_t place, const PlannedLine& planned);
  void fail(std::int64_t place, std::uint32_t line, const std::string& custom_id,
            const LineFailure& failure);
  void put(std::int64_t place, std::uint32_t line, std::string result, bool failed);
  void collect();
  void finish(const Active& active);
  void take_written();
  void cancel_all();

  Engine& engine_;
  const Tokenizer& tokenizer_;
  RequestMaker& maker_;
  const InputFile& input_;
  ResultWriter& writer_;
  Options options_;
  std::vector<std::unique_ptr<Active>> active_;
  std::size_t next_ = 0;     ///< of the lines at hand
  std::int64_t places_ = 0;  ///< lines of earlier calls
  BatchCounts counts_;
  SpeculationStats speculation_before_;
};

/// Result of one run of a job.
struct BatchReport {
  BatchCounts counts;
  std::int64_t lines = 0;   ///< of the input
  std::int64_t failed = 0;  ///< results that are errors, of all runs
  std::chrono::nanoseconds time{0};
  std::int32_t length_max = 0;  ///< tokens of the context: prompt and answer
  std::string tier_name = "disk tier";
  std::int64_t tier_damage = 0;      ///< pages and states that the tier gave back changed
  bool can_retry = true;             ///< lines that failed can be run again
  bool is_planned = false;           ///< the two below are known: lines ran depth first
  std::int64_t planned_tokens = 0;   ///< of the prompts that were planned
  std::int64_t sharable_tokens = 0;  ///< of these, what a prompt run before had too
};

/// The last line of a run that did all there was to do, with its line break: what a person must
/// know; with `details` what was reused and guessed, too.
std::string summary_text(const BatchReport& report, bool details);

/// The same for programs: `last_run` of the job file.
Json report_json(const BatchReport& report);

}  // namespace hyb::app
