#include "app/tools.h"

#include <set>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/file.h"
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
           tools = parse_json(read_text_file(file, std::size_t{64} << 20), file);
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

}  // namespace

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
  Json calls = Json::array(), schemas = Json::object();
  const Json* tools = member_of(body, "tools");
  for (const Json& tool : tools == nullptr ? Json::array() : *tools) {
    const Json& called = tool.at("function");
    if (name != nullptr && called.at("name") != *name) continue;
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
  if (calls.empty()) refuse("tools has no function for it");
  Json all = {
      {"type", "array"}, {"minItems", 1}, {"items", {{"anyOf", calls}}}, {"$defs", schemas}};
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
