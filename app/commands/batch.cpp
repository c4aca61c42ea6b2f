#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

#include "app/batch/batch_job.h"
#include "app/commands/commands.h"
#include "app/options/options.h"
#include "app/request/prompt.h"
#include "app/request/text_input.h"
#include "app/request/tools.h"
#include "app/runtime/idle_memory.h"
#include "app/runtime/tiers.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

struct BatchFlags {
  BatchOptions job;
  std::vector<std::string> names;  ///< [MODEL] IN, or outputs to merge
  std::optional<BatchOrder> order;
  std::string part;
  bool merges = false;
};

constexpr int names_max = 9999;

int batch_main(const CLI::App& cli, const BatchFlags& options) {
  if (options.merges) {
    if (options.job.output.empty()) throw Error(ErrorKind::usage, "--merge needs -o ALL");
    for (const char* other : {"--part", "--model", "--validate", "--force", "--retry-failed"}) {
      if (cli.count(other) > 0) {
        throw Error(ErrorKind::usage, fmt::format("--merge answers nothing: leave {} out", other));
      }
    }
    return merge_parts(options.names, options.job.output);
  }
  if (options.names.empty()) {
    throw Error(ErrorKind::usage,
                "the file of requests is missing: hyb batch [MODEL] IN -o OUT; - reads stdin");
  }
  if (options.names.size() > 2) {
    throw Error(ErrorKind::usage,
                "hyb batch takes [MODEL] IN; several outputs are put together with --merge");
  }
  BatchOptions job = options.job;
  if (const auto rule = rule_of(job.generation.rule)) grammar_of(*rule);
  job.input = take_file_word(cli, options.names, job.model.model);
  const bool is_jsonl = job.output_format == ResultFormat::jsonl;
  if (!options.part.empty()) job.part = Part::of(options.part);
  if (job.part && !is_jsonl) {
    throw Error(ErrorKind::usage,
                "--part needs --output-format jsonl: other results say by their place alone what "
                "they are of");
  }
  if (!is_jsonl && (job.retry_failed || job.force)) {
    throw Error(ErrorKind::usage,
                "--retry-failed and --force need --output-format jsonl: other results say by their "
                "place alone what they are of");
  }
  job.ordered = job.ordered || !is_jsonl;
  if (job.ordered && options.order == BatchOrder::depth_first) {
    throw Error(ErrorKind::usage,
                "--ordered and --output-format text or tsv need --order file: results would wait "
                "for the job's end");
  }
  job.order = job.ordered ? BatchOrder::file : options.order.value_or(job.order);
  if (job.raw && !job.system.empty()) {
    throw Error(ErrorKind::usage, "--system needs a chat: leave --raw out");
  }
  if (job.output.empty() != job.validate) {
    throw Error(ErrorKind::usage, job.validate ? "--validate writes no results: leave -o out"
                                               : "-o OUT is missing: where results go, and where "
                                                 "a rerun finds what is done");
  }
  if (is_stdout(job.output) && (job.retry_failed || job.force)) {
    throw Error(
        ErrorKind::usage,
        "--retry-failed and --force are for the results of an earlier run, and stdout keeps "
        "none: say -o FILE");
  }
  return job.validate ? validate_batch(job) : run_batch(job);
}

