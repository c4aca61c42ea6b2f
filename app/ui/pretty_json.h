#pragma once

#include <string>

#include "core/base/json.h"

namespace hyb::app {

/// Indented by two, with a line break at the end; invalid UTF-8 (a folder's name) becomes U+FFFD.
std::string pretty_json(const Json& json);

}  // namespace hyb::app
