#include "kernels/rule.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb::kernels {

void broken_rule(std::string_view rule, std::int64_t value) {
  throw Error(ErrorKind::runtime, fmt::format("{}, got {}", rule, value));
}

void broken_rule(std::string_view rule, DType dtype) {
  throw Error(ErrorKind::runtime, fmt::format("{}, got {}", rule, name_of(dtype)));
}

}  // namespace hyb::kernels
