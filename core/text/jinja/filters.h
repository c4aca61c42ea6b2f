#pragma once

#include <string_view>

#include "core/text/jinja/runtime.h"

namespace hyb::jinja {

/// Throws Fault for an unknown filter.
Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments);

}  // namespace hyb::jinja
