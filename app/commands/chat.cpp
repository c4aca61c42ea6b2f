#include <fmt/format.h>
#include <signal.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/chat/chat.h"
#include "app/chat/commands.h"
#include "app/commands/commands.h"
#include "app/machine/environment.h"
#include "app/options/options.h"
#include "app/options/settings_file.h"
#include "app/request/answer.h"
#include "app/request/model_texts.h"
#include "app/request/template_probe.h"
#include "app/request/text_input.h"
#include "app/request/tools.h"
#include "app/runtime/idle_memory.h"
#include "app/runtime/session.h"
#include "app/runtime/tiers.h"
#include "app/sessions/session_keeper.h"
#include "app/ui/line_editor.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

struct ChatFlags {
  ModelOptions model;
  GenerationOptions generation;
  std::string system;
  Think think;
  Json tools = nullptr;
  std::optional<bool> shows_thoughts;
  std::optional<bool> shows_markdown;
  HistoryMode history = HistoryMode::as_template;
  std::string session;
  bool goes_on = false;  ///< --continue
  /// The command line takes precedence over a saved chat, and that over settings.
  bool names_model = false, names_quantize = false, names_system = false, names_think = false;
  std::uint64_t session_bytes = session_bytes_usual;
  std::string prompt;
  std::optional<double> idle_seconds;
  bool no_history = false;
  TierFlags tiers;
};

std::uint64_t session_bytes(const std::string& text) {
  if (text == "0") return 0;
  try {
    const MemoryBudget size = parse_memory(text);
    if (size.kind == MemoryBudget::Kind::bytes) return size.bytes;
  } catch (const Error&) {  // not even a share
  }
  throw Error(ErrorKind::usage,
              "--session-size: '" + text + "' is not a size like 64MiB, and not 0");
}

bool has_editor(const Environment& environment) {
  return can_move_cursor(Stream::input, environment) &&
         can_move_cursor(Stream::output, environment);
}

std::unique_ptr<Input> make_input(const ChatFlags& options, const Chat& chat,
                                  const Environment& environment) {
  if (!has_editor(environment)) return std::make_unique<PlainLines>(is_terminal(Stream::input));
  const bool has_file = !options.no_history && environment.state_folder;
  return std::make_unique<LineEditor>(
      has_file ? History(*environment.state_folder / "history") : History(),
      LineEditorOptions{
          .has_colour = wants_colour(Stream::output, environment),
          .complete = [&chat](std::string_view typed) { return chat.completions(typed); },
          .editor = environment.editor});
}

std::optional<SessionFolder> session_folder(const Environment& environment) {
  if (!environment.data_folder) return std::nullopt;
  return SessionFolder(*environment.data_folder / "sessions");
}

/// An interactive chat is saved by default; a script's, only under a name.
SessionKeeper make_keeper(const ChatFlags& options, Session& session,
                          const Environment& environment, bool is_interactive,
                          SnapshotIo& snapshot_io) {
  return {session_folder(environment), session_origin(session),
          is_interactive && !options.no_history, &snapshot_io, options.session_bytes};
}

/// A session brings its model unless another one is named.
std::optional<SavedSession> take_session(ChatFlags& options, const Environment& environment) {
  if (options.goes_on) options.session = last_session;
  if (options.session.empty()) return {};
  check_session_name(options.session);
  const std::optional<SessionFolder> folder = session_folder(environment);
  if (!folder) return {};
  if (options.goes_on) folder->need(options.session);
  if (options.names_model || !folder->has(options.session)) return {};
  SavedSession saved = folder->read(options.session);
  options.model.model = saved.record.model;
  return saved;
}

/// Its weights are what they were.
void take_types(ChatFlags& options, const SavedSession& saved) {
  const auto quantize = saved.fingerprint.find("quantize");
  if (quantize == saved.fingerprint.end() || options.names_quantize) return;
  options.model.types.quantize =
      value_of(words::quantize, quantize->second).value_or(QuantizeChoice::none);
}

/// Refuses what it can before it reads weights.
Session open_session(const ChatFlags& options, const Environment& environment) {
  check(sampling_of(options.generation, Json::object()), std::numeric_limits<std::int32_t>::max());
  const RunSettings resolved = resolve(options.model, environment);
  check_idle(options.idle_seconds, resolved);
  const std::size_t host_tier = check_tiers(options.tiers, resolved);
  ProgressLine progress = answer_progress();
  return Session::open(resolved,
                       {.sequences_max = 1,
                        .chunk_tokens = options.model.chunk_tokens,
                        .expects_more = true,
                        .host_tier_bytes = host_tier,
                        .progress = &progress},
                       [&](const ModelSource& source) {
                         need_chat_template(source);
                         if (options.names_think) check_think(options.think, source);
                       });
}

