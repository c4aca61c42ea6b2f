#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hyb {

/// Why an operation ended; main turns it into the exit code of the same number.
enum class ErrorKind {
  runtime = 1,  ///< a failure while running: full disk, broken pipe, a bug of ours
  usage = 2,    ///< the command line or a request asks for something impossible
  model = 3,    ///< a model folder or another input file is missing, damaged or unsupported
  memory = 4,   ///< it does not fit into the memory it was given
};

/// Ends an operation. The text says who, which rule and which value, and what a user can do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}

  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// Throws a runtime Error naming the caller's place when a rule of our own is broken: a bug, never
/// bad input. Always on.
void require(bool condition, std::string_view rule,
             std::source_location place = std::source_location::current());

}  // namespace hyb
