#pragma once

namespace hyb::app {

/// What --version prints. Defined in a file that CMake writes.
const char* version_text();

}  // namespace hyb::app
