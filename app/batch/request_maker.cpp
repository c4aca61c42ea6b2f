#include "app/batch/request_maker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "app/batch/body_fields.h"
#include "app/request/answer_rule.h"
#include "app/request/tools.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/sampling.h"
#include "core/base/strings.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

[[noreturn]] void refuse(std::string_view field, const std::string& rule, const Json& value) {
  throw Error(ErrorKind::usage,
              fmt::format("{}: {}, got {}", field, rule, excerpt(to_text(value))));
}

void take(const Json& body, std::string_view field, float& into) {
  const Json* value = member_of(body, field);
  if (value == nullptr) return;
  if (!value->is_number()) refuse(field, "is a number", *value);
  const auto number = value->get<double>();
  if (!(std::abs(number) <= std::numeric_limits<float>::max())) {
    refuse(field, "is a number of ordinary size", *value);
  }
  into = static_cast<float>(number);
}

std::int32_t int32_of(std::string_view field, const Json& value) {
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                        : value.is_number_integer() && value.get<std::int64_t>() >= -most;
  if (!fits) refuse(field, "is a whole number of ordinary size", value);
  return value.get<std::int32_t>();
}

void take(const Json& body, std::string_view field, std::int32_t& into) {
  if (const Json* value = member_of(body, field)) into = int32_of(field, *value);
}

void take(const Json& body, std::string_view field, std::uint64_t& into) {
  const Json* value = member_of(body, field);
  if (value == nullptr) return;
  if (!value->is_number_unsigned()) {
    refuse(field, fmt::format("is a whole number, {}", seed_range_text), *value);
  }
  into = value->get<std::uint64_t>();
}

void take(const Json& body, std::string_view field, bool& into) {
  const Json* value = member_of(body, field);
  if (value == nullptr) return;
  if (!value->is_boolean()) refuse(field, "is true or false", *value);
  into = value->get<bool>();
}

void take_max_tokens(const Json& body, Request& request) {
  for (const char* field : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    const Json* value = member_of(body, field);
    if (value == nullptr) continue;
    request.max_tokens = int32_of(field, *value);
    const bool is_all = request.max_tokens == -1;  // as clients of llama.cpp write it
    if (!is_all && !ranges::max_tokens.has(request.max_tokens)) {
      refuse(field, "is " + ranges::max_tokens.text(), *value);
    }
  }
}

void take_stop(const Json& body, Request& request) {
  const Json* value = member_of(body, "stop");
  if (value == nullptr || (value->is_array() && value->empty())) return;
  request.stop.clear();
  const auto add = [&](const Json& text) {
    if (!text.is_string()) refuse("stop", "is a text or a list of texts", *value);
    request.stop.push_back(text.get<std::string>());
  };
  if (value->is_array()) {
    for (const Json& text : *value) add(text);
  } else {
    add(*value);
  }
}

/// A chat says logprobs: true and top_logprobs: 5, a completion logprobs: 5.
void take_logprobs(const Json& body, SamplingParams& sampling) {
  const Json* asked = member_of(body, "logprobs");
  const Json* top = member_of(body, "top_logprobs");
  if (asked != nullptr && !asked->is_boolean()) {
    sampling.logprobs = int32_of("logprobs", *asked);
    if (!ranges::logprobs.has(sampling.logprobs)) {
      refuse("logprobs", "is true, false or " + ranges::logprobs.text(), *asked);
    }
  } else if (asked != nullptr) {
    sampling.logprobs = asked->get<bool>() ? 0 : -1;
  }
  const bool is_off = asked == nullptr || *asked == false;
  if (top == nullptr || (is_off && *top == 0)) return;
  if (sampling.logprobs < 0) refuse("top_logprobs", "needs logprobs: true", *top);
  sampling.logprobs = int32_of("top_logprobs", *top);
  if (!ranges::logprobs.has(sampling.logprobs)) {
    refuse("top_logprobs", "is " + ranges::logprobs.text(), *top);
  }
}

