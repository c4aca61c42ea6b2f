#include "app/request/request_body.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "app/request/body_fields.h"
#include "app/request/tools.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/sampling.h"
#include "core/base/strings.h"
#include "core/text/unicode.h"

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
      refuse(field, "is -1 or " + ranges::max_tokens.text(), *value);
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

}  // namespace

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

/// True for tool_choice "none". As in vLLM, the prompt keeps the tools, so that it begins as
/// before.
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
  std::error_code ignored;
  if (std::filesystem::equivalent(asked->get<std::string>(), model, ignored)) return std::nullopt;
  return asked->dump(-1, ' ', true);
}

}  // namespace hyb::app
