#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "app/commands/commands.h"
#include "app/options/options.h"
#include "app/options/settings_file.h"
#include "app/request/answer.h"
#include "app/request/messages.h"
#include "app/request/model_texts.h"
#include "app/request/prompt.h"
#include "app/request/request_body.h"
#include "app/request/template_probe.h"
#include "app/request/text_input.h"
#include "app/request/thoughts.h"
#include "app/request/tools.h"
#include "app/runtime/model_outline.h"
#include "app/runtime/session.h"
#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

struct RunFlags {
  ModelOptions model;
  GenerationOptions generation;
  TextInput input;
  std::string system;
  std::string messages;
  Json tools = nullptr;
  Truncate truncate = Truncate::refuse;
  Think think;
  bool names_think = false;  ///< by a flag; else it is left out where it means nothing
  std::optional<bool> shows_thoughts;
  bool raw = false;
  bool allow_special = false;
  bool json = false;
  bool verbose = false;
  std::int32_t choices = 1;
  std::int32_t logprobs = -1;
};

/// The body of a request; with --raw its prompt is a text, else it has messages.
Json body_of(const RunFlags& options) {
  if (!options.messages.empty()) {
    Json body = read_messages(options.messages);
    check_think_alone(options.think, body, options.messages);
    add_tools(body, options.tools);
    return body;
  }
  const std::string text = read_text(options.input);
  if (text.empty()) {
    throw Error(ErrorKind::usage,
                taken_word_text(options.input) + "the prompt is empty; give it as -p TEXT");
  }
  Json body = question_body(options.system, text);
  add_tools(body, options.tools);
  if (options.raw) body = Json::object({{"prompt", text}});
  return body;
}

EncodedPrompt encode(const RunFlags& options, const Session& session, const Json& body) {
  const Tokenizer& tokenizer = session.need_tokenizer();
  if (options.raw) {
    const std::string text = body["prompt"];
    std::vector<TokenId> tokens = encode_raw(tokenizer, text, options.allow_special);
    if (!options.allow_special && spells_added_tokens(tokenizer, text, tokens)) {
      log::warning(plain_tokens_warning);
    }
    return {.tokens = std::move(tokens)};
  }
  const ChatTemplate& chat_template = session.need_chat_template();
  for (const std::string& text : unread_arguments(body, chat_template)) log::warning(text);
  return encode_chat(chat_template, tokenizer,
                     chat_prompt(body, body["messages"], options.think, chat_template));
}

struct PreparedRequest {
  Request request;
  AnswerStart start;
};

PreparedRequest prepare(const RunFlags& options, Session& session, const Json& body) {
  Request request = session.request(options.generation);
  request.choices = options.choices;
  request.sampling.logprobs = options.logprobs;
  apply_body(body, request);
  if (const auto rule = rule_of(body)) request.rule = session.rules().get(*rule);
  EncodedPrompt prompt = encode(options, session, body);
  set_start(request, prompt.start);
  const std::string unbound = bind_calls(request, prompt.start.calls, &session.rules());
  if (!unbound.empty()) log::warning(unbound);
  request.prompt = std::move(prompt.tokens);
  const auto length = request.prompt.size();
  fit_prompt(request.prompt, session.engine().length_max() - 1, options.truncate);
  if (request.prompt.size() == length) request.message_ends = std::move(prompt.message_ends);
  return {.request = std::move(request), .start = std::move(prompt.start)};
}

std::string statistics(const Answer& answer, const Session& session) {
  const Usage& usage = answer.completion.usage;
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  const double decode = seconds(usage.decode);
  const auto after_first = static_cast<double>(usage.completion_tokens - 1);
  return fmt::format(
      "[weights {}, load {:.2f} s, reused {}, prefilled {} in {:.2f} s, {}, {:.1f} tokens/s{}]\n",
      weights_name(session.model().geometry.load), seconds(session.load_time()),
      usage.reused_tokens, usage.prefilled_tokens, seconds(usage.prefill),
      counted(usage.completion_tokens, "token"), decode > 0 ? after_first / decode : 0.0,
      answer.speculation.verify_steps > 0 ? ", " + drafts_text(answer.speculation) : "");
}

