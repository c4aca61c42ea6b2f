#pragma once

#include "core/text/jinja/ast.h"
#include "core/text/jinja/runtime.h"

namespace hyb::jinja {

/// Renders a template into `output`; `root` has the variables. Throws Fault: `place` is then the
/// position of the error.
void render(const Template& parsed, Runtime& runtime, Scope& root, MarkedBuffer& output,
            Place& place);

}  // namespace hyb::jinja
