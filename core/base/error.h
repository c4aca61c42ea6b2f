#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hyb {

/// Why an operation failed; main exits with the same number.
enum class ErrorKind {
  runtime = 1,  ///< a failure while running: full disk, broken pipe, a bug in hyb
  usage = 2,    ///< the command line or a request asks for something impossible
  model = 3,    ///< a model folder or another input file is missing, damaged or unsupported
  memory = 4,   ///< does not fit into the given memory
};

/// Ends an operation. The text names the file or object, the rule, the value, and what a user can
/// do about it.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}

  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// Throws a runtime Error with the caller's source location when an invariant of hyb does not hold:
/// a bug, never bad input. Active in release builds, too.
void require(bool condition, std::string_view rule,
             std::source_location place = std::source_location::current());

}  // namespace hyb
