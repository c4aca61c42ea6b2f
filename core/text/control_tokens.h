#pragma once

#include <string_view>

#include "core/text/guarded_text.h"

namespace hyb {

/// The strictest guard over which an added token of this spelling may still be found:
/// closed for plain text (not special, white space only: runs of spaces and newlines), thinking for
/// what an assistant turn from a file may hold (markers of thoughts and tool calls, and what is not
/// special and names no turn and no role), open for everything else.
Guard guard_allowing(std::string_view spelling, bool special);

}  // namespace hyb
