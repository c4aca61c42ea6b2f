#include "app/batch/batch_runner.h"

#include <algorithm>
#include <ctime>

#include "app/batch/result_line.h"
#include "core/base/error.h"

namespace hyb::app {

/// A line that the engine works on.
struct BatchRunner::Active {
  std::int64_t place;  ///< among the lines to do
  std::string custom_id;
  AnswerKind kind;
  AnswerStart start;
  Collector collector;
  RequestId request{};
};

BatchRunner::BatchRunner(Engine& engine, const Tokenizer& tokenizer, RequestMaker& maker,
                         const InputFile& input, ResultWriter& writer, Options options)
    : engine_(engine),
      tokenizer_(tokenizer),
      maker_(maker),
      input_(input),
      writer_(writer),
      options_(std::move(options)) {}

// An error may leave requests in the engine, whose sinks are here.
BatchRunner::~BatchRunner() { cancel_all(); }

void BatchRunner::cancel_all() {
  for (const auto& active : active_) engine_.cancel(active->request);
  active_.clear();
}

BatchCounts BatchRunner::run(std::span<const PlannedLine> todo) {
  next_ = 0;
  while (!options_.is_stopped()) {
    admit(todo);
    if (active_.empty() && next_ == todo.size()) break;
    engine_.step();
    collect();
    writer_.sync_if_due();
    options_.progress(counts_);
  }
  cancel_all();
  places_ += static_cast<std::int64_t>(todo.size());
  writer_.sync();
  counts_.done = writer_.written();  // ordered results that were waiting are not done
  return counts_;
}

void BatchRunner::admit(std::span<const PlannedLine> todo) {
  constexpr std::int64_t ahead_max = 8;  // rounds of sequences: ordered results wait in memory
  while (next_ < todo.size() && !options_.is_stopped() &&
         engine_.running() + engine_.waiting() < options_.sequences_max) {
    const std::int64_t place = places_ + static_cast<std::int64_t>(next_);
    if (options_.ordered && place - writer_.written() > ahead_max * options_.sequences_max) return;
    start(place, todo[next_++]);
  }
}

void BatchRunner::start(std::int64_t place, const PlannedLine& planned) {
  const RequestLine line = input_.read(input_.lines()[planned.line]);
  if (line.failure) {
    fail(place, line.custom_id, *line.failure);
    return;
  }
  try {
    auto [request, answer_start] = maker_.make(line);
    if (planned.plan) {
      request.message_ends = planned.plan->cuts;
      request.keep_snapshots = !planned.plan->cuts.empty();
      request.needed_later = planned.plan->needed_later;
    }
    const bool is_text = line.form == RequestForm::completion;
    auto active =
        std::make_unique<Active>(Active{.place = place,
                                        .custom_id = line.custom_id,
                                        .kind = is_text ? AnswerKind::text : AnswerKind::chat,
                                        .start = std::move(answer_start),
                                        .collector = Collector(request.choices)});
    active->request = engine_.submit(std::move(request), active->collector);
    active_.push_back(std::move(active));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::model) throw;
    fail(place, line.custom_id, {.code = "invalid_request", .message = error.what()});
  }
  for (const std::string& text : maker_.take_warnings()) options_.warn(text);
}

void BatchRunner::fail(std::int64_t place, const std::string& custom_id,
                       const LineFailure& failure) {
  writer_.put(place, failed_line(custom_id, failure));
  ++counts_.done;
  ++counts_.failed;
}

void BatchRunner::collect() {
  for (auto it = active_.begin(); it != active_.end();) {
    if (!(*it)->collector.done()) {
      ++it;
      continue;
    }
    const std::unique_ptr<Active> finished = std::move(*it);
    it = active_.erase(it);
    finish(*finished);
  }
}

void BatchRunner::finish(const Active& active) {
  for (const Completion& completion : active.collector.completions()) {
    counts_.tokens += completion.usage.completion_tokens;
    if (completion.reason == FinishReason::error) {
      fail(active.place, active.custom_id,
           {.code = "generation_failed", .message = completion.error});
      return;
    }
  }
  const Usage& usage = active.collector.completions().front().usage;  // choices share the prompt
  counts_.prompt_tokens += usage.prompt_tokens;
  counts_.reused_tokens += usage.reused_tokens;
  if (usage.resumed_packed) ++counts_.packed;
  const Hash128 id = hash_of(active.custom_id);
  const char* prefix = active.kind == AnswerKind::chat ? "chatcmpl-" : "cmpl-";
  const Json body = response_json({.kind = active.kind,
                                   .id = prefix + hex(id).substr(0, 24),
                                   .model = options_.model,
                                   .created_s = std::time(nullptr),
                                   .start = active.start},
                                  active.collector.completions(), tokenizer_);
  writer_.put(active.place, answered_line(active.custom_id, body));
  ++counts_.done;
}

}  // namespace hyb::app
