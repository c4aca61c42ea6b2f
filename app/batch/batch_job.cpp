#include "app/batch/batch_job.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/batch/batch_runner.h"
#include "app/batch/input_file.h"
#include "app/batch/output_file.h"
#include "app/batch/request_maker.h"
#include "app/digest.h"
#include "app/model_outline.h"
#include "app/session.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "app/version.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

std::string difference(const std::string& name, const Json& was, const Json& is) {
  if (!was.is_object() || !is.is_object()) {
    return was == is ? "" : fmt::format("{} is {}, was {}", name, to_text(is), to_text(was));
  }
  const auto member = [](const Json& object, const std::string& key) {
    const auto found = object.find(key);
    return found == object.end() ? Json() : *found;
  };
  const auto inside = [&](const std::string& key) {
    if (key == "name" || key == "hyb" || key == "last_run") return std::string();
    return difference(name.empty() ? key : name + "." + key, member(was, key), member(is, key));
  };
  for (const auto& [key, value] : is.items()) {
    if (std::string found = inside(key); !found.empty()) return found;
  }
  for (const auto& [key, value] : was.items()) {
    if (std::string found = inside(key); !found.empty()) return found;
  }
  return {};
}

}  // namespace

std::filesystem::path JobFile::beside(const std::filesystem::path& output) {
  std::filesystem::path path = output;
  path += ".job";
  return path;
}

std::optional<Json> JobFile::read(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  Json job = parse_json(read_whole_file(path, std::size_t{1} << 20), path.string());
  if (!job.is_object()) throw Error(ErrorKind::model, path.string() + ": is no job file");
  return job;
}

void JobFile::write(const std::filesystem::path& path, const Json& job) {
  write_atomically(path, job.dump(2) + "\n", FileAccess::umask);
}

std::string job_difference(const Json& was, const Json& is) { return difference("", was, is); }

namespace {

bool is_plain(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+";
  return !word.empty() && word.find_first_not_of(plain) == std::string::npos;
}

std::string quoted(const std::string& word) {
  if (is_plain(word)) return word;
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      text += "'\\''";
    } else {
      text += letter;
    }
  }
  return text + "'";
}

}  // namespace

std::string shell_line(std::span<const std::string> words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    line += quoted(word);
  }
  return line;
}

std::string resume_command() {
  std::vector<std::string> words;
  std::ifstream arguments("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(arguments, word, '\0');) {
    if (word != "--force" && word != "--retry-failed") words.push_back(word);
  }
  return words.empty() ? "the same command" : shell_line(words);
}

namespace {

/// What a session of this model would take on.
RequestLimits limits_of(const BatchOptions& options, const ModelSource& source,
                        const Tokenizer& tokenizer) {
  const ModelOutline outline = outline_of(source, options.model);
  const MemoryPlan memory =
      plan_memory(outline.plan, outline.geometry, budget_of(options.model), options.model.context,
                  make_queue(options.model).threads(), {.sequences_max = options.parallel});
  return {.vocab = std::min(tokenizer.size(), outline.plan.vocab),
          .length_max = memory.length_max,
          .has_text = true};
}

ModelSource model_source_of(const BatchOptions& options) {
  return ModelSource::find(options.model.model, read_environment(), options.model.chat_template);
}

std::optional<LineFailure> failure_of(const RequestLine& line, RequestMaker& maker) {
  if (line.failure) return line.failure;
  try {
    maker.make(line);
    return std::nullopt;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::model) throw;
    return LineFailure{.code = "invalid_request", .message = error.what()};
  }
}

}  // namespace