void add_job_options(CLI::App& cli, BatchFlags& options) {
  cli.add_option("files", options.names,
                 "the model (default: demo) and the file of requests (-: stdin; a pipe will do)")
      ->type_name("FILE")
      ->option_text("[MODEL] IN")
      ->expected(0, names_max);
  cli.add_option("--part", options.part,
                 "answer only part K of N of the lines, as 3/16; prompts that begin alike stay "
                 "together")
      ->type_name("K/N");
  cli.add_flag("--merge", options.merges,
               "put outputs of all parts together, in the order of the input: hyb batch --merge "
               "OUT... -o ALL");
  cli.add_option("-o,--output", options.job.output,
                 "file for the results (-: stdout); a rerun continues it. OUT.job, beside it, says "
                 "what the results are of")
      ->type_name("FILE");
  cli.add_option("--parallel", options.job.parallel, "requests answered at once")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  add_choice(cli, "--format", options.job.format, line_formats,
             "how lines are read; default: as the first line looks. csv, tsv: a table for "
             "--template, whose "
             "first line names its columns");
  cli.add_option("--template", options.job.prompt_template,
                 "make prompts of lines: {} is a line of text, {NAME} a column of a table or a "
                 "member of a JSON object, {{ and }} are braces; as 'Summarise: {}'")
      ->type_name("TEXT");
  add_choice(
      cli, "--output-format", options.job.output_format, result_formats,
      "what is written for each line of the input: OpenAI's JSONL, or in its order a line of text "
      "or "
      "TSV. text is the answer; tsv: custom_id, answer, finish_reason, prompt_tokens, "
      "completion_tokens, error. Line breaks are \\n, backslashes \\\\ (printf %b reads them), in "
      "TSV tabs \\t; empty lines stay empty, a header gets one, which TSV always has; a line that "
      "failed is empty in "
      "text and counted at the end");
  static constexpr Words<BatchOrder, 2> orders = {
      {{"depth-first", BatchOrder::depth_first}, {"file", BatchOrder::file}}};
  add_choice(cli, "--order", options.order, orders,
             "run lines with a common prefix together (depth-first, the default), or in the order "
             "of the input");
  cli.add_flag("--ordered", options.job.ordered,
               "write results in the order of the input; lines run in it, too");
  cli.add_flag("--retry-failed", options.job.retry_failed,
               "run the lines again whose result is an error");
  cli.add_flag(
      "--force", options.job.force,
      "continue although input, model or settings differ from those of the results so far");
  cli.add_option("--ignore-fields", options.job.ignored,
                 "read lines as if they had no fields of these names, such as A,B. Without it, "
                 "lines with fields that hyb does not obey fail")
      ->type_name("NAMES")
      ->delimiter(',')
      ->check(CLI::Validator(
          [](const std::string& name) {
            const bool is_needed = name == "messages" || name == "prompt";
            return is_needed ? name + " is what a line asks" : std::string();
          },
          "", ""));
  cli.add_flag("-v,--verbose", options.job.verbose,
               "the last line says what was reused and guessed, too");
  cli.add_flag("--validate", options.job.validate,
               "answer nothing; print the failed results that a run would give");
  cli.add_option("--retry-seconds", options.job.retry_seconds,
                 "how long to wait for room on a full disk")
      ->check(CLI::Range(0, 86'400))
      ->capture_default_str();
}

Action describe_batch(CLI::App& cli) {
  const auto options = std::make_shared<BatchFlags>();  // CLI11 keeps pointers into it
  add_job_options(cli, *options);
  add_model_flag(cli, options->job.model.model);
  add_model_options(cli, options->job.model, false);
  add_graphs_option(cli, options->job.model.graphs);
  add_chat_template_option(cli, options->job.model.chat_template);
  add_reuse_options(cli, options->job.model.reuse);
  add_pool_options(cli, options->job.model.pools);
  add_chunk_option(cli, options->job.model.chunk_tokens);
  add_speculation_options(cli, options->job.model.speculation);
  add_lane_options(cli, options->job.model.lanes);
  add_idle_option(cli, options->job.idle_seconds);
  add_tier_options(cli, options->job.tiers);
  add_generation_options(cli, options->job.generation);
  add_system_option(cli, options->job.system, "the system prompt of lines that are only a prompt");
  add_tools_option(cli, options->job.tools);
  add_think_option(cli, options->job.think);
  cli.add_flag("--raw", options->job.raw,
               "continue lines that are only a prompt as they are, without the chat template");
  cli.add_flag(
      "--allow-special", options->job.allow_special,
      "control tokens spelled in texts to be continued (completions, --raw) become tokens");
  add_choice(cli, "--truncate", options->job.truncate, truncate_words,
             "cut prompts that are too long, at their left or their right end");
  return [options, &cli] { return batch_main(cli, *options); };
}

}  // namespace

const Command batch_command = {
    "batch", "Answer a file of requests; a rerun continues where it ended", describe_batch};

}  // namespace hyb::app
