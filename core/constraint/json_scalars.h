#pragma once

#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/constraint/expression.h"

namespace hyb {

/// Regular expression of the whole texts of a `format` of JSON schema; empty: not known. Stricter
/// than the standards where these are of no use to an answer: years have four digits from 1000 on,
/// there are no leap seconds, no more than nine digits of a second, no quoted local parts, comments
/// or addresses in brackets. A host name, of at most 253 characters, has three labels, or seven of
/// which all but the first have at most 30 characters.
std::string_view regex_of_format(std::string_view format);

/// JSON's equality: members of objects in any order, whole numbers with a sign or without.
bool is_same_value(const Json& a, const Json& b);

/// A value of 'enum' or 'const' as it is written there. Throws Error(usage) for numbers whose
/// digits are not known any more: those beyond 64 bits.
std::string exact_text(const Json& value, const Expressions& expressions);

/// Text without the %XX of references.
std::string unescaped(std::string_view text);

/// A number without an exponent, as short as it can be. Throws Error(usage) for more than 60
/// digits.
std::string decimal_of(const Json& number, const Expressions& expressions);

constexpr std::size_t number_digits = 16;

/// JSON's numbers, spelled without exponents where `plain`, of at most `digits` before and after
/// the point; 0: of any number.
Expressions::Id number_spellings(bool integer, bool plain, std::size_t digits,
                                 Expressions& expressions);

/// The plain spellings of numbers >= `bound`; without it where `strict`. Throws Error(usage) for
/// bounds of more than 60 digits.
Expressions::Id numbers_from(const Json& bound, bool strict, Expressions& expressions);

/// The plain spellings of the multiples of a number: a whole one of at most 10,000, or 0.1, 0.01
/// and so on. Throws Error(usage) for others.
Expressions::Id multiples_of(const Json& divisor, Expressions& expressions);

}  // namespace hyb
