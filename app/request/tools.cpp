#include "app/request/tools.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/request/text_input.h"
#include "core/base/error.h"
#include "core/text/answer_scanner.h"
#include "core/text/unicode.h"

namespace hyb::app {

void check_tools(const Json& tools, const std::string& place) {
  const auto refuse = [&](const std::string& text) {
    throw Error(ErrorKind::usage, place + ": " + text);
  };
  if (!tools.is_array()) refuse("is a list of tools, as in OpenAI's API");
  std::set<Json> names;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const auto demand = [&](bool holds, const char* text) {
      if (!holds) refuse(fmt::format("item {}: {}", i, text));
    };
    const Json* function = member_of(tools[i], "function");
    demand(function != nullptr && function->is_object(),
           R"(is no {"type": "function", "function": {"name": ..., "parameters": ...}})");
    const Json* name = member_of(*function, "name");
    demand(name != nullptr && name->is_string() && *name != "", "the function has no name");
    demand(names.insert(*name).second, "another tool has this name");
    const Json* parameters = member_of(*function, "parameters");
    demand(parameters == nullptr || parameters->is_object(), "parameters: is no JSON schema");
  }
}

void add_tools_option(CLI::App& cli, Json& tools) {
  cli.add_option_function<std::string>(
         "--tools",
         [&tools](const std::string& file) {
           tools = parse_json(read_text_of(file, std::size_t{64} << 20), file);
           check_tools(tools, file);
         },
         "JSON file of tools that the model may call, as in OpenAI's API. Calls are shown, or with "
         "--json tool_calls; nothing is executed")
      ->type_name("FILE");
}

void add_tools(Json& body, const Json& tools) {
  if (!tools.is_null() && member_of(body, "tools") == nullptr) body["tools"] = tools;
}

namespace {

/// A schema's references to itself, where it is a part of another.
void move_references(Json& schema, const std::string& place) {
  if (!schema.is_structured()) return;
  for (auto& [key, value] : schema.items()) {
    const bool is_own = schema.is_object() && key == "$ref" && value.is_string() &&
                        value.get_ref<const std::string&>().starts_with('#');
    if (is_own) value = place + value.get<std::string>().substr(1);
    move_references(value, place);
  }
}

/// The schema of a list of calls of these tools, each {"name": ..., "arguments": {...}}.
Json list_of_calls(const Json& tools) {
  Json calls = Json::array(), schemas = Json::object();
  for (const Json& tool : tools) {
    const Json& called = tool.at("function");
    const std::string key = std::to_string(calls.size()), place = "#/$defs/" + key;
    const Json* parameters = member_of(called, "parameters");
    Json& schema = schemas[key] = parameters == nullptr ? Json::object() : *parameters;
    if (!schema.contains("type")) schema["type"] = "object";
    move_references(schema, place);
    calls.push_back({{"type", "object"},
                     {"properties",
                      {{"name", {{"const", called.at("name")}}}, {"arguments", {{"$ref", place}}}}},
                     {"required", {"name", "arguments"}},
                     {"additionalProperties", false}});
  }
  return {{"type", "array"}, {"minItems", 1}, {"items", {{"anyOf", calls}}}, {"$defs", schemas}};
}

/// Throws Error(usage): the model's form of calls can't enforce the schema's keyword.
[[noreturn]] void refuse_keyword(const std::string& place, const std::string& keyword) {
  throw Error(ErrorKind::usage,
              fmt::format("tools: {}: '{}' is not enforced in the model's form of calls; leave it "
                          "out, or strict",
                          place, keyword));
}

void check_keywords(const Json& schema, const std::string& place,
                    std::initializer_list<std::string_view> enforced) {
  if (!schema.is_object()) refuse_keyword(place, excerpt(to_text(schema)));
  for (const auto& [keyword, value] : schema.items()) {
    const auto notes = {"title", "description", "default", "examples", "$defs", "$schema"};
    if (std::ranges::count(notes, keyword) + std::ranges::count(enforced, keyword) == 0)
      refuse_keyword(place, keyword);
  }
}

/// A schema, or the one in $defs that it stands for.
const Json& resolved(const Json& schema, const Json& root, const std::string& place) {
  const std::string definitions = "#/$defs/";
  const Json* at = &schema;
  for (int depth = 0; depth < 9; ++depth) {
    const Json* to = member_of(*at, "$ref");
    if (to == nullptr) return *at;
    const std::string name = to->is_string() ? to->get<std::string>() : "";
    const Json* known = member_of(root, "$defs");
    const Json* found = known == nullptr || !name.starts_with(definitions)
                            ? nullptr
                            : member_of(*known, name.substr(definitions.size()));
    if (found == nullptr) break;
    at = found;
  }
  refuse_keyword(place, "$ref");
}

/// The value of a tagged call's key, which is text or JSON: a part of Grammar::from_parts().
Json tagged_value(const Json& parameters, const std::string& key, const CallForm& form) {
  const Json& schema = resolved(parameters.at("properties").at(key), parameters, key);
  if (!schema.is_object()) refuse_keyword(key, excerpt(to_text(schema)));
  // Texts and other constants, alone or as alternatives.
  Json ways = Json::array({schema});
  bool has_ways = false;
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const Json* found = member_of(schema, keyword);
    if (found == nullptr || !found->is_array()) continue;
    ways = *found;
    has_ways = true;
  }
  Json options = Json::array();
  bool is_closed = true, may_be_text = false;
  for (const Json& unresolved : ways) {
    const Json& way = resolved(unresolved, parameters, key);
    const Json* type = member_of(way, "type");
    if (const Json* values = member_of(way, "enum"); values != nullptr && values->is_array()) {
      check_keywords(way, key, {"type", "enum"});
      for (const Json& value : *values)
        options.push_back(value.is_string() ? value : Json(to_text(value)));
    } else if (type != nullptr && *type == "null") {
      options.push_back("null");
    } else {
      is_closed = false;
    }
    may_be_text =
        may_be_text || type == nullptr || to_text(*type).find("\"string\"") != std::string::npos;
  }
  if (has_ways && (is_closed || may_be_text))
    check_keywords(schema, key, {"type", "anyOf", "oneOf"});
  if (is_closed) return {{"options", options}};
  if (!may_be_text) {
    Json bound = schema;
    if (const Json* known = member_of(parameters, "$defs")) bound["$defs"] = *known;
    return {{"schema", bound}};
  }
  // Whatever is written is a text: nothing else can be demanded of it.
  for (const Json& way : ways) check_keywords(resolved(way, parameters, key), key, {"type"});
  return {{"until", form.after_value}};
}

