#pragma once

namespace hyb::kernels::build {

/// Does this build have the CUDA backend? Builds that do put a header of the same name first.
inline constexpr bool has_cuda = false;

}  // namespace hyb::kernels::build
