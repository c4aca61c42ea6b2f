#pragma once

#include <string>

#include "core/base/error.h"

namespace hyb::testing {

/// The text of the model error that `action` ends with; "" when it ends well. Other kinds of errors
/// go through and fail the test.
template <typename Action>
std::string model_error(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    return error.what();
  }
  return "";
}

/// The text of the error of any kind that `action` ends with; "" when it ends well.
template <typename Action>
std::string error_text(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace hyb::testing
