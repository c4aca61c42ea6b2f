#include "app/batch/request_maker.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "app/request/answer_rule.h"
#include "app/request/messages.h"
#include "app/request/request_body.h"
#include "app/request/thoughts.h"
#include "app/request/tools.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

constexpr std::size_t warnings_max = 20;

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorKind::usage, text); }

std::vector<TokenId> ids_of(const Json& list, const RequestLimits& limits) {
  std::vector<TokenId> tokens;
  for (const Json& id : list) {
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() >= static_cast<std::uint64_t>(limits.vocab)) {
      refuse("prompt: is one text, or a list of token ids of this model");
    }
    tokens.push_back(TokenId{id.get<std::int32_t>()});
  }
  return tokens;
}

/// A text that is continued as it is has no chat template to obey them.
void refuse_chat_fields(const Json& body) {
  Json fields = template_variables(body);
  if (think_of(body)) fields["enable_thinking"] = true;
  for (const auto& [field, value] : fields.items()) {
    const bool asks_nothing = value.empty() || value == false;
    if (!asks_nothing) refuse(field + ": is for chats, and this text is continued as it is");
  }
}

}  // namespace

MadeRequest RequestMaker::make(RequestLine line) {
  for (const std::string& field : terms_.ignored) line.body.erase(field);
  warn_of(line);
  const bool is_chat =
      line.form == RequestForm::messages || (line.form == RequestForm::prompt && !terms_.raw);
  if (is_chat) add_tools(line.body, terms_.tools);
  Request request = terms_.defaults;
  apply_body(line.body, request);
  if (const std::optional<AnswerRule> rule = rule_of(line.body)) {
    if (rules_ == nullptr) refuse(rule->source + ": answers are not bound here");
    request.rule = rules_->get(*rule);
  }
  EncodedPrompt prompt = encode(line);
  set_start(request, prompt.start);
  if (const auto text = bind_calls(request, prompt.start.calls, rules_); !text.empty()) warn(text);
  const auto length = prompt.tokens.size();
  request.prompt = std::move(prompt.tokens);
  fit_prompt(request.prompt, terms_.limits.length_max - 1, terms_.truncate);
  if (request.prompt.size() == length) request.message_ends = std::move(prompt.message_ends);
  check(request, terms_.limits);
  return {.request = std::move(request), .start = std::move(prompt.start)};
}

std::vector<TokenId> RequestMaker::encode_text(const std::string& text) {
  std::vector<TokenId> tokens = encode_raw(tokenizer_, text, terms_.allow_special);
  if (!terms_.allow_special && !warned_.contains(plain_tokens_warning)) {
    if (spells_added_tokens(tokenizer_, text, tokens)) warn(plain_tokens_warning);
  }
  return tokens;
}

EncodedPrompt RequestMaker::encode(const RequestLine& line) {
  const Json& prompt =
      line.form == RequestForm::messages ? line.body["messages"] : line.body["prompt"];
  const bool is_raw =
      line.form == RequestForm::completion || (line.form == RequestForm::prompt && terms_.raw);
  if (is_raw) refuse_chat_fields(line.body);
  if (is_raw && prompt.is_array()) return {.tokens = ids_of(prompt, terms_.limits)};
  Json messages = Json::array();
  if (line.form == RequestForm::messages) {
    check_messages(prompt);
    messages = prompt;
  } else {
    if (!prompt.is_string()) refuse("prompt: is a text");
    const auto& text = prompt.get_ref<const std::string&>();
    if (text.empty()) refuse("prompt: is empty");
    if (is_raw) return {.tokens = encode_text(text)};
    if (!terms_.system.empty()) {
      messages.push_back({{"role", "system"}, {"content", terms_.system}});
    }
    messages.push_back({{"role", "user"}, {"content", text}});
  }
  if (chat_template_ == nullptr) {
    refuse(
        line.form == RequestForm::messages
            ? "messages: the model has no chat template to take them; it continues a prompt "
              "(--raw, or a body of /v1/completions); --chat-template FILE gives it one"
            : "the model has no chat template; --chat-template FILE gives it one, --raw continues "
              "prompts without one");
  }
  for (const std::string& text : unread_arguments(line.body, *chat_template_)) warn(text);
  return encode_chat(*chat_template_, tokenizer_,
                     chat_prompt(line.body, std::move(messages), terms_.think, *chat_template_));
}

void RequestMaker::warn_of(const RequestLine& line) {
  if (const auto other = other_model(line.body, terms_.model)) {
    warn(fmt::format("lines ask for the model {}; {} answers them", *other, terms_.model));
  }
  for (const std::string& name : line.columns) {
    if (std::ranges::find(terms_.ignored, name) != terms_.ignored.end()) continue;
    warn(fmt::format("{}: is no parameter, so lines are answered without it", excerpt(name)));
  }
}

void RequestMaker::warn(const std::string& text) {
  if (warned_.size() >= warnings_max || !warned_.insert(text).second) return;
  warnings_.push_back(text);
}

std::vector<std::string> RequestMaker::take_warnings() { return std::exchange(warnings_, {}); }

}  // namespace hyb::app