void fail_on_error(const Completion& completion) {
  if (completion.reason == FinishReason::error) {
    throw Error(ErrorKind::runtime, completion.error);
  }
}

void stream(const RunFlags& options, Session& session, PreparedRequest prepared) {
  AnswerView view = stdout_view(read_environment(), options.shows_thoughts);
  view.start = std::move(prepared.start);
  const bool has_rule = prepared.request.rule.get() != nullptr;
  const Answer answer = stream_answer(session.engine(), std::move(prepared.request), view);
  if (options.verbose) {
    write_stderr(statistics(answer, session));
  }
  fail_on_error(answer.completion);
  if (has_rule && answer.completion.reason == FinishReason::length) {
    log::warning(
        "the answer is cut by a limit, so it is not what its rule says as a whole; more tokens "
        "(-n) let it end");
  }
}

std::string unique_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{:x}{:x}", now.count(), ::getpid());
}

/// Reports by llama.cpp's names: the part of the prompt that was run, then the answers' tokens.
Json timings_json(std::span<const Completion> completions, std::chrono::nanoseconds load) {
  std::chrono::nanoseconds prefill{0}, decode{0};
  std::int64_t prefilled = 0, generated = 0;
  for (const Completion& completion : completions) {
    prefill = std::max(prefill, completion.usage.prefill);
    decode = std::max(decode, completion.usage.decode);
    prefilled += completion.usage.prefilled_tokens;
    generated += completion.usage.completion_tokens;
  }
  const auto milliseconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  return {{"load_ms", milliseconds(load)},
          {"prompt_n", prefilled},
          {"prompt_ms", milliseconds(prefill)},
          {"predicted_n", generated},
          {"predicted_ms", milliseconds(decode)}};
}

void print_json(const RunFlags& options, Session& session, PreparedRequest prepared) {
  Collector collector(prepared.request.choices);
  ProgressLine progress = answer_progress();
  run_request(
      session.engine(), std::move(prepared.request), collector, progress,
      [&] { return collector.done(); }, [] { return stop_signal() != 0; });
  progress.clear();
  const bool is_chat = !options.raw;
  Json json = response_json({.kind = is_chat ? AnswerKind::chat : AnswerKind::text,
                             .id = (is_chat ? "chatcmpl-" : "cmpl-") + unique_id(),
                             .model = session.source().name(),
                             .created_s = std::time(nullptr),
                             .start = std::move(prepared.start)},
                            collector.completions(), session.need_tokenizer());
  json["timings"] = timings_json(collector.completions(), session.load_time());
  write_output(to_text(json) + "\n");
  for (const Completion& completion : collector.completions()) fail_on_error(completion);
}

/// Checks what is given; settings of a file are left out instead.
void check(const CLI::App& cli, const RunFlags& options) {
  const auto refuse = [&](const char* option, bool is_wrong, const char* why) {
    if (!is_wrong || cli.count(option) == 0) return;
    throw Error(ErrorKind::usage, fmt::format("{} {}", option, why));
  };
  refuse("--choices", options.choices > 1 && !options.json,
         "needs --json: one stream has one answer");
  refuse("--logprobs", !options.json, "needs --json");
  for (const char* option : {"--system", "--system-file", "--messages", "--tools", "--think"}) {
    refuse(option, options.raw, "needs a chat: leave --raw out");
  }
  refuse("--thoughts", options.raw, "needs a chat: plain text has no marked thought");
  refuse("--thoughts", options.json, "is for text: --json has the thought as reasoning_content");
  refuse("--allow-special", !options.raw,
         "needs --raw: in a chat, user text never becomes a control token");
}

