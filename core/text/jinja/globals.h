#pragma once

#include <string_view>

#include "core/text/jinja/runtime.h"

namespace hyb::jinja {

/// A global function (range, namespace, raise_exception, ...): its name in static storage, empty if
/// there is none. User variables of the same name come first.
std::string_view find_global(std::string_view name);

/// Calls a function that find_global found.
Value call_global(Runtime& runtime, std::string_view name, const Arguments& arguments);

/// Calls what joiner() returned.
Value call_joiner(Callable& joiner);

/// What `value is name(arguments)` asks. Throws Fault for a name that is no test.
bool apply_test(Runtime& runtime, std::string_view name, const Value& value,
                const Arguments& arguments);

}  // namespace hyb::jinja
