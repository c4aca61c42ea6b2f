#include "app/batch/batch_runner.h"

#include <algorithm>
#include <ctime>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

using Lengths = std::vector<std::int32_t>;

/// Returns what each prompt has in common with the one before it in `order`.
Lengths common_with_last(std::span<const std::vector<TokenId>> prompts,
                         std::span<const std::size_t> order) {
  Lengths common(order.size(), 0);
  for (std::size_t i = 1; i < order.size(); ++i) {
    common[i] = common_prefix(prompts[order[i - 1]], prompts[order[i]]);
  }
  return common;
}

}  // namespace

PrefixPlan plan_prefixes(std::span<const std::vector<TokenId>> prompts) {
  std::vector<std::size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return prompts[a] < prompts[b]; });
  const Lengths common = common_with_last(prompts, order);
  Lengths lengths;
  for (const std::size_t prompt : order) {
    lengths.push_back(static_cast<std::int32_t>(prompts[prompt].size()));
  }
  std::vector<PromptPlan> plans = plan_depth_first(lengths, common);
  PrefixPlan plan;
  for (std::size_t i = 0; i < order.size(); ++i) {
    plan.prompt_tokens += lengths[i];
    plan.sharable_tokens += std::max(std::min(common[i], lengths[i] - 1), 0);
    plan.entries.push_back({.prompt = order[i], .plan = std::move(plans[i])});
  }
  return plan;
}

BatchPlanner::BatchPlanner(RequestMaker& maker, const InputFile& input,
                           std::span<const std::uint32_t> todo, Options options)
    : maker_(maker), input_(input), todo_(todo), options_(std::move(options)) {}

std::vector<PlannedLine> BatchPlanner::all_in_order() {
  std::vector<PlannedLine> lines;
  for (; next_ < todo_.size(); ++next_) lines.push_back({.line = todo_[next_]});
  return lines;
}

std::vector<PlannedLine> BatchPlanner::next() {
  if (options_.order == BatchOrder::file) return all_in_order();
  std::vector<PlannedLine> lines;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::uint32_t> planned;
  std::int64_t tokens = 0;
  while (next_ < todo_.size() && tokens < options_.portion_tokens_max) {
    if (options_.is_stopped()) return {};
    const std::uint32_t index = todo_[next_++];
    const RequestLine line = input_.read(input_.lines()[index]);
    try {
      if (line.failure) throw Error(ErrorKind::usage, line.failure->message);
      prompts.push_back(maker_.make(line).request.prompt);
      planned.push_back(index);
      tokens += static_cast<std::int64_t>(prompts.back().size());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::model) throw;
      lines.push_back({.line = index});  // fails again when its turn comes, and is reported then
    }
    options_.progress(static_cast<std::int64_t>(next_));
  }
  PrefixPlan plan = plan_prefixes(prompts);
  prompt_tokens_ += plan.prompt_tokens;
  sharable_tokens_ += plan.sharable_tokens;
  for (PrefixPlan::Entry& entry : plan.entries) {
    lines.push_back({.line = planned[entry.prompt], .plan = std::move(entry.plan)});
  }
  return lines;
}

/// A line that the engine works on.
struct BatchRunner::Active {
  std::int64_t place;  ///< among the lines to do
  std::uint32_t line;  ///< index of the input's lines
  std::string custom_id;
  AnswerKind kind;
  AnswerStart start;
  Collector collector;
  std::int32_t max_tokens;  ///< of each answer; -1: what the context has room for
  bool has_rule;
  RequestId request{};
};

BatchRunner::BatchRunner(Engine& engine, const Tokenizer& tokenizer, RequestMaker& maker,
                         const InputFile& input, ResultWriter& writer, Options options)
    : engine_(engine),
      tokenizer_(tokenizer),
      maker_(maker),
      input_(input),
      writer_(writer),
      options_(std::move(options)),
      speculation_before_(engine.usage().speculation) {}

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
    writer_.poll();
    take_written();
    options_.progress(counts_);
  }
  cancel_all();
  places_ += static_cast<std::int64_t>(todo.size());
  writer_.finish();
  take_written();
  counts_.speculation = engine_.usage().speculation - speculation_before_;
  return counts_;
}

