#include "app/batch/batch_job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/batch/batch_runner.h"
#include "app/batch/input_file.h"
#include "app/batch/job_file.h"
#include "app/batch/output_file.h"
#include "app/machine/device.h"
#include "app/machine/version.h"
#include "app/model/digest.h"
#include "app/options/cli_outline.h"
#include "app/request/model_texts.h"
#include "app/runtime/idle_memory.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/model_outline.h"
#include "app/runtime/tiers.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/memory/tier/snapshot_tier.h"

namespace hyb::app {
namespace {

bool is_plain(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+";
  return !word.empty() && word.find_first_not_of(plain) == std::string::npos;
}

}  // namespace

std::string shell_line(std::span<const std::string> words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    line += is_plain(word) ? word : single_quoted(word);
  }
  return line;
}

std::string resume_command(bool keeps_force) {
  std::vector<std::string> words;
  std::ifstream arguments("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(arguments, word, '\0');) {
    if (word == "--retry-failed" || (word == "--force" && !keeps_force)) continue;
    words.push_back(word);
  }
  return words.empty() ? "the same command" : shell_line(words);
}

bool is_stdout(const std::string& output) { return output == "-" || output == "/dev/stdout"; }

SessionShape shape_of(const BatchOptions& options) {
  return {.sequences_max = options.parallel,
          .chunk_tokens = options.model.chunk_tokens,
          .prefers_throughput = true};
}

