#pragma once

#include <string_view>

#include "core/text/jinja/runtime.h"

namespace hyb::jinja {

// Lists what templates find without defining it: filters, tests, methods of values, global
// functions. Names that are returned are in static storage.

/// Throws Fault for an unknown filter.
Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments);

/// `value is name(arguments)`. Throws Fault for an unknown test.
bool apply_test(Runtime& runtime, std::string_view name, const Value& value,
                const Arguments& arguments);

/// The name of a method of the value; empty if it has none of that name.
std::string_view find_method(const Value& object, std::string_view name);

/// Throws Fault for a method that the value does not have.
Value call_method(Runtime& runtime, const Value& object, std::string_view name,
                  const Arguments& arguments);

/// The name of a global function (range, namespace, raise_exception, ...); empty if there is none.
/// Variables shadow globals.
std::string_view find_global(std::string_view name);

/// Calls a function that find_global found.
Value call_global(Runtime& runtime, std::string_view name, const Arguments& arguments);

}  // namespace hyb::jinja
