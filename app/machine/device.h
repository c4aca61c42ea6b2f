#pragma once

#include <optional>
#include <string>

#include "kernels/card.h"
#include "kernels/device.h"

namespace hyb::app {

/// Signs of an NVIDIA card that a machine shows without the use of CUDA.
struct CardTraces {
  bool has_device = false;  ///< a device file of a card
  bool has_driver = false;  ///< libcuda can be opened
  bool has_module = false;  ///< the kernel module is loaded

  bool shows_card() const { return has_device || has_module; }
};

CardTraces card_traces();

/// Holds what is known of the machine's card before a device is chosen.
struct CardEvidence {
  bool build_has_cuda = false;
  bool is_hidden = false;  ///< CUDA_VISIBLE_DEVICES hides all cards from this process
  CardTraces traces = {};
  std::optional<kernels::Card> card = {};
  std::string failure = {};  ///< why no card answers; "" where one does, or CUDA was not tried
};

/// Initialises CUDA where this build has it, which takes a few hundred milliseconds on a card.
CardEvidence find_card();

/// Choice of --device auto.
struct DeviceChoice {
  kernels::Device device = kernels::Device::cpu;
  /// Why a card that is present is not used; "" where there is none, it is hidden, or it is used.
  std::string reason = {};
};

/// A card that runs this build's kernels and has memory left, else the CPU.
DeviceChoice choose_device(const CardEvidence& evidence);

/// "cpu", "cuda".
const char* name_of(kernels::Device device);

/// Returns the device of --device. Without one (auto) it is decided once in a process, with a
/// warning about a card that is present and not used.
kernels::Device device_of(std::optional<kernels::Device> asked);

}  // namespace hyb::app
