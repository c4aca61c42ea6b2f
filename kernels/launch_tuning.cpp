#include "kernels/launch_tuning.h"

#include <charconv>

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb::kernels {
namespace {

LaunchTuning chosen_tuning;

}  // namespace

LaunchTuning launch_tuning_of(const std::optional<std::string>& carveout,
                              const std::optional<std::string>& early_starts) {
  LaunchTuning tuning;
  if (carveout) {
    int percent = -1;
    const char* const end = carveout->data() + carveout->size();
    const auto [rest, error] = std::from_chars(carveout->data(), end, percent);
    if (error != std::errc() || rest != end || percent < 0 || percent > 100) {
      throw Error(ErrorKind::usage,
                  fmt::format("HYB_CUDA_CARVEOUT is a percentage, 0 to 100, not '{}'", *carveout));
    }
    tuning.carveout = percent;
  }
  if (early_starts) {
    if (*early_starts != "on" && *early_starts != "off") {
      throw Error(ErrorKind::usage,
                  fmt::format("HYB_CUDA_EARLY_STARTS is on or off, not '{}'", *early_starts));
    }
    tuning.early_starts = *early_starts == "on";
  }
  return tuning;
}

void set_launch_tuning(const LaunchTuning& tuning) { chosen_tuning = tuning; }

const LaunchTuning& launch_tuning() { return chosen_tuning; }

}  // namespace hyb::kernels
