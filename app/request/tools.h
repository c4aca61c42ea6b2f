#pragma once

#include <optional>
#include <string>

#include "app/request/prompt.h"
#include "core/base/json.h"
#include "core/engine/request.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"
#include "core/text/tool_calls.h"

namespace CLI {
class App;
}

namespace hyb::app {

/// Throws Error(usage) that begins with `place` unless these are tools in OpenAI's form: a list of
/// {"type": "function", "function": {"name", "description", "parameters", "strict"}}, of which all
/// but the name may be left out, each name once.
void check_tools(const Json& tools, const std::string& place);

/// Adds --tools FILE; the file is read and checked. `tools` outlives `cli`.
void add_tools_option(CLI::App& cli, Json& tools);

/// Gives a body tools, unless it has some or they are null.
void add_tools(Json& body, const Json& tools);

/// The schema of the list of calls that an answer has to be by a body's tool_choice, as in vLLM;
/// nothing: it may be text. Throws Error(usage) for a choice that is none.
std::optional<Json> call_schema(const Json& body);

/// Returns how calls are found in an answer: in the form in which the chat template shows past
/// ones, or else by the vocabulary. Without tools, calls are text. Throws Error(usage) where
/// answers can't be bound.
CallTerms call_terms(const ChatPrompt& prompt, const ChatTemplate& chat_template,
                     const Tokenizer& tokenizer);

/// Binds the arguments of calls of tools that are `strict`: the answer may be text and calls.
/// Nothing changes where a rule binds it already. Returns a warning where it can't be done; else
/// nothing. Throws Error(usage) that names a keyword that is not enforced in the model's form.
std::string bind_calls(Request& request, const CallTerms& terms, ConstraintCache* rules);

/// For people: call get_weather({"city": "Paris"})
std::string call_text(const ToolCall& call);

}  // namespace hyb::app