int validate_batch(const BatchOptions& options) {
  const StopAtOnce nothing_to_lose;
  const InputFile input = scanned_input(options);
  const ModelSource source = model_source_of(options);
  check_texts(options, input, source);
  const ModelTexts texts = read_texts(source);
  const Tokenizer& tokenizer = need_tokenizer(texts, source);
  RequestMaker maker(tokenizer, texts.chat_template ? &*texts.chat_template : nullptr,
                     terms_of(options, request_of(options.generation, texts),
                              limits_of(options, source, tokenizer)));
  std::int64_t failed = 0;
  for (const InputLine& place : input.lines()) {
    const RequestLine line = input.read(place);
    const auto failure = failure_of(line, maker);
    for (const std::string& text : maker.take_warnings()) log::warning(text);
    if (!failure) continue;
    ++failed;
    if (!write_stdout(failed_line(line.custom_id, *failure))) return failed_lines_exit;
  }
  write_stderr(fmt::format("{} lines, {} would fail\n", input.lines().size(), failed));
  return failed > 0 ? failed_lines_exit : 0;
}

namespace {

Json settings_of(const BatchOptions& options) {
  const GenerationOptions& asked = options.generation;
  const auto value = [](const auto& field) { return field ? Json(*field) : Json(); };
  return {{"max_tokens", value(asked.max_tokens)},
          {"temperature", value(asked.temperature)},
          {"top_p", value(asked.top_p)},
          {"top_k", value(asked.top_k)},
          {"min_p", value(asked.min_p)},
          {"repetition_penalty", value(asked.repetition_penalty)},
          {"frequency_penalty", value(asked.frequency_penalty)},
          {"presence_penalty", value(asked.presence_penalty)},
          {"seed", value(asked.seed)},
          {"logit_bias", asked.logit_bias},
          {"stop", asked.stop},
          {"ignore_eos", asked.ignore_eos},
          {"system", options.system},
          {"raw", options.raw},
          {"truncate", static_cast<int>(options.truncate)},
          {"strict", options.strict},
          {"dtype", options.model.dtype},
          {"kv_dtype", options.model.kv_dtype},
          {"state_dtype", options.model.state_dtype},
          {"device", name_of(device_of(options.model.device))},
          {"context", options.model.context},
          {"random_weights", value(options.model.random_weights)}};
}

Json job_of(const BatchOptions& options, const InputFile& input, const ModelSource& source) {
  const Hash128 model = model_identity(source, !options.model.random_weights);
  const char* format = input.format() == LineFormat::jsonl ? "jsonl" : "text";
  Json settings = settings_of(options);
  // Named only where it changes answers: jobs begun before the option existed can be resumed.
  if (options.model.reuse.snapshots != "exact") {
    settings["snapshots"] = options.model.reuse.snapshots;
  }
  if (options.think) settings["think"] = *options.think;
  if (options.model.batch_invariant) settings["batch_invariant"] = true;
  if (options.model.quantize != "none") settings["quantize"] = options.model.quantize;
  return {{"hyb", version_text()},
          {"input", {{"name", input.name()}, {"format", format}, {"xxh3", hex(input.hash())}}},
          {"model", {{"name", source.name()}, {"xxh3", hex(model)}}},
          {"settings", std::move(settings)}};
}

void refuse_same_file(const InputFile& input, const std::filesystem::path& path) {
  struct stat in {
  }, out{};
  if (::stat(path.c_str(), &out) != 0 || ::fstat(input.file().descriptor(), &in) != 0) return;
  if (in.st_dev != out.st_dev || in.st_ino != out.st_ino) return;
  throw Error(ErrorKind::usage,
              fmt::format("{}: is the input; results need a file of their own", path.string()));
}

/// Whether the results so far are of this very job.
void check_job(const std::filesystem::path& path, const OutputFile& output, const Json& job,
               bool force) {
  if (output.is_empty() || force) return;
  const auto was = JobFile::read(path);
  if (!was) {
    throw Error(ErrorKind::usage,
                fmt::format("{} holds something and {} is missing: choose another output, or go on "
                            "with --force",
                            output.path().string(), path.string()));
  }
  const std::string difference = job_difference(*was, job);
  if (difference.empty()) return;
  throw Error(ErrorKind::usage,
              fmt::format("{} belongs to another job: {}; choose another output, or go on with "
                          "--force",
                          output.path().string(), difference));
}

/// What a rerun finds.
struct Progress {
  std::vector<std::uint32_t> todo;  ///< indices of lines
  std::int64_t failed = 0;          ///< lines done before whose result is an error
};

Progress progress_of(const InputFile& input, std::vector<ResultMark> marks) {
  std::sort(marks.begin(), marks.end(),
            [](const ResultMark& a, const ResultMark& b) { return a.id < b.id; });
  Progress progress;
  std::size_t known = 0;
  for (std::size_t i = 0; i < input.lines().size(); ++i) {
    const Hash128& id = input.lines()[i].id;
    const auto mark = std::lower_bound(
        marks.begin(), marks.end(), id,
        [](const ResultMark& candidate, const Hash128& wanted) { return candidate.id < wanted; });
    if (mark == marks.end() || mark->id != id) {
      progress.todo.push_back(static_cast<std::uint32_t>(i));
      continue;
    }
    ++known;
    progress.failed += mark->failed ? 1 : 0;
  }
  if (known < marks.size()) {
    log::warning(
        fmt::format("{} results in the output are of no line of the input", marks.size() - known));
  }
  return progress;
}

/// Runs what is left. The job is safe whatever happens here: the hint says how to go on.
BatchReport answer(const BatchOptions& options, const InputFile& input, OutputFile& output,
                   const std::vector<std::uint32_t>& todo) {
  const Environment environment = read_environment();
  Session session = [&] {
    const StopAtOnce nothing_to_lose;
    check_tiers(options.tiers);
    return Session::open(options.model, {.sequences_max = options.parallel}, environment);
  }();
  add_tiers(session.engine(), options.tiers, environment);
  const Tokenizer& tokenizer = session.need_tokenizer();
  RequestMaker maker(tokenizer, session.chat_template(),
                     terms_of(options, session.request(options.generation),
                              {.vocab = std::min(tokenizer.size(), session.model().plan.vocab),
                               .length_max = session.engine().length_max(),
                               .has_text = true}));
  ProgressLine line(environment);
  const auto total = static_cast<std::int64_t>(input.lines().size());
  const std::int64_t before = total - static_cast<std::int64_t>(todo.size());
  const auto warn = [&](const std::string& text) {
    line.clear();
    log::warning(text);
  };
  const auto is_stopped = [] { return stop_signal() != 0; };
  IdleMemory idle(session.engine(), options.idle_seconds);
  const auto is_stopped_waiting = [&] {
    idle.poll();
    return is_stopped();
  };
  ResultWriter writer(output, {.ordered = options.ordered,
                               .patience = std::chrono::seconds(options.retry_seconds),
                               .warn = warn,
                               .is_stopped = is_stopped_waiting});
  BatchRunner runner(session.engine(), tokenizer, maker, input, writer,
                     {.sequences_max = options.parallel,
                      .ordered = options.ordered,
                      .model = session.source().name(),
                      .progress =
                          [&](const BatchCounts& counts) {
                            idle.poll();
                            line.show(before + counts.done, total,
                                      fmt::format("{} failed", counts.failed));
                          },
                      .warn = warn,
                      .is_stopped = is_stopped});
  BatchPlanner planner(
      maker, input, todo,
      {.order = options.order, .is_stopped = is_stopped, .progress = [&](std::int64_t lines) {
         line.show(fmt::format("planning, {} lines", lines));
       }});
  BatchReport report;
  report.is_planned = options.order == BatchOrder::depth_first;
  for (auto lines = planner.next(); !lines.empty(); lines = planner.next()) {
    report.counts = runner.run(lines);
    if (is_stopped()) break;
  }
  report.planned_tokens = planner.prompt_tokens();
  report.sharable_tokens = planner.sharable_tokens();
  return report;
}

void print_resume_hint(std::int64_t done, std::int64_t left) {
  write_stderr(fmt::format("done {}, left {}; resume with: {}\n", done, left, resume_command()));
}

/// The output, opened and checked against the job, without a torn line.
struct OpenedJob {
  OutputFile output;
  Json job;
  std::vector<ResultMark> marks;
};

OpenedJob open_job(const BatchOptions& options, const InputFile& input) {
  const ModelSource source = model_source_of(options);
  outline_of(source, options.model);  // what cannot run is refused before a file is made
  check_texts(options, input, source);
  const Json job = job_of(options, input, source);
  refuse_same_file(input, options.output);
  OpenedJob opened{.output = OutputFile::open(options.output), .job = job, .marks = {}};
  const std::filesystem::path job_path = JobFile::beside(opened.output.path());
  refuse_same_file(input, job_path);
  check_job(job_path, opened.output, job, options.force);
  JobFile::write(job_path, job);
  opened.marks = opened.output.recover(options.force);
  const auto has_failed = [](const ResultMark& mark) { return mark.failed; };
  if (options.retry_failed && std::any_of(opened.marks.begin(), opened.marks.end(), has_failed)) {
    opened.output.drop_failed();
    std::erase_if(opened.marks, has_failed);
  }
  return opened;
}

}  // namespace

