#pragma once

#include <string_view>

namespace hyb {

/// Regular expression of the whole texts of a `format` of JSON schema; empty: not known. Stricter
/// than the standards where these are of no use to an answer: years have four digits from 1000 on,
/// there are no leap seconds, quoted local parts, comments or addresses in brackets.
std::string_view regex_of_format(std::string_view format);

}  // namespace hyb
