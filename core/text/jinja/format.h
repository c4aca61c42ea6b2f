#pragma once

#include <string>

#include "core/text/jinja/value.h"

namespace hyb::jinja {

class Runtime;

/// Python's repr() of a float: the shortest digits that read back, "1.0", "1e+16", "nan".
std::string format_real(double real);

/// str(value): texts unchanged, an undefined value as "". Sources are kept; the quotes and commas
/// that Python adds get the source of the texts around them.
Text to_text(Runtime& runtime, const Value& value);

/// Appends repr(value).
void append_repr(Runtime& runtime, MarkedBuffer& buffer, const Value& value);

/// The least trusted source in the value: person over assistant over tmpl.
TextSource source_of(Runtime& runtime, const Value& value);

/// format % values, where `values` is a tuple or the only value: %s and %%; other directives are
/// Faults. Sources of format and values are kept.
Text format_percent(Runtime& runtime, const Text& format, const Value& values);

struct Arguments;

/// format.format(...): {} {0} {name} {{ }}; conversions and format specifications are Faults.
Text format_braces(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace hyb::jinja
