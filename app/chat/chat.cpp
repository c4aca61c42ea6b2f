#include "app/chat/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "app/base/texts.h"
#include "app/request/prompt.h"
#include "app/request/thoughts.h"
#include "app/request/tools.h"
#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/io/home.h"

namespace hyb::app {

namespace {

std::filesystem::path typed_path(const std::string& path) {
  return with_home(path, read_environment().hub.home);
}

/// Counts the turns that answer a message again that was answered in the same place before.
std::uint64_t answered_again(const Conversation& conversation) {
  std::set<std::pair<std::int32_t, std::string_view>> answered;
  std::uint64_t again = 0;
  for (std::int32_t turn = 1; turn <= conversation.turns(); ++turn) {
    const auto& [parent, exchange] = conversation.turn(turn);
    again += answered.emplace(parent, exchange.message).second ? 0 : 1;
  }
  return again;
}

}  // namespace

Chat::Chat(Session& session, SessionKeeper& keeper, const GenerationOptions& options,
           const ChatConfig& config)
    : session_(&session),
      keeper_(&keeper),
      config_(config),
      settings_(options, session.generation_config(), session.model().plan.vocab),
      prompts_(session.need_chat_template(), session.need_tokenizer(), config.history,
               config.tools),
      ahead_(session.engine()) {}

void Chat::set_system(const std::string& text) {
  check_utf8(text, "the system prompt");
  conversation_.set_system(text);
}

void Chat::set_think(Think think, std::string_view source) {
  const ChatTemplate& chat_template = session_->need_chat_template();
  if (!source.empty()) check_think(think, chat_template, session_->need_tokenizer(), source);
  prompts_.set_think(think);
}

void Chat::open(const std::string& name, std::optional<SavedSession> known) {
  const std::string system = conversation_.system();
  const Think think = prompts_.think();
  go_on_with(keeper_->open(name, std::move(known)));
  if (!system.empty()) conversation_.set_system(system);
  if (think) prompts_.set_think(think);
}

void Chat::close() {
  if (conversation_.turns() > 0) keeper_->close(saving());
}

void Chat::go_on_with(SessionKeeper::Loaded loaded) {
  conversation_ = std::move(loaded.conversation);
  last_.reset();
  seed_shift_ = answered_again(conversation_);  // no answer is drawn with a seed it had before
  if (!loaded.remark.empty()) log::warning(loaded.remark);
  if (conversation_.turns() == 0) return;
  const std::int32_t here = conversation_.here();
  if (here != 0) prompts_.set_think(conversation_.turn(here).exchange.think);
  show_last_exchange();
  notice(place_text(conversation_));
  if (here == 0 || !config_.is_interactive) return;
  const auto known = static_cast<std::int32_t>(branch_tokens().sequence.size());
  if (loaded.restored > 0) notice(counted(loaded.restored, "token") + " remembered");
  if (loaded.restored < known && loaded.remark.empty()) {
    notice(fmt::format("{} of it will be run again with the next message{}",
                       counted(known - loaded.restored, "token"),
                       loaded.restored == 0 ? ": the file has no memory" : ""));
  }
}

/// At most this much of a text, with how much there is besides.
std::string shortened_text(const std::string& text) {
  constexpr std::size_t bytes_max = 600, lines_max = 8;
  std::size_t end = std::min(text.size(), bytes_max), lines = 0;
  for (std::size_t at = 0; at < end; ++at) {
    if (text[at] == '\n' && ++lines == lines_max) end = at;
  }
  while (end > 0 && end < text.size() && (text[end] & '\xC0') == '\x80') --end;
  if (end == text.size()) return text;
  return fmt::format("{}\n[... {} of {} bytes more; hyb sessions show has all]",
                     text.substr(0, end), text.size() - end, text.size());
}

void Chat::show_last_exchange() const {
  if (conversation_.here() == 0) return;
  const Exchange& last = conversation_.turn(conversation_.here()).exchange;
  notice("> " + shortened_text(last.message));
  if (is_unanswered(last)) {
    notice("[not answered yet: /regen answers it, another message takes its place]");
  } else {
    notice(shortened_text(last.answer_text) + (last.was_interrupted ? "\n[stopped]" : ""));
  }
}

std::string Chat::kept_text() const {
  const std::string name = keeper_->kept_as();
  if (name.empty()) return {};
  if (name != last_session) return "kept: hyb chat --session " + name;
  return fmt::format("kept until {} more chats without a name: hyb chat --continue", last_sessions);
}

Saving Chat::saving() const {
  return {.conversation = conversation_, .tokens = [this] { return branch_tokens(); }};
}

/// Returns the tokens that the next prompt begins with, and those of two turns before.
BranchTokens Chat::branch_tokens() const {
  const std::int32_t here = conversation_.here();
  if (here == 0) return {};
  BranchTokens tokens{.sequence = prompts_.stable_prefix(conversation_, here)};
  if (tokens.sequence.empty()) {  // a template that says nothing of it
    tokens.sequence = prompts_.prompt_of(conversation_, here).tokens;
    const std::vector<TokenId>& ids = conversation_.turn(here).exchange.answer.tokens;
    tokens.sequence.insert(tokens.sequence.end(), ids.begin(), ids.end());
  }
  const auto shared = [&](std::int32_t turn) {
    return turn == 0 ? 0
                     : common_prefix(tokens.sequence, prompts_.stable_prefix(conversation_, turn));
  };
  tokens.before = shared(conversation_.before(1));
  tokens.before_min = shared(conversation_.before(2)) + 1;
  return tokens;
}

void Chat::save(const std::string& name) {
  if (name.ends_with(".md")) {
    const std::filesystem::path file = typed_path(name);
    std::error_code failed;  // then writing fails, too, and says why
    const bool is_there = std::filesystem::exists(file, failed);
    write_transcript(conversation_, file);
    return notice(fmt::format("what was said is in {}{}", file.string(),
                              is_there ? ", in place of the chat that was there" : ""));
  }
  if (name.ends_with(".txt") || name.ends_with(".json")) {
    throw Error(ErrorKind::usage,
                fmt::format("/save: {} is the name of a text; what was said is written to a file "
                            "that ends in .md, and a chat is saved under a name without an ending",
                            name));
  }
  const std::string chosen = keeper_->save(saving(), name);
  notice(fmt::format("saved as {}; --session {} continues it", chosen, chosen));
}

/// Copies by OSC 52, which terminals pass on or not, also from another machine.
void Chat::copy() const {
  const std::int32_t here = conversation_.here();
  if (here == 0) throw Error(ErrorKind::usage, "/copy: nothing has been said yet");
  if (!config_.is_interactive) throw Error(ErrorKind::usage, "/copy: needs a terminal");
  const Exchange& exchange = conversation_.turn(here).exchange;
  const std::string text = split_answer(exchange.answer_text,
                                        {.may_think = true,
                                         .opening = exchange.opening,
                                         .markers = thought_markers_of(session_->need_tokenizer())})
                               .content;
  if (text.empty()) throw Error(ErrorKind::usage, "/copy: the last answer is empty");
  write_stderr_as_is("\x1b]52;c;" + base64(text) + "\a");
  notice(fmt::format("the answer was sent to the terminal, for its clipboard: {}",
                     bytes_text(text.size())));
}

void Chat::load(const std::string& name) {
  if (name.empty()) throw Error(ErrorKind::usage, "/load: which one? /sessions lists them");
  close();
  go_on_with(keeper_->load(name));
}

void Chat::notice(std::string_view text) const {
  if (!config_.is_interactive || !log::is_shown(log::Level::info)) return;
  const std::string line = fitted_to(Stream::error, sanitized(text));
  write_stderr_as_is(config_.has_colour ? "\x1b[2m" + line + "\x1b[m\n" : line + '\n');
}

Chat::Next Chat::take(const Entry& entry) {
  if (!entry.is_literal && is_slash_command(entry.text)) {
    drop_draft();
    return execute(parse_slash_command(entry.text));
  }
  const bool is_escaped = !entry.is_literal && entry.text.starts_with("//");
  const std::string message = is_escaped ? entry.text.substr(1) : entry.text;
  if (message.find_first_not_of(" \t\r\n") == std::string::npos) {
    drop_draft();
    return Next::go_on;
  }
  const std::int32_t turns = conversation_.turns();
  const Next next = send(attached_.empty() ? message : attached_ + "\n\n" + message);
  if (conversation_.turns() > turns) attached_.clear();
  return next;
}

Chat::Next Chat::execute(const SlashCommand& command) {
  using Kind = SlashCommand::Kind;
  switch (command.kind) {
    case Kind::help:
      write_stderr(slash_help());
      break;
    case Kind::clear:
      close();
      keeper_->forget_name();
      conversation_.clear();
      attached_.clear();
      last_.reset();
      notice("the conversation is empty");
      break;
    case Kind::system:
      show_system(command.argument);
      break;
    case Kind::think:
      show_think(command.argument);
      break;
    case Kind::set:
      set(command.argument);
      break;
    case Kind::stats:
      totals_.ahead_tokens = ahead_.tokens();
      write_stderr(last_ ? stats_text(*last_, totals_) : "no answer yet\n");
      break;
    case Kind::save:
      save(command.argument);
      break;
    case Kind::copy:
      copy();
      break;
    case Kind::load:
      load(command.argument);
      break;
    case Kind::sessions:
      write_stderr(keeper_->list_text(terminal_columns(Stream::error)));
      break;
    case Kind::read:
      read(command.argument);
      break;
    case Kind::memory:
      write_stderr(memory_text(session_->memory(), session_->engine().usage()) +
                   tier_text(session_->engine().tier()));
      break;
    case Kind::undo:
      notice(undo(conversation_, command.count));
      break;
    case Kind::fork:
      notice(fork(conversation_, command.argument));
      break;
    case Kind::go_to:
      notice(go_to(conversation_, command.argument));
      break;
    case Kind::checkpoints:
      write_stderr(checkpoints());
      break;
    case Kind::edit:
      return edit(command);
    case Kind::regen:
      return regenerate(command.count);
    case Kind::exit:
      return Next::leave;
  }
  return Next::go_on;
}

void Chat::show_system(const std::string& argument) {
  if (!argument.empty()) set_system(argument == "none" ? "" : argument);
  const std::string& system = conversation_.system();
  write_stderr(system.empty() ? "no system prompt\n" : "system: " + system + '\n');
}

void Chat::show_think(const std::string& argument) {
  if (!argument.empty()) {
    const std::optional<Think> think = parse_think(argument);
    if (!think) {
      throw Error(ErrorKind::usage, fmt::format("/think: on, off or default, got '{}'", argument));
    }
    set_think(*think, "/think");
  }
  write_stderr(fmt::format("think: {}\n", name_of(prompts_.think())));
}

void Chat::set(const std::string& argument) {
  const std::size_t end = argument.find_first_of(" \t=");
  const std::string_view name = setting_named(std::string_view(argument).substr(0, end));
  if (name == "think") {
    const std::size_t value = argument.find_first_not_of(" \t=", end);
    return show_think(
        end == std::string::npos || value == std::string::npos ? "" : argument.substr(value));
  }
  write_stderr(settings_.set(argument));
  if (argument.empty()) {
    write_stderr(fmt::format("  {:<20} {}\n", "think", name_of(prompts_.think())));
  }
}

void Chat::read(const std::string& path) {
  constexpr std::size_t bytes_max = std::size_t{16} << 20;
  attached_.clear();
  if (path.empty()) return notice("no file begins the next message");
  std::string text = read_text_file(typed_path(path), bytes_max);
  check_utf8(text, path);
  text.erase(text.find_last_not_of('\n') + 1);
  const auto lines = std::count(text.begin(), text.end(), '\n') + (text.empty() ? 0 : 1);
  notice(fmt::format("{} begins the next message: {}, {}; /read alone drops it", path,
                     counted(lines, "line"), bytes_text(text.size())));
  attached_ = std::move(text);
}

std::vector<std::string> Chat::completions(std::string_view typed) const {
  CompletionNames names = {.sessions = keeper_->names(), .branches = {}};
  for (const auto& branch : conversation_.branches()) names.branches.push_back(branch.first);
  return complete(typed, names);
}

/// Returns all that an answer depends on, with the seed of /set, without what /regen adds to it.
std::string Chat::asked(std::int32_t turn, const std::string& message) {
  return fmt::format("{}\n{}\n{}\n{}\n{}", turn, name_of(prompts_.think()), settings_.set(""),
                     conversation_.system(), message);
}

void Chat::drop_draft() {
  if (draft_.message == 0) return;
  notice(fmt::format("message {} stays as it is", draft_.message));
  draft_ = {};
}

/// The turn that the next message follows: where a message is replaced, or was left without an
/// answer, the one before it.
std::int32_t Chat::answered_turn() const {
  if (draft_.message == 0) {
    const std::int32_t here = conversation_.here();
    const bool is_open = here != 0 && is_unanswered(conversation_.turn(here).exchange);
    return is_open ? conversation_.turn(here).parent : here;
  }
  const auto path = conversation_.path(conversation_.here());
  return conversation_.turn(path[static_cast<std::size_t>(draft_.message - 1)]).parent;
}

Chat::Next Chat::send(const std::string& message) {
  const std::int32_t turn = answered_turn();
  draft_ = {};
  return send_after(turn, message, 0);
}

Chat::Next Chat::edit(const SlashCommand& command) {
  const auto path = conversation_.path(conversation_.here());
  const auto messages = static_cast<std::int32_t>(path.size());
  if (messages == 0) throw Error(ErrorKind::usage, "/edit: nothing has been said yet");
  const std::int32_t number = command.count == 0 ? messages : command.count;
  if (number > messages) {
    throw Error(ErrorKind::usage,
                fmt::format("/edit: there is no message {}, the last one is {}", number, messages));
  }
  const auto& [parent, exchange] = conversation_.turn(path[static_cast<std::size_t>(number - 1)]);
  if (!command.argument.empty()) return send_after(parent, command.argument, 0);
  if (!config_.has_editor) {
    throw Error(ErrorKind::usage,
                fmt::format("/edit: the new text is missing: /edit {} TEXT", number));
  }
  const bool has_slash = exchange.message.starts_with('/');
  draft_ = {.message = number,
            .text = as_entry(has_slash ? "/" + exchange.message : exchange.message)};
  return Next::go_on;
}

Chat::Next Chat::regenerate(std::int32_t count) {
  const auto path = conversation_.path(conversation_.here());
  if (path.empty()) throw Error(ErrorKind::usage, "/regen: nothing has been said yet");
  check_back("/regen", count, static_cast<std::int32_t>(path.size()));
  const auto& [parent, exchange] =
      conversation_.turn(path[path.size() - static_cast<std::size_t>(count)]);
  const std::string message = exchange.message;  // the tree grows under it
  const bool is_greedy =
      sampling_of(settings_.options(), session_->generation_config()).temperature == 0.0F;
  if (is_greedy && last_ && !last_->was_stopped && last_asked_ == asked(parent, message)) {
    throw Error(ErrorKind::usage,
                "/regen: at temperature 0 the answer would be the same, whatever the seed; /set "
                "temperature 0.8 lets it vary");
  }
  return send_after(parent, message, ++seed_shift_);
}

Chat::Next Chat::send_after(std::int32_t turn, const std::string& message,
                            std::uint64_t seed_shift) {
  check_utf8(message, "the message");
  const std::int32_t here = conversation_.here(), turns = conversation_.turns();
  try {
    conversation_.go_to(turn);
    const Answer given = answer(message, seed_shift);
    last_asked_ = asked(turn, message);
    if (conversation_.turns() == turns) conversation_.go_to(here);
    return given.stdout_is_closed ? Next::leave : Next::go_on;
  } catch (...) {
    if (conversation_.turns() == turns) conversation_.go_to(here);
    throw;
  }
}

EncodedPrompt Chat::prompt_for(const std::string& message) const {
  EncodedPrompt prompt = prompts_.prompt(conversation_, conversation_.here(), message);
  const std::int32_t prompt_max = session_->engine().length_max() - 1;
  const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
  if (tokens > prompt_max) {
    throw Error(ErrorKind::usage,
                fmt::format("with this message the conversation has {} tokens, {} more than the "
                            "limit of {}; the message was not added: /undo [N] takes earlier ones "
                            "back, /clear forgets all, a larger --context or --memory holds more",
                            tokens, tokens - prompt_max, prompt_max));
  }
  return prompt;
}

Answer Chat::answer(const std::string& message, std::uint64_t seed_shift) {
  Request request = session_->request(settings_.options());
  EncodedPrompt prompt = prompt_for(message);
  set_start(request, prompt.start);
  const std::string unbound = bind_calls(request, prompt.start.calls, &session_->rules());
  if (!unbound.empty()) log::warning(unbound);
  request.prompt = std::move(prompt.tokens);
  request.message_ends = std::move(prompt.message_ends);
  // For /regen, which then runs the last token alone.
  const auto last = static_cast<std::int32_t>(request.prompt.size()) - 1;
  if (last > (request.message_ends.empty() ? 0 : request.message_ends.back())) {
    request.message_ends.push_back(last);
  }
  request.sampling.seed += seed_shift;
  AnswerView view = config_.view;
  view.start = prompt.start;
  view.heard = [this](std::string_view text) { keeper_->add_answer(text); };
  keeper_->begin_turn(saving(), {.message = message,
                                 .answer_text = {},
                                 .was_interrupted = true,
                                 .opening = prompt.start.opening,
                                 .think = prompts_.think()});
  Answer given = stream_answer(session_->engine(), std::move(request), view);
  const bool has_failed = given.completion.reason == FinishReason::error;
  given.was_stopped = given.was_stopped || has_failed;  // what there is of it stays
  keep(message, prompt.start, given);
  if (has_failed) {
    throw Error(ErrorKind::runtime, "the answer broke off: " + given.completion.error +
                                        "; the message is kept, /regen answers it again");
  }
  comment(given);
  return given;
}

void Chat::keep(const std::string& message, const AnswerStart& start, const Answer& given) {
  const Completion& completion = given.completion;
  Exchange exchange{
      .message = message,
      .answer = own_turn(completion, session_->stop_tokens(), session_->need_tokenizer()),
      .answer_text = completion.text,
      .was_interrupted = given.was_stopped,
      .tokens = completion.usage.prompt_tokens + completion.usage.completion_tokens,
      .opening = start.opening,
      .think = prompts_.think()};
  if (prompts_.mode() == HistoryMode::preserve) {
    exchange.lead = prompts_.lead(conversation_, conversation_.here(), message);
  }
  conversation_.add(std::move(exchange));
  totals_.add(completion.usage);
  last_ = given;
  keeper_->autosave(saving());
}

std::function<bool()> Chat::prefill_work() {
  if (!session_->engine().prefixes().options().enabled) return {};
  ahead_.begin([this] { return prompts_.stable_prefix(conversation_, answered_turn()); });
  return [this] { return ahead_.work(); };
}

void Chat::stop_prefill() { ahead_.end(); }

std::string Chat::checkpoints() const {
  const PrefixCache& prefixes = session_->engine().prefixes();
  const auto resumable = [&](std::int32_t turn) {
    std::vector<TokenId> tokens = prompts_.stable_prefix(conversation_, turn);
    tokens.push_back(TokenId{0});  // the last token of a prompt is never resumed
    return prefixes.look_up(tokens).resumable;
  };
  return checkpoints_text(conversation_, resumable, config_.utf8);
}

void Chat::comment(const Answer& answer) const {
  const Completion& completion = answer.completion;
  const auto length_max = session_->engine().length_max();
  const auto asked = settings_.options().max_tokens;
  if (answer.was_stopped && completion.tokens.empty()) {
    notice("stopped before the answer began; /regen answers it");
  } else {
    notice(status_line(answer, length_max, config_.utf8));
  }
  if (completion.reason == FinishReason::length) {
    notice(asked && completion.usage.completion_tokens >= *asked
               ? fmt::format("the answer was cut at max_tokens = {}", *asked)
               : fmt::format("the conversation has reached its limit of {} tokens; /undo or /clear "
                             "makes room",
                             length_max));
  }
  if (config_.is_interactive) write_stderr("\n");  // between turns, quiet or not
}

}  // namespace hyb::app
