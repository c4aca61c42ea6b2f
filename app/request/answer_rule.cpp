#include "app/request/answer_rule.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/request/text_input.h"
#include "app/request/tools.h"
#include "app/ui/process.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

using Form = AnswerRule::Form;

constexpr std::size_t rule_bytes_max = std::size_t{16} << 20;

constexpr auto form_texts = {"is a JSON schema", "is true or false", "is a text",
                             "is a list of texts", "is a text"};

struct RuleField {
  std::string_view name;
  Form form;
};
constexpr auto rule_fields = std::to_array<RuleField>({{"guided_json", Form::json_schema},
                                                       {"guided_regex", Form::regex},
                                                       {"guided_choice", Form::one_of},
                                                       {"guided_grammar", Form::gbnf},
                                                       {"json_schema", Form::json_schema},
                                                       {"grammar", Form::gbnf}});
constexpr auto output_members = std::to_array<RuleField>({{"json", Form::json_schema},
                                                          {"regex", Form::regex},
                                                          {"choice", Form::one_of},
                                                          {"grammar", Form::gbnf},
                                                          {"json_object", Form::json_object}});

[[noreturn]] void refuse_rule(const std::string& source, std::string_view rule, const Json& value) {
  throw Error(ErrorKind::usage,
              fmt::format("{}: {}, got {}", source, rule, excerpt(to_text(value))));
}

bool is_of(Form form, const Json& value) {
  const auto is_text = [](const Json& text) { return text.is_string(); };
  if (form == Form::json_schema) return value.is_object() || value.is_boolean();
  if (form == Form::json_object) return value.is_boolean();
  if (form == Form::one_of) return value.is_array() && std::ranges::all_of(value, is_text);
  return value.is_string();
}

/// A schema may be a text that holds one.
AnswerRule rule_from(Form form, const std::string& source, Json value) {
  if (value == "") {
    throw Error(ErrorKind::usage,
                source + ": is empty, so it says nothing of the answer; leave it out for any text");
  }
  if (form == Form::json_schema && value.is_string()) {
    try {
      value = parse_json(value.get<std::string>(), source);
    } catch (const Error& error) {
      throw Error(ErrorKind::usage, error.what());
    }
  }
  if (!is_of(form, value))
    refuse_rule(source, std::data(form_texts)[static_cast<int>(form)], value);
  return {form, value.is_string() ? value.get<std::string>() : to_text(value), source};
}

/// Those found so far: at most one.
struct FoundRule {
  std::optional<AnswerRule> rule = {};

  void add(Form form, const std::string& source, const Json& value) {
    if (value.is_null() || (form == Form::json_object && value == false)) return;
    AnswerRule next = rule_from(form, source, value);
    if (!rule) return rule.emplace(std::move(next)), void();
    throw Error(ErrorKind::usage,
                fmt::format("{} and {} both say what the answer must be: leave one of them out",
                            rule->source, source));
  }
};

void add_response_format(const Json& format, FoundRule& found) {
  const std::string source = "response_format";
  const Json type = format.is_object() ? format.value("type", Json()) : Json();
  if (type == "text") return;
  const Json* const named = type == "json_schema" ? member_of(format, "json_schema") : nullptr;
  const Json& holder = named != nullptr && named->is_object() ? *named : format;
  if (type == "json_schema" || (type == "json_object" && holder.contains("schema"))) {
    if (member_of(holder, "schema") == nullptr)
      refuse_rule(source, "has a json_schema.schema", format);
    found.add(Form::json_schema, source, holder["schema"]);
  } else if (type == "json_object") {
    found.add(Form::json_object, source, true);
  } else {
    refuse_rule(source,
                R"(is {"type":"text"}, {"type":"json_object"} or {"type":"json_schema",...})",
                format);
  }
}

}  // namespace

std::optional<AnswerRule> rule_of(const Json& body) {
  FoundRule found;
  if (const auto calls = call_schema(body)) found.add(Form::json_schema, "tool_choice", *calls);
  if (const Json* format = member_of(body, "response_format")) add_response_format(*format, found);
  for (const auto& [name, form] : rule_fields) {
    if (const Json* value = member_of(body, name)) found.add(form, std::string(name), *value);
  }
  const Json* const outputs = member_of(body, "structured_outputs");
  if (outputs == nullptr) return found.rule;
  if (!outputs->is_object()) refuse_rule("structured_outputs", "is an object", *outputs);
  for (const auto& [name, value] : outputs->items()) {
    const auto* const known = std::ranges::find(output_members, name, &RuleField::name);
    if (known != output_members.end()) {
      found.add(known->form, "structured_outputs." + name, value);
    } else if (!value.is_null() && value != false) {
      refuse_rule("structured_outputs", "has json, regex, choice, grammar or json_object",
                  *outputs);
    }
  }
  return found.rule;
}

std::optional<AnswerRule> rule_of(const RuleFlags& flags) {
  FoundRule found;
  const auto text_of = [](const std::string& name) { return read_text_file(name, rule_bytes_max); };
  if (const std::string schema = flags.json_schema.value_or(""); flags.json_schema) {
    const bool is_text =
        schema.empty() || trim_left(schema).starts_with('{') || Json::accept(schema);
    found.add(Form::json_schema, is_text ? "--json-schema" : schema,
              is_text ? schema : text_of(schema));
  }
  found.add(Form::json_object, "--json-object", flags.json_object);
  if (flags.regex) found.add(Form::regex, "--regex", *flags.regex);
  if (!flags.one_of.empty()) found.add(Form::one_of, "--one-of", flags.one_of);
  if (const std::string grammar = flags.grammar.value_or(""); flags.grammar) {
    const bool is_text = grammar.find("::=") != std::string::npos;
    found.add(Form::gbnf, is_text ? "--grammar" : grammar, is_text ? grammar : text_of(grammar));
  }
  return found.rule;
}

void add_rule_options(CLI::App& cli, RuleFlags& flags) {
  // A rule is looked at more than once, and a pipe can be read once.
  const CLI::Validator pipe_to_text(
      [](std::string& text) {
        if (is_pipe(text)) text = read_text_of(text, rule_bytes_max);
        return std::string();
      },
      "", "");
  cli.add_option("--json-schema", flags.json_schema,
                 "the answer is JSON of this schema: a file, or the schema itself")
      ->type_name("FILE")
      ->transform(pipe_to_text);
  cli.add_flag("--json-object", flags.json_object, "the answer is a JSON object");
  cli.add_option("--regex", flags.regex, "the whole answer matches this regular expression");
  cli.add_option("--one-of", flags.one_of,
                 "the answer is one of these texts, which end at the next option or --");
  cli.add_option("--grammar", flags.grammar,
                 "the answer is what the rule root of a grammar allows (GBNF, as in llama.cpp): a "
                 "file, or the grammar itself, as root ::= \"yes\" | \"no\"")
      ->type_name("FILE")
      ->transform(pipe_to_text);
}

}  // namespace hyb::app