void greet(Session& session) {
  write_note(fmt::format("{}, up to {} tokens; /help lists the commands, Ctrl-D leaves\n",
                         session.source().name(), session.engine().length_max()));
}

/// Reads entries until the input ends; returns the exit code.
class ChatLoop {
 public:
  ChatLoop(Engine& engine, Chat& chat, Input& input, bool is_interactive, bool has_editor)
      : engine_(&engine),
        chat_(&chat),
        input_(&input),
        has_person_(is_interactive),
        has_editor_(has_editor) {}

  /// While nothing is entered for this long, free memory is returned to the machine.
  void release_memory_after(double seconds) { idle_ = std::chrono::duration<double>(seconds); }

  /// `first` is the first message, unless it is empty.
  int run(const std::string& first) {
    if (!first.empty()) {
      if (has_person_) write_note(fmt::format("> {}\n", first));
      if (take({.text = first, .is_literal = true}) == Chat::Next::leave || is_told_to_end()) {
        return exit_code_;
      }
    }
    for (;;) {
      const InputEvent event = input_->read(request());
      chat_->stop_prefill();
      if (event.kind == InputEvent::Kind::ended) break;
      if (event.kind == InputEvent::Kind::interrupted && chat_->draft().message != 0) {
        chat_->drop_draft();
        continue;
      }
      if (event.kind == InputEvent::Kind::interrupted) {
        if (std::chrono::steady_clock::now() - stopped_ < std::chrono::seconds(1)) continue;
        if (was_hinted_) return 128 + SIGINT;
        write_note("Ctrl-C again or Ctrl-D leaves; /help lists the commands\n");
        was_hinted_ = true;
        continue;
      }
      was_hinted_ = false;
      if (take(event.entry) == Chat::Next::leave) break;
      if (is_told_to_end()) break;
    }
    return exit_code_;
  }

 private:
  /// True where a signal ended it, of which main makes the exit code; Ctrl-C was for what went on.
  bool is_told_to_end() {
    if (stop_signal() == SIGINT && has_person_) {
      clear_stop_signal();
      stopped_ = std::chrono::steady_clock::now();
    }
    return stop_signal() != 0;
  }

  InputRequest request() {
    InputRequest request;
    if (has_person_) {  // a script's runs depend on no pauses
      request.work = prepare_memory_when_idle(*engine_, chat_->prefill_work());
    }
    if (idle_) request.work = release_memory_when_idle(*engine_, *idle_, std::move(request.work));
    const Chat::Draft& draft = chat_->draft();
    if (draft.message == 0) return request;
    request.prompt = fmt::format("edit {}> ", draft.message);
    request.draft = draft.text;
    return request;
  }

  /// An error ends the request, not the chat; a script still sees it in the exit code.
  Chat::Next take(const Entry& entry) {
    try {
      if (!has_editor_) return chat_->take(entry);
      const RawMode keys_wait(Interrupts::signals);
      return chat_->take(entry);
    } catch (const Error& error) {
      log::error(error.what());
      if (!has_person_) exit_code_ = static_cast<int>(error.kind());
    } catch (const std::bad_alloc&) {
      log::error("out of memory; the message was not added");
      if (!has_person_) exit_code_ = static_cast<int>(ErrorKind::memory);
    }
    return Chat::Next::go_on;
  }

  Engine* engine_;
  Chat* chat_;
  Input* input_;
  std::optional<std::chrono::duration<double>> idle_;  ///< empty: memory is kept
  bool has_person_;
  bool has_editor_;
  bool was_hinted_ = false;
  /// When Ctrl-C ended something; one more soon after was meant for that, too.
  std::chrono::steady_clock::time_point stopped_ = {};
  int exit_code_ = 0;
};

AnswerView chat_view(const ChatFlags& options, const Environment& environment) {
  AnswerView view = stdout_view(environment, options.shows_thoughts);
  const bool has_looks = is_terminal(Stream::output) && wants_colour(Stream::output, environment);
  view.shows_markdown = options.shows_markdown.value_or(has_looks);
  return view;
}

