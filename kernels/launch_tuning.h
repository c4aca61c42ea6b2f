#pragma once

#include <optional>
#include <string>

namespace hyb::kernels {

/// Options of how a card starts kernels, to measure what each choice is worth: the answers are the
/// same.
struct LaunchTuning {
  /// Percent of a multiprocessor's L1 that is wanted as shared memory, the same for all kernels, so
  /// that neighbours may overlap; none: as the driver chooses for each.
  std::optional<int> carveout = {};
  bool early_starts = true;  ///< kernels start before the previous one has ended, where they can
};

/// From the values of HYB_CUDA_CARVEOUT, 0 to 100, and HYB_CUDA_EARLY_STARTS, on or off. None: the
/// default. Throws Error(usage) that names the variable.
LaunchTuning launch_tuning_of(const std::optional<std::string>& carveout,
                              const std::optional<std::string>& early_starts);

/// Sets the tuning of the queues that are made from now on, by any thread: before the first.
void set_launch_tuning(const LaunchTuning& tuning);
const LaunchTuning& launch_tuning();

}  // namespace hyb::kernels