namespace {

Json settings_of(const BatchOptions& options, const RunSettings& settings) {
  const GenerationOptions& asked = options.generation;
  const auto value = [](const auto& field) { return field ? Json(*field) : Json(); };
  Json all = {{"max_tokens", value(asked.max_tokens)},
              {"logit_bias", asked.logit_bias},
              {"stop", asked.stop},
              {"ignore_eos", asked.ignore_eos},
              {"system", options.system},
              {"raw", options.raw},
              {"truncate", static_cast<int>(options.truncate)},
              {"dtype", word_of(words::dtype, settings.types.activation)},
              {"kv_dtype", word_of(words::kv_dtype, settings.types.kv)},
              {"state_dtype", word_of(words::state_dtype, settings.types.state)},
              {"device", name_of(settings.device)},
              {"context", settings.context},
              {"random_weights", value(settings.types.random_weights)}};
  for (const auto& [name, given] : asked.parameters) {
    all[std::string(name)] = std::visit([](auto number) { return Json(number); }, given);
  }
  return all;
}

/// The hash of each small file that makes the model's answers; those that are not there are null.
Json texts_of(const ModelSource& source) {
  Json texts = Json::object();
  const auto add = [&](const std::string& name, const std::optional<std::string>& text) {
    texts[name] = text ? Json(hex(hash_of(*text))) : Json();
  };
  for (const std::string& file : {std::string("config.json"), std::string("generation_config.json"),
                                  source.tokenizer_file(), std::string("tokenizer_config.json")}) {
    add(file, source.read(file));
  }
  for (const auto& [name, found] : {std::pair("chat template", source.chat_template()),
                                    std::pair("chat template for tools", source.tool_template())}) {
    add(name, found ? std::optional(found->text) : std::nullopt);
  }
  if (const GgufFiles* const gguf = source.gguf()) {
    add("GGUF metadata", std::to_string(gguf->header_checksum()));
  }
  return texts;
}

Json job_of(const BatchOptions& options, const InputFile& input, const RunSettings& resolved,
            const WeightHashes* weights) {
  const ModelSource& source = resolved.source;
  const Hash128 model = model_identity(source, !resolved.types.random_weights);
  Json settings = settings_of(options, resolved);
  // Named only where it changes answers: jobs begun before the option existed can be resumed.
  if (resolved.reuse.snapshots != Precision::exact) {
    settings["snapshots"] = word_of(words::snapshots, resolved.reuse.snapshots);
  }
  if (options.think) settings["think"] = *options.think;
  if (!options.tools.is_null()) settings["tools"] = hex(hash_of(to_text(options.tools)));
  if (options.allow_special) settings["allow_special"] = true;
  if (const auto rule = rule_of(options.generation.rule)) {
    settings["rule"] = {{"form", static_cast<int>(rule->form)}, {"xxh3", hex(hash_of(rule->text))}};
  }
  if (!options.ignored.empty()) settings["ignore_fields"] = options.ignored;
  if (options.part) settings["part"] = options.part->text();
  if (options.prompt_template) settings["template"] = *options.prompt_template;
  if (options.output_format != ResultFormat::jsonl) {
    settings["output_format"] = word_of(result_formats, options.output_format);
  }
  if (resolved.batch_invariant) settings["batch_invariant"] = true;
  if (resolved.types.quantize != QuantizeChoice::none) {
    settings["quantize"] = word_of(words::quantize, resolved.types.quantize);
  }
  return {{"hyb", version_text()},
          {"input",
           {{"name", input.name()},
            {"format", word_of(line_formats, input.format())},
            {"bytes", input.file().size()},
            {"lines", input.lines().size()},
            {"xxh3", hex(input.hash())}}},
          {"model",
           {{"name", source.name()},
            {"xxh3", hex(model)},
            {"texts", texts_of(source)},
            {"weights", weights != nullptr ? weights_json(weights->files()) : Json()}}},
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

/// Says what --force would do with these results when the input is not the one they were made from.
std::string force_text(const InputFile& input) {
  const bool has_numbers =
      std::any_of(input.lines().begin(), input.lines().end(), [](const InputLine& line) {
        return line.id == hash_of(fmt::format("line-{}", line.number));
      });
  return fmt::format(
      "--force takes every line whose {} has a result as answered, also where it was edited",
      has_numbers ? "number" : "custom_id");
}

/// Results other than JSONL are never continued by force.
std::string or_force(const Json& job, const std::string& advice) {
  return job["settings"].contains("output_format") ? "" : advice;
}

[[noreturn]] void refuse_job(const OutputFile& output, const Json& job,
                             const std::string& difference, const std::string& advice) {
  throw Error(ErrorKind::usage,
              fmt::format("{} belongs to another job: {}. Choose another output{}",
                          output.path().string(), difference, or_force(job, "; " + advice)));
}

constexpr const char* force_advice =
    "--force goes on and leaves the results so far as they are, made as before";

/// Checks that the results so far are of this very job, or of one whose input had only the first
/// lines of this one. Returns the weight files still to be compared, or null.
Json check_job(const std::filesystem::path& path, const OutputFile& output, const InputFile& input,
               const Json& job, bool force) {
  if (output.is_empty() || force) return nullptr;
  const auto way_out = [&] {
    return "choose another output" + or_force(job, ", or go on with --force; " + force_text(input));
  };
  std::optional<Json> was;
  try {
    was = JobFile::read(path);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}; {}", error.what(), way_out()));
  }
  if (!was) {
    throw Error(ErrorKind::usage, fmt::format("{} holds something and {} is missing: {}",
                                              output.path().string(), path.string(), way_out()));
  }
  const Json bytes = member(member(*was, "input"), "bytes");
  const Json hash = member(member(*was, "input"), "xxh3");
  // A part of more lines is another part.
  if (!job["settings"].contains("part") && bytes.is_number_unsigned() && hash.is_string() &&
      input.begins_with(bytes.get<std::uint64_t>(), hash.get<std::string>())) {
    for (const char* key : {"bytes", "lines", "xxh3"}) (*was)["input"][key] = job["input"][key];
  }
  if (const std::string difference = job_difference(*was, job); !difference.empty()) {
    const bool has_input = member(member(*was, "input"), "xxh3") == member(job["input"], "xxh3");
    refuse_job(output, job, difference, has_input ? force_advice : force_text(input));
  }
  Json weights = member(member(*was, "model"), "weights");
  const WeightsDifference difference = weights_difference(weights, job["model"]["weights"]);
  if (!difference.text.empty()) refuse_job(output, job, difference.text, force_advice);
  return difference.is_pending ? std::move(weights) : Json();
}

/// State of the output that a rerun finds and continues.
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

/// Throws where --ordered can't be kept: results are only appended, so those that are there have to
/// be the input's first ones, in its order. Results of other inputs have no place in it.
void check_order(const InputFile& input, const OutputFile& output,
                 const std::vector<ResultMark>& marks) {
  std::map<Hash128, std::size_t> places;
  for (std::size_t i = 0; i < input.lines().size(); ++i) places.emplace(input.lines()[i].id, i);
  std::size_t next = 0;
  for (const ResultMark& mark : marks) {
    const auto place = places.find(mark.id);
    if (place == places.end()) continue;
    if (place->second != next) {
      throw Error(ErrorKind::usage,
                  fmt::format("--ordered: {} holds the result of line {} and not that of line {} "
                              "before it, and results are only appended: leave --ordered out, or "
                              "choose another output",
                              output.path().string(), input.lines()[place->second].number,
                              input.lines()[next].number));
    }
    ++next;
  }
}

/// The output, opened and checked against the job, without a torn line.
struct OpenedJob {
  OutputFile output;
  Json job = nullptr;  ///< null: results go to stdout
  std::vector<ResultMark> marks = {};
  std::unique_ptr<WeightHashes> weights = nullptr;  ///< while they are read; null: all is known
  Json weights_before = nullptr;  ///< of the results so far, not yet compared; null: they are

  /// Results may be appended. Takes what is known of the weights by now. Throws Error(usage) when
  /// they are not those of the results so far.
  bool may_write();
  void save() const { JobFile::write(JobFile::beside(output.path()), job); }
};

bool OpenedJob::may_write() {
  if (weights == nullptr) return true;
  if (!weights->poll()) return weights_before.is_null();
  Json& known = job["model"]["weights"];
  known = weights_json(weights->files());
  const std::string difference = weights_difference(weights_before, known).text;
  if (!difference.empty()) {
    refuse_job(output, job, difference + "; no result of this run was written", force_advice);
  }
  weights.reset();
  weights_before = nullptr;
  save();
  return true;
}

std::string note_of(const BatchCounts& counts, std::chrono::steady_clock::time_point began) {
  const std::string failed = fmt::format("{} failed", counts.failed);
  if (counts.tokens == 0) return failed;  // none has ended yet
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began;
  return fmt::format("{}, {:.0f} tokens/s", failed,
                     static_cast<double>(counts.tokens) / std::max(time.count(), 1e-3));
}

/// Runs what is left. The job is safe whatever happens here: the hint says how to go on.
BatchReport answer(const BatchOptions& options, const RunSettings& settings, const InputFile& input,
                   OpenedJob& opened, const std::vector<std::uint32_t>& todo) {
  const Environment environment = read_environment();
  Session session = [&] {
    const StopAtOnce nothing_to_lose;
    SessionShape shape = shape_of(options);
    shape.host_tier_bytes = check_tiers(options.tiers, settings);
    return Session::open(settings, shape);
  }();
  add_tiers(session, options.tiers, environment);
  const Tokenizer& tokenizer = session.need_tokenizer();
  RequestMaker maker(tokenizer, session.chat_template(),
                     terms_of(options, session.request(options.generation),
                              {.vocab = std::min(tokenizer.size(), session.model().plan.vocab),
                               .length_max = session.engine().length_max(),
                               .has_text = true}),
                     &session.rules());
  ProgressLine line(environment, std::chrono::minutes(1));
  const auto began = std::chrono::steady_clock::now();
  const std::int64_t total = std::ssize(input.lines()), before = total - std::ssize(todo);
  const auto warn = [&](const std::string& text) {
    line.clear();
    log::warning(text);
  };
  OutputFile& output = opened.output;
  const auto is_stopped = [&] { return stop_signal() != 0 || output.is_closed(); };
  const bool shows_progress = !output.is_stream() || !is_terminal(Stream::output);
  IdleMemory idle(session.engine(), options.idle_seconds);
  const auto is_stopped_waiting = [&] {
    idle.poll();
    return is_stopped();
  };
  ResultWriter writer(output, {.ordered = options.ordered,
                               .patience = std::chrono::seconds(options.retry_seconds),
                               .warn = warn,
                               .is_stopped = is_stopped_waiting,
                               .may_write = [&] { return opened.may_write(); }});
  BatchRunner runner(session.engine(), tokenizer, maker, input, writer,
                     {.sequences_max = options.parallel,
                      .ordered = options.ordered,
                      .format = options.output_format,
                      .model = session.source().name(),
                      .progress =
                          [&](const BatchCounts& counts) {
                            idle.poll();
                            if (!shows_progress) return;
                            line.show(shown_progress(counts, before, total),
                                      note_of(counts, began));
                          },
                      .warn = warn,
                      .is_stopped = is_stopped});
  BatchPlanner planner(
      maker, input, todo,
      {.order = options.order, .is_stopped = is_stopped, .progress = [&](std::int64_t lines) {
         writer.poll();
         if (shows_progress) line.show(fmt::format("planning, {} lines", lines));
       }});
  BatchReport report{.counts = {}, .is_planned = options.order == BatchOrder::depth_first};
  for (auto lines = planner.next(); !lines.empty(); lines = planner.next()) {
    report.counts = runner.run(lines);
    if (is_stopped()) break;
  }
  report.length_max = session.engine().length_max();
  if (const SnapshotTier* tier = session.engine().tier()) {
    report.tier_name = tier->name();
    report.tier_damage = tier->stats().damaged;
  }
  report.planned_tokens = planner.prompt_tokens();
  report.sharable_tokens = planner.sharable_tokens();
  return report;
}

/// Says how to continue a run that ended early.
std::string resume_text(const InputFile& input, const OutputFile& output) {
  if (output.is_stream()) return "results went to stdout, and can't be continued";
  const std::string command = resume_command(output.foreign_lines() > 0);
  if (!output.interference().empty()) return "the command was: " + command;
  if (input.has_more_lines()) {
    return fmt::format("lines were added to {} meanwhile; resume with: {}", input.name(), command);
  }
  if (input.has_changed()) {
    return fmt::format(
        "the input {} was changed meanwhile: undo that to resume, or choose another "
        "output; the command was: {}",
        input.name(), command);
  }
  if (!input.is_piped()) {
    return fmt::format("keep {} beside it; resume with: {}",
                       sanitized_line(JobFile::beside(output.path()).string()), command);
  }
  return fmt::format("resume with the same text in {} again: {}", input.name(), command);
}

std::string hint_after(const Error& error, const InputFile& input, const OutputFile& output) {
  if (!output.interference().empty()) return resume_text(input, output);
  if (error.kind() == ErrorKind::runtime || input.has_changed()) {
    return "what was written stays; " + resume_text(input, output);
  }
  // The same command ends here again.
  return "what was written stays, and can be continued once this is solved; the command was: " +
         resume_command(output.foreign_lines() > 0);
}

/// Refuses what cannot run before a file is made.
void check_model(const BatchOptions& options, const RunSettings& settings, const InputFile& input) {
  outline_of(settings);
  check_texts(options, input, settings.source);
}

OpenedJob streamed_job(const BatchOptions& options, const InputFile& input) {
  write_note("results go to stdout: a run that ends early can't be continued (-o FILE can)\n");
  OpenedJob opened{.output = OutputFile::stream(STDOUT_FILENO, "stdout")};
  opened.output.recover_lines(input, options.output_format);
  return opened;
}

/// Null: the weights are random, or inside the binary.
std::unique_ptr<WeightHashes> weights_of(const RunSettings& settings) {
  const std::vector<std::filesystem::path> paths = weight_paths(settings.source);
  if (settings.types.random_weights || paths.empty()) return nullptr;
  std::optional<std::filesystem::path> cache = read_environment().state_folder;
  if (cache) *cache /= "weights.xxh3";
  return std::make_unique<WeightHashes>(paths, HashCache(cache));
}

void recover_results(const BatchOptions& options, const InputFile& input, OpenedJob& opened) {
  if (options.output_format != ResultFormat::jsonl) {
    opened.marks = opened.output.recover_lines(input, options.output_format);
    return;
  }
  opened.marks = opened.output.recover(options.force);
  const std::size_t all = opened.marks.size();
  if (options.retry_failed) {
    std::erase_if(opened.marks, [](const ResultMark& mark) { return mark.failed; });
  }
  if (options.ordered) check_order(input, opened.output, opened.marks);
  if (opened.marks.size() < all) opened.output.drop_failed();
}

OpenedJob open_job(const BatchOptions& options, const RunSettings& settings,
                   const InputFile& input) {
  check_model(options, settings, input);
  if (is_stdout(options.output)) return streamed_job(options, input);
  std::unique_ptr<WeightHashes> weights = weights_of(settings);
  const Json job = job_of(options, input, settings, weights.get());
  refuse_same_file(input, options.output);
  OpenedJob opened{.output = OutputFile::open(options.output), .job = job};
  const std::filesystem::path job_path = JobFile::beside(opened.output.path());
  refuse_same_file(input, job_path);
  opened.weights_before = check_job(job_path, opened.output, input, job, options.force);
  recover_results(options, input, opened);
  if (opened.weights_before.is_null()) opened.save();  // what was refused above changed nothing
  if (weights != nullptr && !weights->poll()) {
    opened.weights = std::move(weights);
    opened.weights->start();
  }
  return opened;
}

}  // namespace

InputFile scanned_input(const BatchOptions& options) {
  const StopAtOnce nothing_to_lose;
  const std::filesystem::path folder = std::filesystem::path(options.output).parent_path();
  const bool has_output = !options.output.empty() && !is_stdout(options.output);
  InputFile input = InputFile::open(
      options.input, has_output ? (folder.empty() ? "." : folder) : std::filesystem::path("/tmp"));
  std::optional<LineTemplate> filling;
  if (options.prompt_template) filling.emplace(*options.prompt_template);
  input.scan(options.format, std::move(filling));
  if (options.part) keep_part(input, *options.part);
  return input;
}

void check_texts(const BatchOptions& options, const InputFile& input, const ModelSource& source) {
  const bool is_text = input.format() != LineFormat::jsonl;
  if (is_text && options.raw && options.think) {
    throw Error(ErrorKind::usage,
                "--think needs a chat, and with --raw lines of text are none: leave --raw out");
  }
  if (is_text && !options.raw && options.allow_special) {
    throw Error(ErrorKind::usage,
                "--allow-special needs --raw where lines are text: they are chats without it, and "
                "their text never becomes a control token");
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
          .tools = options.tools,
          .raw = options.raw,
          .allow_special = options.allow_special,
          .ignored = options.ignored,
          .truncate = options.truncate};
}

int run_batch(const BatchOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  RunSettings settings = resolve(options.model, read_environment());
  check_idle(options.idle_seconds, settings);
  const InputFile input = scanned_input(options);
  settings.measure_memory();  // hours may have passed while the input came
  OpenedJob opened = open_job(options, settings, input);
  const Progress progress = progress_of(input, std::move(opened.marks));
  const auto total = static_cast<std::int64_t>(input.lines().size());
  const std::int64_t before = total - static_cast<std::int64_t>(progress.todo.size());
  if (progress.todo.empty()) {
    write_note(fmt::format("{}, nothing left to do, {} failed\n", counted(total, "line"),
                           progress.failed));
    return progress.failed > 0 ? failed_lines_exit : 0;
  }
  BatchReport report;
  try {
    report = answer(options, settings, input, opened, progress.todo);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage && !opened.output.is_empty()) {
      write_stderr(hint_after(error, input, opened.output) + "\n");
    }
    throw;
  }
  report.lines = total;
  report.can_retry = options.output_format == ResultFormat::jsonl;
  report.failed = progress.failed + report.counts.failed;
  report.time = std::chrono::steady_clock::now() - started;
  if (!opened.job.is_null() && opened.weights_before.is_null()) {
    opened.job["last_run"] = report_json(report);
    opened.save();
  }
  if (const std::int64_t left = total - before - report.counts.done; left > 0) {
    (opened.output.is_closed() ? write_note : write_stderr)(  // `head` closes it on purpose
        fmt::format("done {}, left {}; {}\n", before + report.counts.done, left,
                    resume_text(input, opened.output)));
    if (opened.output.is_closed()) return static_cast<int>(ErrorKind::runtime);
  } else {
    write_note(summary_text(report, options.verbose));
  }
  return report.failed > 0 ? failed_lines_exit : 0;
}

}  // namespace hyb::app