int chat_main(CLI::App& cli, ChatFlags& options) {
  const Environment environment = read_environment();
  const SettingsFile settings(cli, environment);
  settings.apply(cli);
  std::optional<SavedSession> saved = take_session(options, environment);
  settings.apply(cli, options.model.model);
  if (saved) take_types(options, *saved);
  if (const auto rule = rule_of(options.generation.rule)) grammar_of(*rule);
  std::optional<StopAtOnce> nothing_to_lose(std::in_place);
  Session session = open_session(options, environment);
  add_tiers(session, options.tiers, environment);
  const bool is_interactive = is_terminal(Stream::input);
  Engine& engine = session.engine();
  SnapshotIo snapshot_io = engine.snapshot_io();
  const models::Model& model = session.model();
  snapshot_io.set_draft_bytes(
      models::draft_unit_bytes(model.plan, model.geometry, session.memory().pools));
  SessionKeeper keeper = make_keeper(options, session, environment, is_interactive, snapshot_io);
  Chat chat(session, keeper, options.generation,
            {.is_interactive = is_interactive && is_terminal(Stream::error),
             .view = chat_view(options, environment),
             .has_colour = wants_colour(Stream::error, environment),
             .utf8 = environment.utf8,
             .has_editor = has_editor(environment),
             .history = options.history,
             .tools = options.tools});
  const auto begin = [&](bool is_given) {
    if (options.names_system == is_given) chat.set_system(options.system);
    if (options.names_think == is_given) chat.set_think(options.think, is_given ? "--think" : "");
  };
  begin(true);
  const std::unique_ptr<Input> input = make_input(options, chat, environment);
  if (is_interactive) greet(session);
  if (!options.session.empty()) chat.open(options.session, std::move(saved));
  if (chat.is_new()) begin(false);
  nothing_to_lose.reset();
  std::optional<StopOnce> every_turn_counts;
  if (is_interactive) every_turn_counts.emplace();
  ChatLoop talk(engine, chat, *input, is_interactive, has_editor(environment));
  if (options.idle_seconds) talk.release_memory_after(*options.idle_seconds);
  const int exit_code = talk.run(options.prompt);
  chat.close();
  if (is_interactive && !chat.kept_text().empty()) write_note(chat.kept_text() + '\n');
  return exit_code;
}

Action describe_chat(CLI::App& cli) {
  const auto options = std::make_shared<ChatFlags>();  // CLI11 keeps pointers into it
  add_model_options(cli, options->model);
  add_graphs_option(cli, options->model.graphs);
  add_chat_template_option(cli, options->model.chat_template);
  add_reuse_options(cli, options->model.reuse);
  add_pool_options(cli, options->model.pools);
  add_chunk_option(cli, options->model.chunk_tokens);
  add_speculation_options(cli, options->model.speculation);
  add_lane_options(cli, options->model.lanes);
  add_idle_option(cli, options->idle_seconds);
  add_generation_options(cli, options->generation);
  add_tier_options(cli, options->tiers);
  add_system_option(cli, options->system, "the system prompt");
  add_tools_option(cli, options->tools);
  add_think_option(cli, options->think);
  add_thoughts_option(cli, options->shows_thoughts);
  static constexpr Words<std::optional<bool>, 3> markdown = {
      {{"auto", std::nullopt}, {"on", true}, {"off", false}}};
  add_choice(cli, "--markdown", options->shows_markdown, markdown,
             "show what answers mark up as headings, lists, tables, code, or the marks. auto: on a "
             "terminal with colours. Saved chats have the text as it was given");
  static constexpr Words<HistoryMode, 2> histories = {
      {{"template", HistoryMode::as_template}, {"preserve", HistoryMode::preserve}}};
  add_choice(
      cli, "--history", options->history, histories,
      "how the model sees past turns: as the template wants them, or just as they were given");
  cli.add_option("-p,--prompt", options->prompt, "begin with this message")->type_name("TEXT");
  cli.add_flag("--no-history", options->no_history,
               "save neither what is typed nor, without --session, the chat");
  cli.add_option("--session", options->session,
                 "continue the saved chat of this name, with its model unless MODEL is given, or "
                 "start it; every turn is saved")
      ->type_name("SESSION");
  cli.add_flag("--continue", options->goes_on, "continue the last chat that was given no name")
      ->excludes(cli.get_option("--session"));
  cli.add_option_function<std::string>(
         "--session-size",
         [options](const std::string& text) { options->session_bytes = session_bytes(text); },
         "most memory in a session file (64MiB): what has no room is run again when the chat is "
         "continued; text is always kept")
      ->type_name("SIZE");
  add_settings_option(cli);
  return [options, &cli] {
    const auto has = [&](const char* name) { return cli.count(name) > 0; };
    options->names_model = has("model") || has("--model");
    options->names_quantize = has("--quantize");
    options->names_system = has("--system") || has("--system-file");
    options->names_think = has("--think");
    if (has("model") && is_prompt(options->model.model)) {
      throw Error(ErrorKind::usage, quote_name(options->model.model) +
                                        " is taken for the model; -p TEXT is the first message");
    }
    return chat_main(cli, *options);
  };
}

}  // namespace

const Command chat_command = {"chat", "Talk with a model", describe_chat};

}  // namespace hyb::app