InputFile scanned_input(const BatchOptions& options) {
  const StopAtOnce nothing_to_lose;
  const std::filesystem::path folder = std::filesystem::path(options.output).parent_path();
  const bool has_output = !options.output.empty();
  InputFile input = InputFile::open(
      options.input, has_output ? (folder.empty() ? "." : folder) : std::filesystem::path("/tmp"));
  input.scan(options.format);
  return input;
}

void check_texts(const BatchOptions& options, const InputFile& input, const ModelSource& source) {
  const bool is_text = input.format() == LineFormat::text;
  if (is_text && options.raw && options.think) {
    throw Error(ErrorKind::usage,
                "--think needs a chat, and with --raw lines of text are none: leave --raw out");
  }
  if (is_text && !options.raw) need_chat_template(source);
  check_think(options.think, source);
}

JobTerms terms_of(const BatchOptions& options, Request defaults, RequestLimits limits) {
  check(defaults.sampling, limits.vocab);
  return {.defaults = std::move(defaults),
          .limits = limits,
          .model = options.model.model,
          .system = options.system,
          .think = options.think,
          .raw = options.raw,
          .strict = options.strict,
          .truncate = options.truncate};
}

int run_batch(const BatchOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  check_idle(options.idle_seconds, options.model.pools);
  const InputFile input = scanned_input(options);
  OpenedJob opened = open_job(options, input);
  const Progress progress = progress_of(input, std::move(opened.marks));
  const auto total = static_cast<std::int64_t>(input.lines().size());
  const std::int64_t before = total - static_cast<std::int64_t>(progress.todo.size());
  if (progress.todo.empty()) {
    write_stderr(fmt::format("{} lines, nothing left to do, {} failed\n", total, progress.failed));
    return progress.failed > 0 ? failed_lines_exit : 0;
  }
  BatchReport report;
  try {
    report = answer(options, input, opened.output, progress.todo);
  } catch (const Error&) {
    write_stderr(fmt::format("what was written stays; resume with: {}\n", resume_command()));
    throw;
  }
  report.lines = total;
  report.failed = progress.failed + report.counts.failed;
  report.time = std::chrono::steady_clock::now() - started;
  opened.job["last_run"] = report_json(report);
  JobFile::write(JobFile::beside(opened.output.path()), opened.job);
  if (const std::int64_t left = total - before - report.counts.done; left > 0) {
    print_resume_hint(before + report.counts.done, left);
  } else {
    write_stderr(summary_text(report));
  }
  return report.failed > 0 ? failed_lines_exit : 0;
}

}  // namespace hyb::app
