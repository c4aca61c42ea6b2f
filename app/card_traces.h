#pragma once

#include <string>

namespace hyb::app {

/// What of NVIDIA's a machine shows to who does not use CUDA.
struct CardTraces {
  bool has_device = false;  ///< a device file of a card
  bool has_driver = false;  ///< libcuda can be opened
};

CardTraces card_traces();

/// What a build without CUDA has to say beside a card; "" where there is nothing to say.
std::string unused_card_text(bool build_has_cuda, const CardTraces& traces);

/// Says so, as a warning, once in a process.
void warn_of_unused_card();

}  // namespace hyb::app
