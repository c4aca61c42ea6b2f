#pragma once

#include <string_view>

#include "core/constraint/expression.h"

namespace hyb {

/// Reads the regular expressions that ECMAScript and Python share: classes, groups, alternatives,
/// counted and lazy repetition (a language does not know lazy), anchors, escapes. Letters such as
/// \w, \d and \s mean what they mean in ECMAScript; `.` is any character but ends of lines.
/// Throws Error(usage) that begins with `source` for what is damaged, and by name for look-around,
/// back references, \b, \p and flags. The texts are those that match as a whole, or (`search`, as
/// of JSON schema's `pattern`) those that contain a match.
Expressions::Id read_regex(std::string_view text, Expressions& expressions, bool search = false);

}  // namespace hyb
