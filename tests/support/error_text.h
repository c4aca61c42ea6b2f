#pragma once

#include <string>

#include "core/base/error.h"

namespace hyb::testing {

/// The text of the Error(model) that `action` throws; "" if it throws none. Other errors pass
/// through and fail the test.
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

/// The text of the Error that `action` throws; "" if it throws none.
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
