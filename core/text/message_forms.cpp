#include "core/text/message_forms.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb {
namespace {

// In no template by chance.
constexpr const char* odd_word = "qzxvj";
constexpr const char* second_odd_word = "qzxvk";
constexpr const char* odd_key = "qzxvl";
constexpr const char* tool_name = "lookup";

Json said(const std::string& role, Json content) {
  return {{"role", role}, {"content", std::move(content)}};
}

/// A call whose arguments are found in both places where templates look for them; `content`:
/// nothing leaves it out.
Json calling_message(const Json& arguments, const std::optional<Json>& content = "") {
  Json call = {{"id", "call00001"}, {"type", "function"}};  // some want nine characters
  call["name"] = tool_name;
  call["arguments"] = arguments;
  call["function"] = {{"name", tool_name}, {"arguments", arguments}};
  Json message = {{"role", "assistant"}};
  if (content) message["content"] = *content;
  message["tool_calls"] = Json::array({std::move(call)});
  return message;
}

Json tool_message(Json content) {
  Json message = said("tool", std::move(content));
  message["tool_call_id"] = "call00001";
  message["name"] = tool_name;
  return message;
}

/// A conversation in which a message of `role` has this content.
Json conversation(const std::string& role, Json content) {
  Json messages = Json::array();
  if (role == "tool") {
    messages.push_back(said("user", "Hello"));
    messages.push_back(calling_message(Json::object()));
    messages.push_back(tool_message(std::move(content)));
    return messages;
  }
  if (role == "assistant") messages.push_back(said("user", "Hello"));
  messages.push_back(said(role, std::move(content)));
  if (role != "user") messages.push_back(said("user", "Hello"));
  return messages;
}

bool shows(const std::optional<std::string>& text, std::string_view word) {
  return text && text->find(word) != std::string::npos;
}

/// Makes a part with a member of its own: where that shows, the list was printed, not read.
Json odd_part(const char* word) {
  Json part = {{"type", "text"}, {"text", word}};
  part[odd_key] = 1;
  return part;
}

bool shows_list(const MessageForms::Trial& trial, const std::string& role) {
  const auto text =
      trial(conversation(role, Json::array({odd_part(odd_word), odd_part(second_odd_word)})));
  return shows(text, odd_word) && shows(text, second_odd_word) && !shows(text, odd_key);
}

/// Renders a call with these arguments, and its result.
std::optional<std::string> text_of_call(const MessageForms::Trial& trial, const Json& arguments,
                                        const std::optional<Json>& content) {
  return trial(Json::array(
      {said("user", "Hello"), calling_message(arguments, content), tool_message("Done.")}));
}

bool shows_thought(const MessageForms::Trial& trial, const char* member) {
  Json answer = said("assistant", "Hello.");
  answer[member] = odd_word;
  Json call = calling_message(Json::object());
  call[member] = odd_word;
  return shows(trial(Json::array({said("user", "Hello"), answer})), odd_word) ||
         shows(trial(Json::array({said("user", "Hello"), call, tool_message("Done.")})), odd_word);
}

/// The object in `text`; null if there is none.
Json object_in(const std::string& text) {
  const std::string_view inner = trim(text);
  if (inner.empty()) return Json::object();
  if (!inner.starts_with('{')) return nullptr;
  try {
    return parse_json(inner, "arguments");
  } catch (const Error&) {
    return nullptr;  // what a model wrote and nothing can read is passed on as it is
  }
}

std::string type_of_part(const Json& part) {
  const auto type = part.find("type");
  if (type == part.end()) return "without a type";
  return "of type " + to_text(*type).substr(0, 60);
}

const std::string& text_of_part(const Json& part, std::size_t message) {
  const auto place = "messages: item " + std::to_string(message);
  if (!part.is_object()) {
    throw Error(ErrorKind::usage, place + ": a part of its content is not an object");
  }
  const auto type = part.find("type");
  const auto text = part.find("text");
  const bool is_text = text != part.end() && text->is_string();
  if (type == part.end() ? is_text : *type == "text" && is_text) {
    return text->get_ref<const std::string&>();
  }
  if (type != part.end() && *type == "text") {
    throw Error(ErrorKind::usage, place + ": a text part of its content has no text");
  }
  throw Error(ErrorKind::usage, place + ": a part of its content is " + type_of_part(part) +
                                    "; only text is supported");
}

std::string joined_parts(const Json& parts, std::size_t message) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += '\n';
    text += text_of_part(parts[i], message);
  }
  return text;
}

