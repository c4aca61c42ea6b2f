#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/dtype.h"

namespace hyb::kernels {

[[noreturn]] void broken_rule(std::string_view rule, std::int64_t value);
[[noreturn]] void broken_rule(std::string_view rule, DType dtype);

/// Throws Error(runtime) "<rule>, got <value>" when an op is called against its contract: a bug of
/// the caller. `rule` begins with the op's name. Costs nothing where the rule holds.
inline void rule(bool holds, std::string_view text, std::int64_t value) {
  if (!holds) broken_rule(text, value);
}
inline void rule(bool holds, std::string_view text, DType dtype) {
  if (!holds) broken_rule(text, dtype);
}

}  // namespace hyb::kernels
