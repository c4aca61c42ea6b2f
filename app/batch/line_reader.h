#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hyb::app {

/// Where a line of a file lies.
struct LinePlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;    ///< without the line break
  bool is_terminated = true;  ///< false: the file ends without a line break here
};

/// Reads a file line by line with bounded memory.
class LineReader {
 public:
  /// Lines longer than `kept_max` bytes are told but not kept. The descriptor stays the caller's.
  LineReader(int descriptor, std::size_t kept_max);

  /// The next line and its first kept_max bytes; false at the end. An empty rest behind the last
  /// line break is no line. Throws Error(model) when reading fails.
  bool next(LinePlace& place, std::string& text);

 private:
  bool fill();

  int descriptor_;
  std::size_t kept_max_;
  std::uint64_t offset_ = 0;  ///< of the next byte to look at
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace hyb::app