void take_logit_bias(const Json& body, SamplingParams& sampling) {
  const Json* value = member_of(body, "logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) refuse("logit_bias", "is an object of token id: bias", *value);
  sampling.bias.clear();
  for (const auto& [key, bias] : value->items()) {
    const auto id = parse_number<std::int32_t>(key);
    if (!id) refuse("logit_bias", "has token ids as keys", Json(key));
    float amount = 0.0F;
    take(Json::object({{"logit_bias", bias}}), "logit_bias", amount);
    sampling.bias.push_back({.token = TokenId{*id}, .bias = amount});
  }
}

/// vLLM's: they end the answer also where the model's own do not.
void take_stop_tokens(const Json& body, Request& request) {
  take(body, "ignore_eos", request.ignore_eos);
  const Json* value = member_of(body, "stop_token_ids");
  if (value == nullptr) return;
  if (!value->is_array()) refuse("stop_token_ids", "is a list of token ids", *value);
  if (value->empty()) return;
  if (std::exchange(request.ignore_eos, false)) request.stop_tokens.clear();
  for (const Json& id : *value) {
    request.stop_tokens.push_back(TokenId{int32_of("stop_token_ids", id)});
  }
}

void take_allowed_tokens(const Json& body, Request& request) {
  const Json* value = member_of(body, "allowed_token_ids");
  if (value == nullptr) return;
  const bool is_list = value->is_array() && !value->empty();
  if (!is_list) refuse("allowed_token_ids", "is a list of one token id or more", *value);
  for (const Json& id : *value) {
    request.allowed.push_back(TokenId{int32_of("allowed_token_ids", id)});
  }
}

void check_template_fields(const Json& body) {
  const auto is_object = [](const Json& item) { return item.is_object(); };
  if (const Json* documents = member_of(body, "documents")) {
    const bool is_good = documents->is_array() && std::ranges::all_of(*documents, is_object);
    if (!is_good) refuse("documents", "is a list of objects", *documents);
  }
  if (const Json* tools = member_of(body, "tools")) check_tools(*tools, "tools");
  static_cast<void>(call_schema(body));
  const Json* arguments = member_of(body, "chat_template_kwargs");
  if (arguments != nullptr && !arguments->is_object()) {
    refuse("chat_template_kwargs", "is an object", *arguments);
  }
}

/// What the body says of thinking: enable_thinking or thinking, as true or false, or as other APIs
/// write it, as {"type": "enabled"}.
Think think_of(const Json& body) {
  Think think;
  for (const char* field : {"enable_thinking", "thinking"}) {
    const Json* value = member_of(body, field);
    if (value == nullptr) continue;
    const bool is_on = *value == true || *value == Json{{"type", "enabled"}};
    if (!is_on && *value != false && *value != Json{{"type", "disabled"}}) {
      refuse(field, R"(is true, false, {"type":"enabled"} or {"type":"disabled"})", *value);
    }
    if (think.value_or(is_on) != is_on) refuse(field, "contradicts enable_thinking", *value);
    think = is_on;
  }
  return think;
}

}  // namespace

void apply_body(const Json& body, Request& request) {
  check_fields(body);
  check_template_fields(body);
  static_cast<void>(think_of(body));
  SamplingParams& sampling = request.sampling;
  take_max_tokens(body, request);
  for (const Parameter& parameter : sampling_parameters) {
    std::visit([&](auto member) { take(body, parameter.name, sampling.*member); },
               parameter.member);
  }
  take_stop(body, request);
  take_logprobs(body, sampling);
  take_logit_bias(body, sampling);
  take(body, "n", request.choices);
  take(body, "min_tokens", request.min_tokens);
  take_stop_tokens(body, request);
  take_allowed_tokens(body, request);
}

Json template_variables(const Json& body) {
  Json variables = Json::object();
  for (const char* field : {"tools", "documents", "chat_template_kwargs", "reasoning_effort",
                            "add_generation_prompt", "continue_final_message"}) {
    if (const Json* value = member_of(body, field)) variables[field] = *value;
  }
  return variables;
}

namespace {

/// As in vLLM the tools are in the prompt all the same, which so begins as that of other turns.
bool calls_nothing(const Json& body) {
  const Json* choice = member_of(body, "tool_choice");
  return choice != nullptr && *choice == "none";
}

void check_is_read(const Json& body, const Json& variables, const ChatTemplate& chat_template) {
  for (const char* field : {"tools", "documents", "reasoning_effort"}) {
    const auto found = variables.find(field);
    if (found == variables.end() || found->empty() || chat_template.reads(field)) continue;
    if (field == std::string_view("tools") && calls_nothing(body)) continue;
    refuse(field, "the model's chat template does not read it, so it would change nothing", *found);
  }
  if (!think_of(body) || chat_template.reads("enable_thinking") ||
      chat_template.reads("thinking")) {
    return;
  }
  const char* field = member_of(body, "thinking") == nullptr ? "enable_thinking" : "thinking";
  refuse(field, "the model's chat template reads neither enable_thinking nor thinking",
         body[field]);
}

}  // namespace

ChatPrompt chat_prompt(const Json& body, Json messages, Think think,
                       const ChatTemplate& chat_template) {
  Json variables = template_variables(body);  // chat_template_kwargs win over all others
  check_is_read(body, variables, chat_template);
  if (const Think own = think_of(body)) think = own;
  variables.update(think_variables(think));
  const Json* tools = calls_nothing(body) ? nullptr : member_of(body, "tools");
  return {.messages = std::move(messages),
          .variables = std::move(variables),
          .tools = tools != nullptr ? *tools : Json(),
          .is_bound = call_schema(body).has_value()};
}

std::vector<std::string> unread_arguments(const Json& body, const ChatTemplate& chat_template) {
  std::vector<std::string> unread;
  const Json* arguments = member_of(body, "chat_template_kwargs");
  if (arguments == nullptr || !arguments->is_object()) return unread;
  for (const auto& [name, value] : arguments->items()) {
    if (chat_template.reads(name)) continue;
    unread.push_back("chat_template_kwargs: the model's chat template does not read " +
                     quote_name(name));
  }
  return unread;
}

std::optional<std::string> other_model(const Json& body, std::string_view model) {
  const auto asked = body.find("model");
  if (asked == body.end() || !asked->is_string() || *asked == model) return std::nullopt;
  return asked->dump(-1, ' ', true);
}

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
