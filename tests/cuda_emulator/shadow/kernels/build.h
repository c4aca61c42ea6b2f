#pragma once

namespace hyb::kernels::build {

/// The emulated device counts as one.
inline constexpr bool has_cuda = true;

}  // namespace hyb::kernels::build
