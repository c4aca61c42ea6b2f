#pragma once

#include <string>
#include <string_view>

namespace hyb {

/// Turns bytes that arrive in any cuts into well-formed UTF-8, a whole character at a time. What is
/// ill-formed becomes U+FFFD per maximal subpart, wherever the cuts fall.
class Utf8Stream {
 public:
  /// Appends what is certain now to `out`.
  void push(std::string_view bytes, std::string& out);

  /// Appends U+FFFD for an incomplete character that is left, if any.
  void flush(std::string& out);

 private:
  std::string pending_;  // at most three bytes between calls
};

}  // namespace hyb