/// One call of a form that is not JSON as a whole.
Json call_parts(const Json& function, const CallForm& form) {
  const bool is_tagged = form.body == CallForm::Body::tagged;
  const std::string line = is_tagged ? "\n" : "";
  const std::string name = function.at("name");
  const std::string head = form.before_name.empty() ? "" : line + std::string(form.before_name);
  const Json* given = member_of(function, "parameters");
  Json parts = Json::array();
  parts.push_back(
      Json{{"text", fmt::format("{}{}{}{}{}", form.begin, head, name, form.after_name, line)}});
  Json parameters = given == nullptr ? Json::object() : *given;
  if (!is_tagged) {
    if (!parameters.contains("type")) parameters["type"] = "object";
    parts[0]["schema"] = parameters;
  } else {
    parameters = resolved(parameters, parameters, name);
    if (const Json* known = given == nullptr ? nullptr : member_of(*given, "$defs"))
      parameters["$defs"] = *known;
    check_keywords(parameters, name, {"type", "properties", "required", "additionalProperties"});
    const Json properties = parameters.value("properties", Json::object());
    const Json required = parameters.value("required", Json::array());
    if (!properties.is_object()) refuse_keyword(name, "properties");
    if (!required.is_array()) refuse_keyword(name, "required");
    for (const Json& key : required) {
      if (!key.is_string() || !properties.contains(key.get<std::string>()))
        refuse_keyword(name, "required");
    }
    // Any arguments.
    if (properties.empty() && parameters.value("additionalProperties", Json()) != false)
      parts[0]["until"] = form.close.empty() ? form.end : form.close;
    const std::string around = form.before_value.empty() ? line : "";
    for (const auto& [key, schema] : properties.items()) {
      Json part = tagged_value(parameters, key, form);
      part["text"] =
          fmt::format("{}{}{}\n{}", form.before_key, key, form.after_key, form.before_value);
      part["after"] = fmt::format("{}{}\n", around, form.after_value);
      part["optional"] = std::ranges::find(required, Json(key)) == required.end();
      parts.push_back(std::move(part));
    }
  }
  const std::string close = form.close.empty() ? "" : std::string(form.close) + line;
  parts.push_back({{"text", close + std::string(form.end)}});
  return parts;
}