/// Results that wait for their turn are not done.
void BatchRunner::take_written() {
  counts_.done = writer_.written();
  counts_.failed = writer_.failed();
}

void BatchRunner::admit(std::span<const PlannedLine> todo) {
  constexpr std::int64_t ahead_max = 8;  // rounds of sequences: ordered results wait in memory
  while (next_ < todo.size() && !options_.is_stopped() &&
         engine_.running() + engine_.waiting() < options_.sequences_max) {
    const std::int64_t place = places_ + static_cast<std::int64_t>(next_);
    if (options_.ordered && place - writer_.turns() > ahead_max * options_.sequences_max) return;
    start(place, todo[next_++]);
  }
}

namespace {

/// A line of text or TSV has no room for more.
void check_is_plain(const Request& request) {
  const char* const field = request.choices > 1              ? "n"
                            : request.sampling.logprobs >= 0 ? "logprobs"
                                                             : nullptr;
  if (field == nullptr) return;
  throw Error(ErrorKind::usage,
              fmt::format("{}: needs --output-format jsonl; others have one answer a line", field));
}

}  // namespace

void BatchRunner::start(std::int64_t place, const PlannedLine& planned) {
  const RequestLine line = input_.read(input_.lines()[planned.line]);
  if (line.failure) {
    fail(place, planned.line, line.custom_id, *line.failure);
    return;
  }
  try {
    auto [request, answer_start] = maker_.make(line);
    if (options_.format != ResultFormat::jsonl) check_is_plain(request);
    if (planned.plan) {
      request.message_ends = planned.plan->cuts;
      request.keep_snapshots = !planned.plan->cuts.empty();
      request.needed_later = planned.plan->needed_later;
    }
    const bool is_text = line.form == RequestForm::completion;
    auto active =
        std::make_unique<Active>(Active{.place = place,
                                        .line = planned.line,
                                        .custom_id = line.custom_id,
                                        .kind = is_text ? AnswerKind::text : AnswerKind::chat,
                                        .start = std::move(answer_start),
                                        .collector = Collector(request.choices),
                                        .max_tokens = request.max_tokens,
                                        .has_rule = request.rule.get() != nullptr});
    active->request = engine_.submit(std::move(request), active->collector);
    active_.push_back(std::move(active));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::model) throw;
    fail(place, planned.line, line.custom_id,
         {.fault = LineFault::request, .message = error.what()});
  }
  for (const std::string& text : maker_.take_warnings()) options_.warn(text);
}

void BatchRunner::fail(std::int64_t place, std::uint32_t line, const std::string& custom_id,
                       const LineFailure& failure) {
  if (counts_.first_failure.empty()) {
    counts_.first_failure = fmt::format("{}: {}", custom_id, failure.message);
  }
  put(place, line, failed_line(custom_id, failure, options_.format), true);
}

