#pragma once

#include <string>
#include <string_view>

namespace hyb {

/// Rewrites a pattern from Oniguruma's Ruby syntax to PCRE2 (UTF, UCP, multi-line anchors) such
/// that it matches the same texts. The dialects differ in: `\s` (no U+180E), `\w`, `\h`, `\v`,
/// `\b`, properties (a script name is the script, not its extensions; long category names), POSIX
/// brackets, class intersections `&&` and nested classes, `{n}?`, `{,n}`, `{n,m}+` (no possessive
/// interval), `(?m)` (dot matches all) and an option's reach over alternatives. Throws Error(model)
/// beginning with `source` and naming the construct for what has no translation: back-references,
/// subroutine calls, conditionals, absent operators, `\G \K \R \X`, octal escapes, and case-blind
/// matching of anything but ASCII.
std::string translate_pattern(std::string_view oniguruma, std::string_view source);

}  // namespace hyb
