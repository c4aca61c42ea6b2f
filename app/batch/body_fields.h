#pragma once

#include <string_view>

#include "core/base/json.h"

namespace hyb::app {

/// Fields of a request's body, in the spellings of OpenAI, vLLM, SGLang and llama.cpp: each is
/// obeyed, changes no answer, or asks for nothing with the value it has. Throws Error(usage) that
/// begins with the name of the first other one, known or not: an answer without it might be
/// another. Null counts as absent.
void check_fields(const Json& body);

/// Whether a field of that name changes answers as a member of a body.
bool is_obeyed_field(std::string_view name);

}  // namespace hyb::app