/// `reasoning`, for templates that read it by that name alone.
void add_reasoning(Json& message) {
  if (message.contains("reasoning")) return;
  for (const char* name : {"reasoning_content", "thinking"}) {
    if (const auto found = message.find(name); found != message.end()) {
      Json thought = *found;
      message["reasoning"] = std::move(thought);
      return;
    }
  }
}

Json without_nulls(const Json& message, bool keeps_content) {
  Json kept = Json::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null() || (keeps_content && key == "content")) kept[key] = value;
  }
  return kept;
}

}  // namespace

MessageForms::MessageForms(const Trial& trial) {
  for (const char* role : {"system", "developer", "user", "assistant", "tool"}) {
    if (!shows_list(trial, role)) continue;
    const bool shows_text = shows(trial(conversation(role, odd_word)), odd_word);
    content_[role] = shows_text ? Content::any : Content::list;
  }
  const Json arguments = {{odd_word, second_odd_word}};
  const std::string written = std::string("{\"") + odd_word + "\": \"" + second_odd_word + "\"}";
  const Json null = nullptr;
  const auto shows_call = [&](const std::optional<Json>& content) {
    return shows(text_of_call(trial, written, content), tool_name) ||
           shows(text_of_call(trial, arguments, content), tool_name);
  };
  keeps_null_content_ = !shows_call(std::nullopt) && shows_call(null);
  const Json content = keeps_null_content_ ? null : Json("");
  const auto text = text_of_call(trial, written, content);
  const auto object = text_of_call(trial, arguments, content);
  shows_text_arguments_ = shows(text, written);
  shows_object_arguments_ =
      shows(object, odd_word) && shows(object, second_odd_word) &&
      !shows(object, std::string("'") + odd_word + "': ");  // as Python prints it
  call_form_ = call_form_in(text.value_or(""), tool_name);
  if (call_form_ == nullptr) {  // a text may be shown in the braces of another form
    call_form_ = call_form_in(object.value_or(""), tool_name);
    if (call_form_ != nullptr) shows_text_arguments_ = false;
  }
  reads_reasoning_ =
      !shows_thought(trial, "reasoning_content") && shows_thought(trial, "reasoning");
}

void MessageForms::fit_arguments(Json& arguments) const {
  if (arguments.is_string() && !shows_text_arguments_) {
    Json object = object_in(arguments.get_ref<const std::string&>());
    if (object.is_object()) arguments = std::move(object);
  } else if (arguments.is_object() && shows_text_arguments_ && !shows_object_arguments_) {
    arguments = to_text(arguments);
  }
}

/// {"function": {"name", "arguments"}}, or {"name", "arguments"}.
void MessageForms::fit_call(Json& call) const {
  if (!call.is_object()) return;
  if (const auto found = call.find("function"); found != call.end()) fit_call(*found);
  if (const auto found = call.find("arguments"); found != call.end()) fit_arguments(*found);
}

void MessageForms::fit_calls(Json& calls) const {
  if (!calls.is_array()) return;
  for (Json& call : calls) fit_call(call);
}

void MessageForms::fit_content(Json& content, std::string_view role, std::size_t number) const {
  const auto found = content_.find(role);
  const Content form = found == content_.end() ? Content::text : found->second;
  if (content.is_array()) {
    std::string text = joined_parts(content, number);
    if (form == Content::text) content = std::move(text);
  } else if (content.is_string() && form == Content::list) {
    Json part = {{"type", "text"}, {"text", content}};
    content = Json::array({std::move(part)});
  }
}

Json MessageForms::fitted(const Json& messages) const {
  if (!messages.is_array()) return messages;
  Json all = Json::array();
  for (const Json& message : messages) {
    const bool keeps_content = keeps_null_content_ && message.contains("tool_calls");
    all.push_back(message.is_object() ? without_nulls(message, keeps_content) : message);
    Json& made = all.back();
    if (!made.is_object()) continue;
    const auto role = made.find("role");
    const bool has_role = role != made.end() && role->is_string();
    if (const auto content = made.find("content"); content != made.end()) {
      fit_content(*content, has_role ? role->get_ref<const std::string&>() : "", all.size() - 1);
    }
    if (const auto calls = made.find("tool_calls"); calls != made.end()) fit_calls(*calls);
    if (const auto call = made.find("function_call"); call != made.end()) fit_call(*call);
    if (reads_reasoning_) add_reasoning(made);
  }
  return all;
}

}  // namespace hyb
