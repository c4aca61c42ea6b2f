#pragma once

#include <string_view>

#include "core/base/json.h"

namespace hyb::app {

/// Fields of a request's body, in the spellings of OpenAI, vLLM, SGLang and llama.cpp: each is
/// obeyed, changes no answer, or asks for nothing with the value it has. Throws Error(usage) that
/// begins with the name of the first other one, known or not: an answer without it might be
/// another. Null counts as absent.
void check_fields(const Json& body);

/// True if a field of a body changes no answer by its name, or asks for what happens anyway.
bool asks_nothing(const Json& body, const std::string& name);

/// True if the name may be meant as a parameter: a name of those tools, or one similar to a name
/// that is obeyed. Anything else beside a prompt is a column of a data set.
bool may_be_parameter(std::string_view name);

}  // namespace hyb::app
