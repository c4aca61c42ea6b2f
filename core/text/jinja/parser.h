#pragma once

#include <string_view>

#include "core/text/jinja/ast.h"

namespace hyb::jinja {

/// Parses a template in the dialect of chat templates. Throws Error(model) with line and column.
Template parse_template(std::string_view source, std::string_view source_name);

}  // namespace hyb::jinja
