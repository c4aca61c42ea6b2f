#pragma once

#include <stdexcept>
#include <string>

namespace hyb::jinja {

enum class FaultKind {
  failure,  ///< the template does something that Jinja calls an error
  raised,   ///< the template called raise_exception
  limit,    ///< a RenderLimits was reached
};

/// Ends a rendering; ChatTemplate turns it into an Error that says where.
class Fault : public std::runtime_error {
 public:
  explicit Fault(const std::string& text, FaultKind kind = FaultKind::failure)
      : std::runtime_error(text), kind_(kind) {}

  FaultKind kind() const { return kind_; }

 private:
  FaultKind kind_;
};

}  // namespace hyb::jinja
