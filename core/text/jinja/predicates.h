#pragma once

#include <string_view>

#include "core/text/jinja/arguments.h"

namespace hyb::jinja {

/// What `value is name(arguments)` asks. Throws Fault for a name that is no test.
bool apply_test(Runtime& runtime, std::string_view name, const Value& value,
                const Arguments& arguments);

}  // namespace hyb::jinja
