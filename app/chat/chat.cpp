#include "app/chat/chat.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/ui/process.h"
#include "app/ui/sanitizer.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

[[noreturn]] void refuse_without_template(const std::string& name) {
  throw Error(ErrorKind::model,
              fmt::format("{}: the model has no chat template, so there is no telling how it wants "
                          "to be talked to; use: hyb run {} --raw -p TEXT",
                          name, name));
}

const ChatTemplate& need_template(const Session& session) {
  if (session.chat_template() == nullptr) refuse_without_template(session.source().name());
  return *session.chat_template();
}

}  // namespace

void need_chat_template(const ModelSource& source) {
  if (!source.chat_template("default")) refuse_without_template(source.name());
}

Chat::Chat(Session& session, const GenerationOptions& options, const ChatManners& manners)
    : session_(&session),
      manners_(manners),
      settings_(options, session.generation_config(), session.model().plan.vocab) {
  session.need_tokenizer();
  need_template(session);
}

void Chat::set_system(const std::string& text) {
  check_utf8(text, "the system prompt");
  conversation_.set_system(text);
}

void Chat::notice(std::string_view text) const {
  if (!manners_.has_person) return;
  const std::string line = sanitized(text);
  write_stderr(manners_.has_colour ? "\x1b[2m" + line + "\x1b[m\n" : line + '\n');
}

Chat::Next Chat::take(const Entry& entry) {
  if (!entry.is_literal && is_slash_command(entry.text)) {
    return carry_out(parse_slash_command(entry.text));
  }
  const bool is_escaped = !entry.is_literal && entry.text.starts_with("//");
  const std::string message = is_escaped ? entry.text.substr(1) : entry.text;
  if (message.find_first_not_of(" \t\r\n") == std::string::npos) return Next::go_on;
  return say(message);
}

Chat::Next Chat::carry_out(const SlashCommand& command) {
  using Kind = SlashCommand::Kind;
  switch (command.kind) {
    case Kind::help:
      write_stderr(slash_help());
      break;
    case Kind::clear:
      conversation_.clear();
      last_.reset();
      notice("the conversation is empty");
      break;
    case Kind::system:
      show_system(command.argument);
      break;
    case Kind::set:
      write_stderr(sanitized(settings_.set(command.argument)));
      break;
    case Kind::stats:
      write_stderr(last_ ? stats_text(*last_, totals_) : "no answer yet\n");
      break;
    case Kind::undo:
      undo(command.count);
      break;
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
  write_stderr(system.empty() ? "no system prompt\n" : "system: " + sanitized(system) + '\n');
}

void Chat::undo(std::int32_t count) {
  const auto dropped = conversation_.take_last(static_cast<std::size_t>(count));
  if (dropped.empty()) throw Error(ErrorKind::usage, "/undo: nothing has been said yet");
  notice(fmt::format("took back {} of {} messages, from: {}", dropped.size(),
                     dropped.size() + conversation_.exchanges().size(),
                     sanitized_line(dropped.front().message).substr(0, 60)));
}

Chat::Next Chat::say(const std::string& message) {
  check_utf8(message, "the message");
  const Answer given = answer(message, 0);
  return given.reader_is_gone ? Next::leave : Next::go_on;
}

Chat::Next Chat::regenerate(std::int32_t count) {
  auto taken = conversation_.take_last(static_cast<std::size_t>(count));
  if (taken.empty()) throw Error(ErrorKind::usage, "/regen: nothing has been said yet");
  const std::size_t before = conversation_.exchanges().size();
  try {
    if (sampling_of(settings_.options(), session_->generation_config()).temperature == 0.0F) {
      notice("greedy answers stay the same whatever the seed; /set temperature 0.8 lets them vary");
    }
    const Answer given = answer(taken.front().message, ++seed_shift_);
    if (conversation_.exchanges().size() == before) conversation_.put_back(std::move(taken));
    return given.reader_is_gone ? Next::leave : Next::go_on;
  } catch (...) {
    conversation_.put_back(std::move(taken));
    throw;
  }
}

std::vector<TokenId> Chat::prompt_for(const std::string& message) const {
  const std::vector<OwnTurn> own_turns = conversation_.own_turns();
  auto prompt = encode_chat(need_template(*session_), session_->need_tokenizer(),
                            {.messages = conversation_.messages(message),
                             .variables = Json::object(),
                             .own_turns = own_turns});
  const std::int32_t prompt_max = session_->engine().length_max() - 1;
  const auto tokens = static_cast<std::int64_t>(prompt.size());
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
  request.prompt = prompt_for(message);
  request.sampling.seed += seed_shift;
  const Answer given = stream_answer(session_->engine(), std::move(request), manners_.sanitizes);
  const Completion& completion = given.completion;
  if (completion.reason == FinishReason::error) {
    throw Error(ErrorKind::runtime, "the answer broke off: " + completion.error);
  }
  // Before its first token a stopped answer is none.
  if (!given.was_stopped || !completion.tokens.empty()) {
    conversation_.add(
        {.message = message,
         .answer = own_turn(completion, session_->stop_tokens(), session_->need_tokenizer()),
         .answer_text = completion.text,
         .was_interrupted = given.was_stopped});
    totals_.add(completion.usage);
    last_ = given;
  }
  comment(given);
  return given;
}

void Chat::comment(const Answer& answer) const {
  const Completion& completion = answer.completion;
  if (answer.was_stopped && completion.tokens.empty()) {
    notice("[stopped before the answer began; the message was not added]");
    return;
  }
  notice(status_line(answer, manners_.utf8));
  if (completion.reason != FinishReason::length) return;
  const auto length_max = session_->engine().length_max();
  const auto asked = settings_.options().max_tokens;
  if (asked && completion.usage.completion_tokens >= *asked) {
    notice(fmt::format("[the answer was cut at max_tokens = {}]", *asked));
  } else {
    notice(
        fmt::format("[the conversation has reached its limit of {} tokens; /undo or /clear makes "
                    "room]",
                    length_max));
  }
}

}  // namespace hyb::app
