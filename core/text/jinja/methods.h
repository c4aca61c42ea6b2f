#pragma once

#include <string_view>

#include "core/text/jinja/runtime.h"

namespace hyb::jinja {

/// The name of a method of the value, in static storage; empty if it has none of that name.
std::string_view find_method(const Value& object, std::string_view name);

/// Calls a method that find_method found.
Value call_method(Runtime& runtime, const Value& object, std::string_view name,
                  const Arguments& arguments);

}  // namespace hyb::jinja
