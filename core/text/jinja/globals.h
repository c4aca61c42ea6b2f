#pragma once

#include <string_view>

#include "core/text/jinja/runtime.h"

namespace hyb::jinja {

/// The name of a global function (range, namespace, raise_exception, ...) in static storage; empty
/// if there is none. Variables shadow globals.
std::string_view find_global(std::string_view name);

/// Calls a function that find_global found.
Value call_global(Runtime& runtime, std::string_view name, const Arguments& arguments);

/// `value is name(arguments)`. Throws Fault for an unknown test.
bool apply_test(Runtime& runtime, std::string_view name, const Value& value,
                const Arguments& arguments);

}  // namespace hyb::jinja
