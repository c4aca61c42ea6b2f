#include "app/batch/request_maker.h"

#include <fmt/format.h>

#include "app/batch/body_fields.h"
#include "app/ui/sanitizer.h"
#include "core/base/error.h"

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

void check_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty()) refuse("messages: is a list of at least one");
  for (const Json& message : messages) {
    const auto role = message.is_object() ? message.find("role") : message.end();
    if (!message.is_object() || role == message.end() || !role->is_string()) {
      refuse("messages: each is an object with a role");
    }
  }
}

}  // namespace

MadeRequest RequestMaker::make(const RequestLine& line) {
  look_at_fields(line.body);
  Request request = terms_.defaults;
  apply_body(line.body, request);
  EncodedPrompt prompt = encode(line);
  const auto length = prompt.tokens.size();
  request.prompt = std::move(prompt.tokens);
  fit_prompt(request.prompt, terms_.limits.length_max - 1, terms_.truncate);
  if (request.prompt.size() == length) request.message_ends = std::move(prompt.message_ends);
  check(request, terms_.limits);
  return {.request = std::move(request), .start = std::move(prompt.start)};
}

EncodedPrompt RequestMaker::encode(const RequestLine& line) const {
  const Json& prompt =
      line.form == RequestForm::messages ? line.body["messages"] : line.body["prompt"];
  const bool is_raw =
      line.form == RequestForm::completion || (line.form == RequestForm::prompt && terms_.raw);
  if (is_raw && prompt.is_array()) return {.tokens = ids_of(prompt, terms_.limits)};
  Json messages = Json::array();
  if (line.form == RequestForm::messages) {
    check_messages(prompt);
    messages = prompt;
  } else {
    if (!prompt.is_string()) refuse("prompt: is a text");
    const auto& text = prompt.get_ref<const std::string&>();
    if (text.empty()) refuse("prompt: is empty");
    if (is_raw) return {.tokens = encode_raw(tokenizer_, text, false)};
    if (!terms_.system.empty()) {
      messages.push_back({{"role", "system"}, {"content", terms_.system}});
    }
    messages.push_back({{"role", "user"}, {"content", text}});
  }
  if (chat_template_ == nullptr) {
    refuse(line.form == RequestForm::messages
               ? "messages: the model has no chat template to take them; it continues a prompt "
                 "(--raw, or a body of /v1/completions)"
               : "the model has no chat template; --raw continues prompts without one");
  }
  Json variables = template_variables(line.body);  // chat_template_kwargs win over all others
  variables.update(think_variables(terms_.think));
  return encode_chat(*chat_template_, tokenizer_,
                     {.messages = messages, .variables = std::move(variables)});
}

void RequestMaker::look_at_fields(const Json& body) {
  for (const std::string& field : unknown_fields(body)) {
    const std::string name = Json(field).dump(-1, ' ', true);
    if (terms_.strict) refuse(name + ": is no field that hyb knows (--strict)");
    warn("field " + name + " means nothing to hyb and is ignored");
  }
  const auto model = body.find("model");
  if (model != body.end() && model->is_string() && *model != terms_.model) {
    warn(fmt::format("lines ask for the model {}; {} answers them", model->dump(-1, ' ', true),
                     terms_.model));
  }
}

void RequestMaker::warn(const std::string& text) {
  if (warned_.size() >= warnings_max || !warned_.insert(text).second) return;
  warnings_.push_back(text);
}

std::vector<std::string> RequestMaker::take_warnings() { return std::exchange(warnings_, {}); }

}  // namespace hyb::app
