#pragma once

#include <cstddef>
#include <string_view>

namespace hyb {

/// Registers [begin, begin + size) as the mapping of the file `path`: a SIGBUS inside it is then
/// answered with one line on stderr that names the file, and exit status 3. Returns the place to
/// hand to unwatch_mapping. Thread-safe. Throws Error(runtime) when 1024 files are mapped already.
int watch_mapping(const void* begin, std::size_t size, std::string_view path);

void unwatch_mapping(int watch);

}  // namespace hyb