/// Text, and calls in the form; tools without parameters may be called with any.
AnswerRule rule_of_calls(const Json& tools, const CallForm& form) {
  Json alternatives = Json::array();
  if (form.body == CallForm::Body::list) {
    const bool is_alone = form.begin == "<tool_call>";
    const std::string line = is_alone ? "\n" : "";
    const Json all = list_of_calls(tools);
    Json one = all["items"];
    one["$defs"] = all["$defs"];
    const Json call = {{"text", std::string(form.begin) + line},
                       {"schema", is_alone ? one : all},
                       {"after", line + std::string(form.end)}};
    alternatives.push_back(Json::array({call}));
  } else {
    for (const Json& tool : tools) alternatives.push_back(call_parts(tool["function"], form));
  }
  return {.form = AnswerRule::Form::calls,
          .text = to_text(Json{{"begin", form.begin}, {"alternatives", alternatives}}),
          .source = "tools"};
}

}  // namespace

std::string bind_calls(Request& request, const CallTerms& terms, ConstraintCache* rules) {
  Json tools = parse_json(terms.tools, "tools", {.depth_max = 256});
  bool is_strict = false;
  for (Json& tool : tools) {
    Json& function = tool["function"];
    if (function.value("strict", Json()) == true) {
      is_strict = true;
    } else {
      function.erase("parameters");
    }
  }
  if (!is_strict || request.rule.get() != nullptr) return {};
  const bool can_bind = terms.form != nullptr && terms.form->body != CallForm::Body::harmony;
  if (!can_bind || rules == nullptr || !request.stop.empty() || !request.allowed.empty()) {
    return "tools: strict does not bind arguments beside stop strings or allowed_token_ids, nor of "
           "a model whose form of calls is not known or is harmony's";
  }
  request.rule = rules->get(rule_of_calls(tools, *terms.form));
  return {};
}

std::optional<Json> call_schema(const Json& body) {
  const Json* choice = member_of(body, "tool_choice");
  if (choice == nullptr || *choice == "auto" || *choice == "none") return std::nullopt;
  const Json* function = member_of(*choice, "function");
  const Json* name = function == nullptr ? nullptr : member_of(*function, "name");
  const auto refuse = [&](const std::string& text) {
    throw Error(ErrorKind::usage, "tool_choice: " + text + ", got " + excerpt(to_text(*choice)));
  };
  if (name == nullptr && *choice != "required") {
    refuse(R"(is "auto", "none", "required" or {"type":"function","function":{"name":...}})");
  }
  const Json* tools = member_of(body, "tools");
  Json called = Json::array();
  for (const Json& tool : tools == nullptr ? Json::array() : *tools) {
    if (name == nullptr || tool.at("function").at("name") == *name) called.push_back(tool);
  }
  if (called.empty()) refuse("tools has no function for it");
  Json all = list_of_calls(called);
  if (name != nullptr) all["maxItems"] = 1;
  return all;
}

CallTerms call_terms(const ChatPrompt& prompt, const ChatTemplate& chat_template,
                     const Tokenizer& tokenizer) {
  const Json& tools = prompt.tools;
  if (!tools.is_array() || tools.empty()) return {};
  const bool has_headers = thought_markers_of(tokenizer).has_headers;
  if (prompt.is_bound && has_headers) {
    throw Error(ErrorKind::usage,
                "tool_choice: calls of harmony are messages of their own and can't be bound; only "
                "\"auto\" and \"none\" are supported with this model");
  }
  if (prompt.is_bound) return {.form = &call_list(), .tools = to_text(tools)};
  const CallForm* form = has_headers ? nullptr : chat_template.call_form();
  if (form == nullptr) form = call_form_of(tokenizer);
  const bool is_readable =
      form != nullptr && (form->body == CallForm::Body::harmony) == has_headers;
  return {.form = is_readable ? form : nullptr, .tools = to_text(tools)};
}

std::string call_text(const ToolCall& call) {
  return fmt::format("call {}({})", call.name, call.arguments);
}

}  // namespace hyb::app
