#pragma once

#include <string>

#include "core/text/jinja/value.h"

namespace hyb::jinja {

class Runtime;

/// What Python's repr() gives for a float: shortest digits that read back, "1.0", "1e+16", "nan".
std::string format_real(double real);

/// str(value): texts as they are, an undefined value as nothing. Marks are kept; what Python adds
/// around texts (quotes, commas) gets the source of the texts it stands around.
Text to_text(Runtime& runtime, const Value& value);

/// repr(value) at the end of the buffer.
void append_repr(Runtime& runtime, MarkedBuffer& buffer, const Value& value);

/// The least trusted source in the value: person over assistant over tmpl.
TextSource source_of(Runtime& runtime, const Value& value);

class Runtime;

/// format % values: %s %r %d %i %u %f %e %g %x %o %c %% with flags, width and precision; %(name)s
/// takes from a dict. Marks of the format and of the values are kept.
Text format_percent(Runtime& runtime, const Text& format, const Value& values);

/// format.format(...): {} {0} {name} {{ }}; conversions and format specifications are Faults.
struct Arguments;
Text format_braces(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace hyb::jinja
