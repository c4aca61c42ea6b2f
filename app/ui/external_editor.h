#pragma once

#include <string>

namespace hyb::app {

/// Returns the text after a person changed it in the editor that the shell command `command`
/// starts, with the name of a file after it. The terminal is in its own modes. A line break at the
/// end is left out. Throws Error(usage) where there is no editor, Error(runtime) when it fails.
std::string edited_by(const std::string& command, const std::string& text);

}  // namespace hyb::app
