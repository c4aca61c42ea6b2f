#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/text/jinja/runtime.h"

namespace hyb::jinja {

// Strings: their methods and filters. All operate on characters and keep sources.

std::span<const Function> text_methods();
/// They convert other values to text.
std::span<const Function> text_filters();

Text lower(Runtime& runtime, const Text& text);
/// The items of `parts` are texts.
Text join(Runtime& runtime, const Text& separator, const List& parts);

/// str.split: at runs of white space without a separator. Up to `splits` cuts; any number if it is
/// negative. Throws Fault for an empty separator.
List& split(Runtime& runtime, const Text& text, const std::optional<Text>& separator,
            std::int64_t splits = -1);

}  // namespace hyb::jinja
