#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/engine/request.h"

namespace hyb::app {

/// Puts what the body of an OpenAI request says about sampling and limits over `request`'s own
/// values; null means not given. Throws Error(usage) naming the field for a wrong type, for a
/// number that does not fit, and for what is asked for and not there yet (response_format). The
/// ranges themselves are checked by hyb::check.
void apply_body(const Json& body, Request& request);

/// What the chat template gets to see: tools, documents, chat_template_kwargs, ...
Json template_variables(const Json& body);

/// Fields of the body that mean nothing to hyb.
std::vector<std::string> unknown_fields(const Json& body);

}  // namespace hyb::app
