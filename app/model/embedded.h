#pragma once

#include <span>
#include <string_view>

namespace hyb::app {

/// A file of models/ that is part of the binary.
struct EmbeddedFile {
  std::string_view name;  ///< "demo/config.json", "presets/granite-4.0-h-tiny/config.json"
  const char* begin;
  const char* end;

  std::string_view bytes() const { return {begin, static_cast<std::size_t>(end - begin)}; }
};

std::span<const EmbeddedFile> embedded_files();

}  // namespace hyb::app
