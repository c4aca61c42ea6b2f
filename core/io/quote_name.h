#pragma once

#include <string>
#include <string_view>

namespace hyb {

/// A name from a file, fit for an error message: in double quotes, control characters (also the
/// eight-bit ones that terminals obey) as \xNN, cut after 200 bytes with "..." outside the quotes.
std::string quote_name(std::string_view name);

}  // namespace hyb
