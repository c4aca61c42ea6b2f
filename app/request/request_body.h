#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/request/prompt.h"
#include "app/request/template_probe.h"
#include "core/base/json.h"
#include "core/engine/request.h"
#include "core/text/chat_template.h"

namespace hyb::app {

/// Puts what the body of an OpenAI request says about sampling and limits over `request`'s own
/// values; null means not given. Throws Error(usage) naming the field for a wrong type, for a
/// number that does not fit, and as check_fields() for what is not obeyed. The ranges themselves
/// are checked by hyb::check.
void apply_body(const Json& body, Request& request);

/// Returns what the body says of thinking: enable_thinking or thinking, as a bool, or as {"type":
/// "enabled"}, the form of other APIs.
Think think_of(const Json& body);

/// Returns the variables of the chat template: tools, documents, chat_template_kwargs, ...
Json template_variables(const Json& body);

/// Returns what `run`, `batch` and `render` give to the chat template, from a body that
/// apply_body() took. `think` is the default for bodies that do not set it. Throws Error(usage) for
/// tools, documents and the like where the template never reads them.
ChatPrompt chat_prompt(const Json& body, Json messages, Think think,
                       const ChatTemplate& chat_template);

/// A warning for each of chat_template_kwargs that the template never reads.
std::vector<std::string> unread_arguments(const Json& body, const ChatTemplate& chat_template);

/// The model that the body asks for, quoted, where it is another than `model`, also by
/// the file or folder that both lead to.
std::optional<std::string> other_model(const Json& body, std::string_view model);

}  // namespace hyb::app
