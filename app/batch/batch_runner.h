#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "app/batch/batch_plan.h"
#include "app/batch/input_file.h"
#include "app/batch/request_maker.h"
#include "app/batch/result_writer.h"
#include "app/openai_response.h"
#include "core/engine/engine.h"

namespace hyb::app {

struct BatchCounts {
  std::int64_t done = 0;                              ///< results written, failed ones included
  std::int64_t failed = 0;                            ///< of them
  std::int64_t tokens = 0;                            ///< generated
  std::int64_t prompt_tokens = 0, reused_tokens = 0;  ///< of the prompts that were answered
  std::int64_t packed = 0;                            ///< answers from an int8 snapshot
};

/// Answers lines, many at once: reads a line when the engine has room for it, and hands a result on
/// when it is there.
class BatchRunner {
 public:
  struct Options {
    std::int32_t sequences_max;  ///< to keep busy
    bool ordered = false;        ///< do not run far ahead of the oldest unanswered line
    std::string model;           ///< what answers say of their model
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
  void fail(std::int64_t place, const std::string& custom_id, const LineFailure& failure);
  void collect();
  void finish(const Active& active);
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
};

}  // namespace hyb::app