/// Writes the result together with what lies between this line of the input and the next request,
/// so that one write leaves the output where a rerun continues.
void BatchRunner::put(std::int64_t place, std::uint32_t line, std::string result, bool failed) {
  const std::span<const InputLine> lines = input_.lines();
  const std::int64_t next =
      line + 1 < lines.size() ? std::int64_t{lines[line + 1].number} : input_.line_count() + 1;
  result += lines_between(input_, options_.format, lines[line].number, next);
  writer_.put(place, std::move(result), failed);
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

namespace {

/// True if an answer ended because the context was full.
bool is_cut(const Completion& completion, std::int32_t max_tokens) {
  return completion.reason == FinishReason::length &&
         (max_tokens < 0 || completion.usage.completion_tokens < max_tokens);
}

}  // namespace

void BatchRunner::finish(const Active& active) {
  for (const Completion& completion : active.collector.completions()) {
    counts_.tokens += completion.usage.completion_tokens;
    if (completion.reason == FinishReason::error) {
      fail(active.place, active.line, active.custom_id,
           {.fault = LineFault::generation, .message = completion.error});
      return;
    }
  }
  for (const Completion& completion : active.collector.completions()) {
    if (is_cut(completion, active.max_tokens)) ++counts_.cut;
    if (active.has_rule && completion.reason == FinishReason::length) ++counts_.cut_rules;
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
  put(active.place, active.line, answered_line(active.custom_id, body, options_.format), false);
}

namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

double per_second(std::int64_t count, std::chrono::nanoseconds time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

}  // namespace

namespace {

/// Reports the tokens that were reused and guessed.
std::string work_text(const BatchReport& report) {
  const BatchCounts& counts = report.counts;
  std::string text =
      fmt::format("; reused {:.1f} % of {} prompt tokens",
                  100 * share(counts.reused_tokens, counts.prompt_tokens), counts.prompt_tokens);
  if (report.is_planned) {
    text += fmt::format(", {:.1f} % are there to be reused",
                        100 * share(report.sharable_tokens, report.planned_tokens));
  }
  if (counts.speculation.verify_steps > 0) text += "; " + drafts_text(counts.speculation);
  return text;
}

}  // namespace

std::string summary_text(const BatchReport& report, bool details) {
  const BatchCounts& counts = report.counts;
  std::string text = fmt::format("{}, {} answered now in {}, {:.1f} tokens/s, {} failed",
                                 counted(report.lines, "line"), counts.done - counts.failed,
                                 duration_text(report.time), per_second(counts.tokens, report.time),
                                 report.failed);
  if (report.failed > 0) {
    if (!counts.first_failure.empty()) text += fmt::format(" (first {})", counts.first_failure);
    if (report.can_retry) text += "; --retry-failed runs these lines again";
  }
  if (details && counts.prompt_tokens > 0) text += work_text(report);
  if (counts.packed > 0) {
    text += fmt::format("; {} from int8 snapshots", counted(counts.packed, "answer"));
  }
  if (counts.cut > 0) {
    text += fmt::format("; {} ended at the {} of the context (max_tokens or -n ends them before)",
                        counted(counts.cut, "answer"), counted(report.length_max, "token"));
  }
  if (counts.cut_rules > 0) {
    text += fmt::format("; {} with a schema or grammar cut by a limit, so not whole",
                        counted(counts.cut_rules, "answer"));
  }
  if (report.tier_damage > 0) {
    text += fmt::format("; the {} gave back {} damaged: not used, computed again", report.tier_name,
                        counted(report.tier_damage, "piece"));
  }
  return text + "\n";
}

Json report_json(const BatchReport& report) {
  const BatchCounts& counts = report.counts;
  const DraftCounts drafts = counts.speculation.total();
  Json json = {{"answered", counts.done - counts.failed},
               {"failed", counts.failed},
               {"seconds", std::chrono::duration<double>(report.time).count()},
               {"completion_tokens", counts.tokens},
               {"prompt_tokens", counts.prompt_tokens},
               {"reused_tokens", counts.reused_tokens},
               {"accepted_drafts", drafts.accepted},
               {"rejected_drafts", drafts.rejected},
               {"acceptance_length", drafts.steps > 0 ? Json(drafts.acceptance_length()) : Json()},
               {"acceptance_by_position", counts.speculation.accepted_shares()},
               {"drafting_seconds", counts.speculation.drafting_seconds},
               {"from_int8_snapshots", counts.packed},
               {"ended_by_context", counts.cut},
               {"rules_cut_by_limit", counts.cut_rules},
               {report.tier_name == "host tier" ? "damaged_in_host_tier" : "damaged_in_disk_tier",
                report.tier_damage}};
  if (report.is_planned) {
    json["planned_tokens"] = report.planned_tokens;
    json["sharable_tokens"] = report.sharable_tokens;
  }
  return json;
}

}  // namespace hyb::app