int run_main(CLI::App& cli, RunFlags& options) {
  options.names_think = cli.count("--think") > 0;
  const SettingsFile settings(cli, read_environment());
  settings.apply(cli);
  settings.apply(cli, options.model.model);
  check(cli, options);
  if (!options.names_think && !options.messages.empty()) options.think.reset();
  const Json body = body_of(options);
  Request asked;
  asked.choices = options.choices;
  apply_body(body, asked);  // what is wrong with it is known before weights are read
  if (const auto rule = rule_of(options.generation.rule)) grammar_of(*rule);
  if (const auto rule = rule_of(body)) grammar_of(*rule);
  if (asked.choices > 1 && !options.json) {
    throw Error(ErrorKind::usage, options.messages + ": n: more than one answer needs --json");
  }
  Session session = [&] {
    const StopAtOnce nothing_to_lose;
    ProgressLine progress = answer_progress();
    return Session::open(
        resolve(options.model, read_environment()),
        {.sequences_max = std::clamp(asked.choices, 1, choices_max),
         .chunk_tokens = options.model.chunk_tokens,
         .answer_tokens = std::max(0, options.generation.max_tokens.value_or(asked.max_tokens)),
         .progress = &progress},
        [&](const ModelSource& source) {
          if (!options.raw) need_chat_template(source);
          if (options.names_think) check_think(options.think, source);
        });
  }();
  if (const auto other = other_model(body, session.source().name())) {
    log::warning(fmt::format("{} asks for the model {}; {} answers", options.messages, *other,
                             session.source().name()));
  }
  PreparedRequest prepared = prepare(options, session, body);
  if (options.json) {
    print_json(options, session, std::move(prepared));
  } else {
    stream(options, session, std::move(prepared));
  }
  return 0;
}

Action describe_run(CLI::App& cli) {
  const auto options = std::make_shared<RunFlags>();  // CLI11 keeps pointers into it
  add_model_options(cli, options->model, false);
  add_graphs_option(cli, options->model.graphs);
  add_chat_template_option(cli, options->model.chat_template);
  add_reuse_options(cli, options->model.reuse);
  add_pool_options(cli, options->model.pools);
  add_chunk_option(cli, options->model.chunk_tokens);
  add_speculation_options(cli, options->model.speculation);
  add_text_input(cli, options->input, options->model.model);
  add_generation_options(cli, options->generation);
  CLI::Option* system = add_system_option(cli, options->system, "the system prompt");
  cli.add_option("--messages", options->messages,
                 "JSON file (-: stdin) of messages, or the body of a request. What a body says "
                 "wins over options, as in hyb batch")
      ->type_name("FILE")
      ->excludes(system)
      ->excludes(cli.get_option("--system-file"))
      ->excludes(cli.get_option("--prompt"))
      ->excludes(cli.get_option("--prompt-file"));
  add_tools_option(cli, options->tools);
  add_think_option(cli, options->think);
  add_thoughts_option(cli, options->shows_thoughts);
  cli.add_flag("--raw", options->raw, "continue the text as it is, without the chat template");
  cli.add_flag("--allow-special", options->allow_special,
               "with --raw: control tokens spelled in the text become tokens");
  add_choice(cli, "--truncate", options->truncate, truncate_words,
             "cut a prompt that is too long, at its left or its right end");
  cli.add_flag("--json", options->json, "print one OpenAI chat.completion object");
  cli.add_option("--choices", options->choices, "with --json: number of answers")
      ->check(CLI::Range(1, static_cast<int>(choices_max)))
      ->capture_default_str();
  cli.add_option("--logprobs", options->logprobs,
                 "with --json: log-probabilities of the tokens, and of this many alternatives")
      ->check(in_range(ranges::logprobs));
  cli.add_flag("-v,--verbose", options->verbose, "print statistics on stderr");
  add_settings_option(cli);
  return [options, &cli] { return run_main(cli, *options); };
}

}  // namespace

const Command run_command = {"run", "Answer one prompt and exit", describe_run};

}  // namespace hyb::app
