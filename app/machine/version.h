#pragma once

namespace hyb::app {

/// Text of --version, defined in a file that CMake writes.
const char* version_text();

}  // namespace hyb::app
