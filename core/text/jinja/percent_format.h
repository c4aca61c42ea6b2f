#pragma once

#include "core/text/jinja/value.h"

namespace hyb::jinja {

class Runtime;

/// format % values: %s %r %d %i %u %f %e %g %x %o %c %% with flags, width and precision; %(name)s
/// takes from a dict. Marks of the format and of the values are kept.
Text format_percent(Runtime& runtime, const Text& format, const Value& values);

/// format.format(...): {} {0} {name} {{ }}; conversions and format specifications are Faults.
struct Arguments;
Text format_braces(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace hyb::jinja
