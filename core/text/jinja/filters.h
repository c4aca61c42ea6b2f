#pragma once

#include <span>
#include <string_view>

#include "core/text/jinja/arguments.h"

namespace hyb::jinja {

bool has_filter(std::string_view name);

/// Throws Fault for a name that is no filter.
Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments);

/// The tables, by what the filters work on.
std::span<const FunctionEntry> text_filters();
std::span<const FunctionEntry> number_filters();
std::span<const FunctionEntry> sequence_filters();
std::span<const FunctionEntry> order_filters();
std::span<const FunctionEntry> selection_filters();

}  // namespace hyb::jinja
