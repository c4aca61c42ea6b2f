#pragma once

#include <span>
#include <string_view>

#include "core/text/jinja/arguments.h"

namespace hyb::jinja {

/// The name of a method that the value has, in static storage; empty if it has none of that name.
std::string_view find_method(const Value& object, std::string_view name);

/// Calls a method that find_method found.
Value call_method(Runtime& runtime, const Value& object, std::string_view name,
                  const Arguments& arguments);

/// The tables, one per kind of object.
std::span<const FunctionEntry> text_methods();
std::span<const FunctionEntry> text_predicate_methods();
std::span<const FunctionEntry> list_methods();
std::span<const FunctionEntry> tuple_methods();
std::span<const FunctionEntry> dict_methods();
std::span<const FunctionEntry> loop_methods();
std::span<const FunctionEntry> cycler_methods();

}  // namespace hyb::jinja
